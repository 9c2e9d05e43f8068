"""JoinGroup."""

from typing import Any

import pytest

from ottla.machines.groups.classic_group import GroupState
from ottla.machines.groups.request_types import NotYet
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponse
from tests.unit.machines.groups.host import GROUP, REBALANCE_MS, SESSION_MS, Host, subscription


def refused(answer: JoinGroupResponse | NotYet) -> int:
    assert isinstance(answer, JoinGroupResponse)
    return answer.error_code


def test_a_member_without_an_id_is_given_one_and_sent_away() -> None:
    host = Host()
    answer = host.join(client="reader", version=4)
    assert isinstance(answer, JoinGroupResponse)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id == "reader-00000000-0000-0000-0000-000000000001"
    assert host.group.state is GroupState.EMPTY
    assert not host.group.members
    assert isinstance(host.join(answer.member_id), NotYet)


def test_older_clients_come_in_at_once() -> None:
    host = Host()
    wait = host.join(version=3)
    host.pass_ms(3_000)
    answer = host.joined(wait)
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 1)
    assert answer.leader == answer.member_id
    assert [m.metadata for m in answer.members] == [subscription("events")]


def test_the_oldest_clients_have_as_long_to_rejoin_as_their_session_lasts() -> None:
    host = Host()
    host.join(version=0, rebalance_timeout_ms=-1)
    assert host.group.rebalance_timeout_ms() == SESSION_MS


def test_the_ids_of_clients_with_endless_names_can_be_written() -> None:
    host = Host()
    answer = host.join(client="x" * 32_767, version=4)
    assert isinstance(answer, JoinGroupResponse)
    assert len(answer.member_id) == 255 + 37


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_an_invalid_request_is_refused_and_leaves_no_group(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    host = Host()
    assert refused(host.join(**fields)) == code
    assert host.machine.group(GROUP) is None


@pytest.mark.parametrize("fields", [{"protocols": ["other"]}, {"protocol_type": "connect"}])
def test_a_member_without_a_common_protocol_is_refused(fields: dict[str, Any]) -> None:
    host = Host()
    host.stable_group()
    code = refused(host.join(**fields))
    assert code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert host.group.state is GroupState.STABLE


def test_a_protocol_that_is_named_twice_counts_once() -> None:
    host = Host()
    host.stable_group(protocols=("range", "range"))
    newcomer = host.join_anew(protocols=("range",))
    host.pass_ms(SESSION_MS)
    assert host.joined(newcomer).protocol_name == "range"


def test_a_stranger_to_a_group_is_an_unknown_member() -> None:
    host = Host()
    host.stable_group()
    assert refused(host.join("stranger")) == ErrorCode.UNKNOWN_MEMBER_ID
    pending = host.join()
    assert isinstance(pending, JoinGroupResponse)
    as_static = host.join(pending.member_id, instance="static")
    assert refused(as_static) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_unused_member_id_expires_and_so_does_its_group() -> None:
    host = Host()
    answer = host.join()
    assert isinstance(answer, JoinGroupResponse)
    host.pass_ms(SESSION_MS)
    assert host.machine.group(GROUP) is None
    assert refused(host.join(answer.member_id)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert host.log == []


def test_a_new_group_waits_as_long_as_members_keep_coming() -> None:
    host = Host()
    first = host.join(version=3)
    host.pass_ms(2_900)
    second = host.join(version=3)
    host.pass_ms(200)
    assert host.group.state is GroupState.PREPARING_REBALANCE
    host.pass_ms(2_900)
    answers = [host.joined(wait) for wait in (first, second)]
    assert [answer.generation_id for answer in answers] == [1, 1]
    assert host.group.attendance.join_answers == {}
    assert len(answers[0].members) == 2
    assert answers[1].members == []


def test_a_new_group_waits_no_longer_than_its_rebalance_timeout() -> None:
    host = Host()
    for _ in range(4):
        host.join(version=3, rebalance_timeout_ms=7_000)
        host.pass_ms(2_000)
    assert host.group.state is GroupState.COMPLETING_REBALANCE


def test_without_an_initial_delay_the_first_member_need_not_wait() -> None:
    host = Host(group_initial_rebalance_delay_ms=0)
    wait = host.join(version=3)
    host.pass_ms(1)
    assert host.joined(wait).generation_id == 1


def test_a_new_member_makes_the_others_join_again() -> None:
    host = Host()
    leader, follower = host.stable_group()
    newcomer = host.join_anew()
    assert host.beat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    again = host.join(follower)
    last = host.join(leader)
    assert isinstance(last, JoinGroupResponse)
    assert len(last.members) == 3
    assert {host.joined(wait).generation_id for wait in (newcomer, again)} == {2}
    assert GROUP in host.notified


def test_a_member_that_joins_too_late_is_removed_and_loses_the_lead() -> None:
    host = Host()
    leader, follower = host.stable_group()
    again = host.join(follower, metadata=subscription("other"))
    for _ in range(REBALANCE_MS // 5_000):
        host.beat(leader, 1)
        host.pass_ms(5_000)
    answer = host.joined(again)
    assert answer.leader == follower
    assert list(host.group.members) == [follower]
    assert host.beat(leader, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_follower_that_joins_unchanged_is_told_of_the_generation_it_is_in() -> None:
    host = Host()
    leader, follower = host.stable_group()
    answer = host.join(follower)
    assert isinstance(answer, JoinGroupResponse)
    assert (answer.generation_id, answer.leader, answer.members) == (1, leader, [])
    assert host.group.state is GroupState.STABLE


def test_the_leader_that_joins_again_has_all_the_others_join_too() -> None:
    host = Host()
    leader, _ = host.stable_group()
    assert isinstance(host.join(leader), NotYet)
    assert host.group.state is GroupState.PREPARING_REBALANCE


def test_a_leader_that_missed_the_answer_gets_it_again() -> None:
    host = Host()
    wait = host.join(version=3)
    host.pass_ms(3_000)
    answer = host.joined(wait)
    assert host.join(answer.member_id) == answer


def test_metadata_that_changes_while_work_is_assigned_begins_anew() -> None:
    host = Host()
    waits = [host.join_anew() for _ in range(2)]
    host.pass_ms(9_000)
    leader, follower = (host.joined(wait).member_id for wait in waits)
    syncing = host.sync(follower, 1)
    host.join(leader, metadata=subscription("other"))
    assert host.group.state is GroupState.PREPARING_REBALANCE
    assert host.synced(syncing).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_of_two_joins_of_one_member_the_first_is_answered_too() -> None:
    host = Host()
    first = host.join_anew()
    host.notified.clear()
    second = host.join(first.member_id)
    assert GROUP in host.notified
    assert host.joined(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    host.pass_ms(3_000)
    assert host.joined(second).error_code == ErrorCode.NONE
    assert host.joined(first).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_answer_is_of_the_generation_that_was_joined_though_the_next_has_begun() -> None:
    host = Host()
    waits = [host.join_anew() for _ in range(2)]
    host.pass_ms(9_000)
    host.join_anew()
    assert host.group.state is GroupState.PREPARING_REBALANCE
    assert [host.joined(wait).generation_id for wait in waits] == [1, 1]


def test_a_new_member_that_waits_too_long_is_told_to_begin_again() -> None:
    host = Host()
    leader, follower = host.stable_group(rebalance_timeout_ms=900_000)
    newcomer = host.join_anew(rebalance_timeout_ms=900_000)
    for _ in range(60):
        host.beat(leader, 1)
        host.beat(follower, 1)
        host.pass_ms(5_000)
    answer = host.joined(newcomer)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(host.group.members) == [leader, follower]


def test_a_full_group_admits_no_member() -> None:
    host = Host(group_max_size=2)
    leader, follower = host.stable_group()
    assert refused(host.join()) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert isinstance(host.join(follower), JoinGroupResponse)
    assert isinstance(host.join(leader), NotYet)
    assert isinstance(host.join(follower), JoinGroupResponse)
    assert host.group.generation == 2


def test_ids_may_be_given_out_for_more_members_than_can_come_in() -> None:
    host = Host(group_max_size=1)
    ids = []
    for _ in range(2):
        answer = host.join()
        assert isinstance(answer, JoinGroupResponse)
        ids.append(answer.member_id)
    assert isinstance(host.join(ids[0]), NotYet)
    assert refused(host.join(ids[1])) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not host.group.attendance.pending


def test_a_group_that_is_too_large_since_the_limit_was_lowered_loses_the_last() -> None:
    host = Host()
    ids = host.stable_group(members=3)
    host.settings = Host(group_max_size=2).settings
    host.reload()
    assert host.group.state is GroupState.PREPARING_REBALANCE
    waits = [host.join(member_id) for member_id in ids[:2]]
    assert refused(host.join(ids[2])) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {host.joined(wait).generation_id for wait in waits} == {2}


def test_a_machine_keeps_no_more_sessions_than_it_may() -> None:
    host = Host(sessions_max=3)
    answer = host.join()
    assert isinstance(answer, JoinGroupResponse)
    assert refused(host.join()) == ErrorCode.MEMBER_ID_REQUIRED
    assert refused(host.join()) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert isinstance(host.join(answer.member_id), NotYet)


def test_a_machine_keeps_no_more_groups_than_it_may() -> None:
    host = Host(groups_max=1)
    host.join()
    assert refused(host.join(group="another")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert host.machine.group("another") is None


def test_a_new_member_wakes_no_member_during_the_initial_delay() -> None:
    host = Host()
    first = host.join_anew()
    host.notified.clear()
    host.join_anew()
    assert host.notified == set()
    again = host.join(first.member_id)
    assert host.notified == {GROUP}
    assert isinstance(again, NotYet)
