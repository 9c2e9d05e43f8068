"""SyncGroup, Heartbeat, LeaveGroup, and session timeouts."""

import pytest

from ottla.machines.groups.classic_group import GroupState
from ottla.machines.groups.rebalance import RETRY_MS_MIN
from ottla.machines.groups.request_types import NotYet
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.unit.machines.groups.host import GROUP, REBALANCE_MS, SESSION_MS, Host


def completing(host: Host, members: int = 2) -> list[str]:
    """Return the members of a group in which all have joined and wait for assignments."""
    waits = [host.join_anew() for _ in range(members)]
    host.pass_ms(9_000)
    return [host.joined(wait).member_id for wait in waits]


def test_followers_wait_until_the_leader_has_assigned() -> None:
    host = Host()
    leader, follower = completing(host)
    wait = host.sync(follower, 1)
    assert isinstance(wait, NotYet)
    assert wait.group_id == GROUP
    host.notified.clear()

    answer = host.sync(leader, 1, {leader: b"mine", follower: b"yours", "stranger": b"nobody's"})

    assert isinstance(answer, SyncGroupResponse)
    assert (answer.assignment, answer.protocol_type, answer.protocol_name) == (
        b"mine",
        "consumer",
        "range",
    )
    assert host.notified == {GROUP}
    assert host.synced(wait).assignment == b"yours"
    assert host.group.state is GroupState.STABLE


def test_the_log_learns_of_a_generation_when_it_is_stable() -> None:
    host = Host()
    leader, follower = completing(host)
    assert host.log == []
    host.sync(leader, 1, {leader: b"mine"})
    assert len(host.log) == 1
    assert host.group.stored_ms == host.wall_ms
    stored = {m.member_id: m.assignment for m in host.group.members.values()}
    assert stored == {leader: b"mine", follower: b""}


def test_no_member_gets_an_assignment_that_is_not_in_the_log() -> None:
    host = Host()
    leader, follower = completing(host)
    wait = host.sync(follower, 1)
    assert isinstance(wait, NotYet)
    lost = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id=leader)
    assert host.machine.decide_sync(lost, host.now).records
    assert host.machine.ask_sync_again(wait).response == wait
    host.sync(leader, 1, {follower: b"yours"})
    assert host.synced(wait).assignment == b"yours"


def test_a_member_that_missed_its_work_can_ask_again() -> None:
    host = Host()
    leader, _ = host.stable_group()
    assert host.synced(host.sync(leader, 1)).assignment == leader.encode()


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"instance": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
    ],
)
def test_only_valid_members_get_an_assignment(how: dict[str, object], code: ErrorCode) -> None:
    host = Host()
    leader, _ = host.stable_group()
    asked = {"member_id": leader, "generation": 1} | how
    assert host.synced(host.sync(**asked)).error_code == code  # type: ignore[arg-type]


def test_there_is_no_work_while_the_group_gathers() -> None:
    host = Host()
    leader, follower = host.stable_group()
    host.join(leader)
    answer = host.synced(host.sync(follower, 1))
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_rebalance_sends_those_away_that_wait_for_work() -> None:
    host = Host()
    _, follower = completing(host)
    wait = host.sync(follower, 1)
    host.notified.clear()
    host.join_anew()
    assert host.notified == {GROUP}
    assert host.synced(wait).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    host.pass_ms(SESSION_MS - 1)
    assert follower in host.group.members


def test_a_sync_that_slept_through_a_generation_is_told_to_join_again() -> None:
    host = Host()
    leader, follower = completing(host)
    wait = host.sync(follower, 1)
    newcomer = host.join_anew()
    for member_id in (leader, follower):
        host.join(member_id)
    assert host.joined(newcomer).generation_id == 2
    assert host.synced(wait).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    host.sync(leader, 2, {follower: b"of the second generation"})
    assert host.group.state is GroupState.STABLE
    assert host.synced(wait).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_assigns_is_removed() -> None:
    host = Host()
    leader, follower = completing(host)
    wait = host.sync(follower, 1)
    for _ in range(REBALANCE_MS // 5_000):
        host.beat(leader, 1)
        host.pass_ms(5_000)
    assert host.synced(wait).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(host.group.members) == [follower]
    assert host.group.leader == follower
    assert host.group.state is GroupState.PREPARING_REBALANCE


def test_a_member_that_never_syncs_is_removed_though_the_group_is_stable() -> None:
    host = Host()
    leader, follower = completing(host)
    host.sync(leader, 1, {})
    for _ in range(REBALANCE_MS // 5_000):
        for member_id in (leader, follower):
            assert host.beat(member_id, 1) == ErrorCode.NONE
        host.pass_ms(5_000)
    assert list(host.group.members) == [leader]


def test_a_rebalance_ends_the_time_to_sync_and_gives_its_own() -> None:
    host = Host()
    leader, follower = completing(host)
    host.sync(leader, 1, {})
    for _ in range(REBALANCE_MS // 5_000 - 1):
        for member_id in (leader, follower):
            host.beat(member_id, 1)
        host.pass_ms(5_000)
    host.join(leader)
    for _ in range(2):
        host.beat(follower, 1)
        host.pass_ms(5_000)
    assert follower in host.group.members
    host.join(follower)
    assert host.group.generation == 2


def test_members_that_all_sync_are_left_alone() -> None:
    host = Host()
    ids = host.stable_group(members=3)
    for _ in range(2 * REBALANCE_MS // 5_000):
        for member_id in ids:
            assert host.beat(member_id, 1) == ErrorCode.NONE
        host.pass_ms(5_000)
    assert host.group.state is GroupState.STABLE


def test_heartbeats_are_answered_by_the_state_of_the_group() -> None:
    host = Host()
    leader, follower = completing(host)
    assert host.beat(follower, 1) == ErrorCode.NONE
    assert host.beat(follower, 0) == ErrorCode.ILLEGAL_GENERATION
    assert host.beat("stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    host.sync(leader, 1, {})
    assert host.beat(follower, 1) == ErrorCode.NONE
    host.join(leader)
    assert host.beat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    host.leave(leader, follower)
    assert host.group.state is GroupState.EMPTY
    assert host.beat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("group_id", "code"),
    [("", ErrorCode.INVALID_GROUP_ID), ("unknown", ErrorCode.UNKNOWN_MEMBER_ID)],
)
def test_there_are_no_heartbeats_without_a_group(group_id: str, code: ErrorCode) -> None:
    host = Host()
    request = HeartbeatRequest(group_id=group_id, member_id="a", generation_id=1)
    assert host.run(host.machine.decide_heartbeat(request, host.now)).error_code == code


def test_a_member_that_is_silent_for_a_session_is_removed() -> None:
    host = Host()
    leader, follower = host.stable_group()
    host.pass_ms(SESSION_MS - 1)
    host.beat(leader, 1)
    assert follower in host.group.members
    host.pass_ms(1)
    assert list(host.group.members) == [leader]
    assert host.beat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_waiting_member_need_not_send_heartbeats() -> None:
    host = Host()
    leader, follower = host.stable_group()
    host.join(follower, metadata=b"changed")
    for _ in range(5):
        host.beat(leader, 1)
        host.pass_ms(5_000)
    assert follower in host.group.members
    assert isinstance(host.join(leader), JoinGroupResponse)
    host.sync(follower, 2)
    for _ in range(5):
        host.beat(leader, 2)
        host.pass_ms(5_000)
    host.sync(leader, 2, {})
    assert follower in host.group.members
    host.pass_ms(SESSION_MS)
    assert host.group.state is GroupState.EMPTY


def test_a_static_member_that_waited_for_work_can_still_be_found_dead() -> None:
    host = Host()
    waits = [host.join(instance=name) for name in ("one", "two")]
    host.pass_ms(9_000)
    leader, follower = (host.joined(wait).member_id for wait in waits)
    host.sync(follower, 1, instance="two")
    for _ in range(3):
        host.beat(leader, 1, "one")
        host.pass_ms(5_000)
    host.join(leader, instance="one", metadata=b"changed")
    host.pass_ms(SESSION_MS - 1)
    assert follower in host.group.members
    host.pass_ms(1)
    assert follower not in host.group.members


def test_the_wall_clock_ends_no_session() -> None:
    host = Host()
    leader, _ = host.stable_group()
    host.wall_ms += 10**12
    host.pass_ms(SESSION_MS - 1)
    assert host.beat(leader, 1) == ErrorCode.NONE


def test_a_group_that_all_members_left_is_empty_in_its_next_generation() -> None:
    host = Host()
    ids = host.stable_group()
    answer = host.leave(*ids)
    assert [m.error_code for m in answer.members] == [ErrorCode.NONE] * 2
    assert host.group.state is GroupState.EMPTY
    assert host.group.generation == 2
    assert host.group.stored_ms == host.wall_ms
    assert host.group.protocol_type == "consumer"
    host.reload()
    assert (host.group.state, host.group.generation) == (GroupState.EMPTY, 2)


def test_a_group_with_an_unwritten_last_leave_is_empty_soon() -> None:
    host = Host()
    (member,) = host.stable_group(members=1)
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member)])
    host.machine.decide_leave(request, 5, host.now)  # and appending fails
    assert host.commit(5) == ErrorCode.UNKNOWN_MEMBER_ID
    host.pass_ms(RETRY_MS_MIN)
    assert (host.group.state, host.group.generation) == (GroupState.EMPTY, 2)
    assert host.commit(5) == ErrorCode.NONE
    log_length = len(host.log)
    host.pass_ms(10 * RETRY_MS_MIN)
    assert len(host.log) == log_length, "once is enough"


def test_a_member_that_comes_before_its_group_was_written_to_be_empty_is_in_it() -> None:
    host = Host()
    (member,) = host.stable_group(members=1)
    request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member)])
    host.machine.decide_leave(request, 5, host.now)  # and appending fails
    first = host.join()
    assert isinstance(first, JoinGroupResponse)
    second = host.join(first.member_id)
    assert isinstance(second, JoinGroupResponse)
    host.sync(second.member_id, second.generation_id, {second.member_id: b"all"})
    host.pass_ms(5 * RETRY_MS_MIN)
    assert (host.group.state, list(host.group.members)) == (GroupState.STABLE, [second.member_id])


def test_each_leaving_member_has_an_answer_of_its_own() -> None:
    host = Host()
    leader, follower = host.stable_group()
    wait = host.join(instance="static")
    assert isinstance(wait, NotYet)
    host.notified.clear()
    answer = host.leave(
        "stranger",
        follower,
        MemberIdentity(member_id="", group_instance_id="static"),
        MemberIdentity(member_id="", group_instance_id="unknown"),
        MemberIdentity(member_id=leader, group_instance_id="unknown"),
        follower,
        "",
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [m.error_code for m in answer.members] == [
        *(unknown, ErrorCode.NONE, ErrorCode.NONE),
        *(unknown, unknown, unknown, unknown),
    ]
    assert answer.members[2].group_instance_id == "static"
    assert list(host.group.members) == [leader]
    assert host.notified == {GROUP}
    assert host.joined(wait).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_cannot_be_made_to_leave_by_its_former_life() -> None:
    host = Host()
    old = host.join(instance="static")
    assert isinstance(old, NotYet)
    host.join(instance="static")
    answer = host.leave(MemberIdentity(member_id=old.member_id, group_instance_id="static"))
    assert answer.members[0].error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("group_id", ["", "unknown"])
def test_there_is_no_leaving_without_a_group(group_id: str) -> None:
    host = Host()
    request = LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id="a")])
    answer = host.run(host.machine.decide_leave(request, 5, host.now))
    if group_id:
        assert [m.error_code for m in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID]
    else:
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID


def test_older_clients_leave_one_by_one() -> None:
    host = Host()
    leader, follower = host.stable_group()
    for member_id, code in [
        (follower, ErrorCode.NONE),
        (follower, ErrorCode.UNKNOWN_MEMBER_ID),
        (leader, ErrorCode.NONE),
    ]:
        request = LeaveGroupRequest(group_id=GROUP, member_id=member_id)
        answer = host.run(host.machine.decide_leave(request, 2, host.now))
        assert (answer.error_code, answer.members) == (code, [])
    assert host.group.state is GroupState.EMPTY


def test_a_pending_member_leaves_without_a_rebalance() -> None:
    host = Host()
    host.stable_group()
    pending = host.join()
    assert isinstance(pending, JoinGroupResponse)
    answer = host.leave(pending.member_id)
    assert answer.members[0].error_code == ErrorCode.NONE
    assert host.group.state is GroupState.STABLE
    assert not host.group.attendance.pending


def test_a_group_is_gone_with_its_only_pending_member() -> None:
    host = Host()
    pending = host.join()
    assert isinstance(pending, JoinGroupResponse)
    host.leave(pending.member_id)
    assert host.machine.group(GROUP) is None
    host.pass_ms(SESSION_MS)


def test_a_rebalance_does_not_wait_for_a_member_that_left() -> None:
    host = Host()
    leader, follower = host.stable_group()
    pending = host.join()
    assert isinstance(pending, JoinGroupResponse)
    wait = host.join(leader)
    host.leave(follower)
    assert host.group.state is GroupState.PREPARING_REBALANCE
    host.leave(pending.member_id)
    assert host.joined(wait).generation_id == 2


def test_members_that_leave_a_new_group_before_it_began_leave_it_empty() -> None:
    host = Host()
    wait = host.join_anew()
    host.leave(wait.member_id)
    assert host.group.state is GroupState.EMPTY
    assert host.joined(wait).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(host.log) == 1
