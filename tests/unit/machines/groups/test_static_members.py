"""JoinGroup of static members, which keep their place in the group through restarts."""

from typing import Any

from ottla.machines.groups.classic_group import GroupState
from ottla.machines.groups.request_types import NotYet
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponse
from tests.unit.machines.groups.host import REBALANCE_MS, SESSION_MS, Host


def refused(answer: JoinGroupResponse | NotYet) -> int:
    assert isinstance(answer, JoinGroupResponse)
    return answer.error_code


def static_group(host: Host, **how: Any) -> tuple[JoinGroupResponse, JoinGroupResponse]:
    """Return a stable group of two static members; the first member leads."""
    waits = [host.join(instance=name, **how) for name in ("one", "two")]
    host.pass_ms(9_000)
    first, second = (host.joined(wait) for wait in waits)
    work = {first.member_id: b"work of one", second.member_id: b"work of two"}
    host.sync(first.member_id, 1, work, instance="one")
    host.sync(second.member_id, 1, instance="two")
    assert host.group.state is GroupState.STABLE
    return first, second


def test_a_static_member_joins_at_once_and_returns_without_a_rebalance() -> None:
    host = Host()
    first, second = static_group(host)
    records_before = len(host.log)

    back = host.join(instance="two", client="elsewhere")

    assert isinstance(back, JoinGroupResponse)
    assert (back.error_code, back.generation_id, back.skip_assignment) == (ErrorCode.NONE, 1, False)
    assert back.member_id not in {first.member_id, second.member_id}
    assert back.leader == first.member_id
    assert host.group.state is GroupState.STABLE
    assert len(host.log) == records_before + 1
    assert host.group.members[back.member_id].client_id == "elsewhere"
    work = host.synced(host.sync(back.member_id, 1, instance="two"))
    assert work.assignment == b"work of two"


def test_a_static_member_that_returns_and_falls_silent_is_found_dead() -> None:
    host = Host()
    first, _ = static_group(host)
    back = host.join(instance="two")
    assert isinstance(back, JoinGroupResponse)
    host.pass_ms(SESSION_MS - 1)
    host.beat(first.member_id, 1, "one")
    host.pass_ms(1)
    assert list(host.group.members) == [first.member_id]


def test_a_static_member_that_returned_is_known_to_the_next_coordinator() -> None:
    host = Host()
    static_group(host)
    back = host.join(instance="two")
    assert isinstance(back, JoinGroupResponse)
    host.reload()
    assert host.beat(back.member_id, 1, "two") == ErrorCode.NONE


def test_the_former_life_of_a_static_member_is_fenced() -> None:
    host = Host()
    first, _ = static_group(host)
    host.join(instance="one")
    assert host.beat(first.member_id, 1, "one") == ErrorCode.FENCED_INSTANCE_ID
    assert refused(host.join(first.member_id, instance="one")) == ErrorCode.FENCED_INSTANCE_ID
    fenced = host.synced(host.sync(first.member_id, 1, instance="one"))
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_leader_that_returns_leads_but_need_not_assign() -> None:
    host = Host()
    static_group(host)
    back = host.join(instance="one", version=9)
    assert isinstance(back, JoinGroupResponse)
    assert back.leader == back.member_id
    assert back.skip_assignment
    assert len(back.members) == 2


def test_an_older_static_leader_that_returns_believes_to_follow() -> None:
    host = Host()
    first, _ = static_group(host, version=8)
    back = host.join(instance="one", version=8)
    assert isinstance(back, JoinGroupResponse)
    assert back.leader == first.member_id
    assert back.members == []
    assert not back.skip_assignment
    assert host.group.leader == back.member_id


def test_a_static_member_that_returns_with_another_preference_has_all_join_again() -> None:
    host = Host()
    waits = [host.join(instance=name, protocols=("a", "b")) for name in ("one", "two")]
    host.pass_ms(9_000)
    first, second = (host.joined(wait).member_id for wait in waits)
    host.sync(first, 1, {first: b"1", second: b"2"}, instance="one")
    host.sync(second, 1, instance="two")
    assert isinstance(host.join(instance="one", protocols=("b",)), NotYet)
    assert host.group.state is GroupState.PREPARING_REBALANCE
    assert host.beat(second, 1, "two") == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_member_that_returns_while_work_is_assigned_begins_anew() -> None:
    host = Host()
    waits = [host.join(instance=name) for name in ("one", "two")]
    host.pass_ms(9_000)
    _, second = (host.joined(wait).member_id for wait in waits)
    syncing = host.sync(second, 1, instance="two")
    assert isinstance(host.join(instance="two"), NotYet)
    assert host.synced(syncing).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert host.group.state is GroupState.PREPARING_REBALANCE


def test_a_waiting_static_member_is_fenced_by_its_next_life() -> None:
    host = Host()
    old = host.join(instance="one")
    new = host.join(instance="one")
    assert host.joined(old).error_code == ErrorCode.FENCED_INSTANCE_ID
    host.pass_ms(3_000)
    assert host.joined(new).error_code == ErrorCode.NONE
    assert len(host.group.members) == 1


def test_a_static_member_returns_to_a_full_group() -> None:
    host = Host(group_max_size=2)
    static_group(host)
    assert refused(host.join(instance="two")) == ErrorCode.NONE
    assert refused(host.join(instance="three")) == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_static_member_that_is_down_keeps_its_place_in_the_next_generation() -> None:
    host = Host()
    patience: dict[str, Any] = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 8_000}
    first, second = static_group(host, **patience)
    joining = host.join(first.member_id, instance="one", **patience)
    host.pass_ms(7_999)
    assert host.group.state is GroupState.PREPARING_REBALANCE
    host.pass_ms(1)
    answer = host.joined(joining)
    assert [m.member_id for m in answer.members] == [first.member_id, second.member_id]
    assert host.beat(second.member_id, 1, "two") == ErrorCode.ILLEGAL_GENERATION


def test_if_only_static_members_are_left_and_none_joins_the_group_waits_for_their_end() -> None:
    host = Host()
    first, second = static_group(host)
    dynamic = host.join_anew()
    host.leave(dynamic.member_id)
    for _ in range(2 * REBALANCE_MS // 5_000):
        for static, name in ((first, "one"), (second, "two")):
            code = host.beat(static.member_id, 1, name)
            assert code == ErrorCode.REBALANCE_IN_PROGRESS
        host.pass_ms(5_000)
    assert len(host.group.members) == 2
    host.pass_ms(SESSION_MS)
    assert host.group.state is GroupState.EMPTY
