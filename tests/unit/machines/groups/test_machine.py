"""The machine as a whole: replay, fail-over, time."""

import pytest

from ottla.machines.groups.classic_group import GroupState
from ottla.machines.groups.group_memory import GroupMemory
from ottla.machines.groups.machine import GroupMachine
from ottla.machines.groups.settings import GroupSettings
from ottla.model.error_code import ErrorCode
from ottla.wire.coordinator_records.classic_group import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
)
from ottla.wire.coordinator_records.consumer_group import ConsumerGroupMetadataKey
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest
from ottla.wire.messages.list_groups import ListGroupsRequest
from ottla.wire.writing import encode
from tests.unit.machines.groups.host import GROUP, SESSION_MS, Host, subscription


def test_deciding_does_not_change_replayed_state() -> None:
    host = Host()
    ids = host.stable_group()
    host.commit(1, ids[0], 1)
    stored_ms, generation = host.group.stored_ms, host.group.generation
    lost = host.machine.decide_delete(GROUP), host.machine.decide_forget("events", None)
    host.join(ids[0])
    assert (host.group.stored_ms, host.group.generation) == (stored_ms, generation)
    assert host.fetch() == 1
    assert lost[0].response.error_code == ErrorCode.NON_EMPTY_GROUP


def test_members_carry_on_with_the_next_coordinator() -> None:
    host = Host()
    leader, follower = host.stable_group()
    host.commit(5, leader, 1)
    host.pass_ms(SESSION_MS - 1)
    host.reload()
    host.pass_ms(SESSION_MS - 1)
    for member_id in (leader, follower):
        assert host.beat(member_id, 1) == ErrorCode.NONE
        assert host.synced(host.sync(member_id, 1)).assignment == member_id.encode()
    assert host.fetch() == 5
    host.pass_ms(SESSION_MS)
    assert host.group.state is GroupState.EMPTY


def test_members_that_never_come_to_the_next_coordinator_are_found_dead() -> None:
    host = Host()
    host.stable_group()
    host.reload()
    host.pass_ms(SESSION_MS - 1)
    assert len(host.group.members) == 2
    host.pass_ms(1)
    assert host.group.state is GroupState.EMPTY


@pytest.mark.parametrize("version", range(10))
def test_responses_can_be_written_in_the_version_of_each_member(version: int) -> None:
    host = Host()
    wait = host.join(version=min(version, 3))
    host.pass_ms(3_000)
    joined = host.joined(wait)
    encode(joined, version)
    encode(host.joined(wait), version)
    if version <= 5:
        encode(host.synced(host.sync(joined.member_id, 1, {})), version)
        encode(host.synced(host.sync(joined.member_id, 9)), version)
        request = LeaveGroupRequest(group_id=GROUP, member_id=joined.member_id)
        encode(host.run(host.machine.decide_leave(request, version, host.now)), version)


def test_a_generation_that_was_not_completed_is_forgotten_with_its_coordinator() -> None:
    host = Host()
    leader, follower = host.stable_group()
    waiting = host.join(leader)
    host.join(follower)
    assert host.group.generation == 2
    host.reload()
    assert (host.group.state, host.group.generation) == (GroupState.STABLE, 1)
    assert host.joined(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert host.synced(host.sync(leader, 2, {})).error_code == ErrorCode.ILLEGAL_GENERATION


def test_requests_that_wait_are_answered_when_another_coordinator_knows_nothing_of_them() -> None:
    host = Host()
    waiting = host.join_anew()
    host.reload()
    assert host.joined(waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_record_of_another_coordinator_ends_a_running_rebalance() -> None:
    host = Host()
    leader, _ = host.stable_group()
    waiting = host.join(leader)
    value = GroupMetadataValue(protocol_type="consumer", generation=9, protocol=None, leader=None)
    host.machine.replay(GroupMetadataKey(group=GROUP), value)
    assert (host.group.state, host.group.generation) == (GroupState.EMPTY, 9)
    assert GROUP in host.machine.take_notified()
    assert host.joined(waiting).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    host.pass_ms(SESSION_MS)


def test_a_group_whose_tombstone_is_older_than_its_offsets_is_there_for_their_sake() -> None:
    host = Host()
    host.leave(*host.stable_group())
    host.commit(3)
    host.machine.replay(GroupMetadataKey(group=GROUP), None)
    assert host.group.stored_ms is None
    assert host.group.protocol_type is None
    assert host.fetch() == 3


def test_offsets_of_the_earliest_releases_are_read() -> None:
    machine = GroupMachine(GroupSettings(), GroupMemory(128 << 20))
    key = LegacyOffsetCommitKey(group=GROUP, topic="events", partition=1)
    value = LegacyOffsetCommitValue(offset=12, metadata="old", commit_timestamp=3)
    machine.replay(key, value)
    committed = machine.committed(GROUP, "events", 1)
    assert committed is not None
    assert (committed.offset, committed.metadata, committed.leader_epoch) == (12, "old", -1)
    machine.replay(key, None)
    assert machine.group(GROUP) is None


def test_tombstones_without_a_group_and_records_of_other_kinds_are_skipped() -> None:
    machine = GroupMachine(GroupSettings(), GroupMemory(128 << 20))
    machine.replay(OffsetCommitKey(group=GROUP, topic="events", partition=1), None)
    machine.replay(GroupMetadataKey(group=GROUP), None)
    machine.replay(ConsumerGroupMetadataKey(group_id=GROUP), None)
    assert machine.group(GROUP) is None


def test_time_does_not_pass_before_the_machine_has_started() -> None:
    machine = GroupMachine(GroupSettings(), GroupMemory(128 << 20))
    assert machine.next_deadline_ms() is None
    host = Host()
    machine.start(host.now)
    assert machine.next_deadline_ms() == host.monotonic_ms + 600_000
    assert machine.expire(host.now).records == ()


def test_each_expiry_is_one_decision() -> None:
    host = Host()
    for group in ("a", "b"):
        host.join(group=group, version=3)
    host.pass_ms(2_999)
    host.monotonic_ms += 1
    host.run(host.machine.expire(host.now))
    states = [host.machine.group(group) for group in ("a", "b")]
    assert [group and group.state for group in states] == [
        GroupState.COMPLETING_REBALANCE,
        GroupState.PREPARING_REBALANCE,
    ]
    assert host.machine.next_deadline_ms() == host.monotonic_ms


def describe(host: Host, group_id: str = GROUP, version: int = 6) -> DescribedGroup:
    described = host.run(host.machine.decide_describe(group_id, version))
    encode(DescribeGroupsResponse(groups=[described]), version)
    return described


def listed(host: Host, *states: str, types: list[str] | None = None) -> list[str]:
    request = ListGroupsRequest(states_filter=list(states), types_filter=types or [])
    return [group.group_id for group in host.run(host.machine.decide_list(request))]


def test_a_stable_group_is_shown_with_all_its_members_do() -> None:
    host = Host()
    leader, follower = host.stable_group()
    group = describe(host)
    assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    first, second = group.members
    assert (first.member_id, second.member_id) == (leader, follower)
    assert (first.client_id, first.client_host) == ("client", "/10.0.0.1")
    assert first.member_metadata == subscription("events")
    assert second.member_assignment == follower.encode()


def test_a_group_that_rebalances_has_no_protocol_to_show() -> None:
    host = Host()
    leader, _ = host.stable_group()
    host.join(leader)
    group = describe(host)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in group.members] == [b"", b""]
    assert group.members[0].member_assignment == leader.encode()


def test_a_group_without_members_is_empty_and_of_no_type() -> None:
    host = Host()
    host.commit(1)
    group = describe(host)
    assert (group.group_state, group.protocol_type, group.members) == ("Empty", "", [])


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_group_that_is_not_there_is_dead(version: int, code: ErrorCode) -> None:
    group = describe(Host(), "unknown", version)
    assert (group.group_id, group.group_state, group.error_code) == ("unknown", "Dead", code)


def test_groups_are_listed_by_state_and_type() -> None:
    host = Host()
    host.stable_group()
    host.commit(1, group="simple")
    assert listed(host) == [GROUP, "simple"]
    assert listed(host, "stable") == [GROUP]
    assert listed(host, " Empty", "Dead") == ["simple"]
    assert listed(host, "nonsense") == []
    assert listed(host, types=["Classic", "share"]) == [GROUP, "simple"]
    assert listed(host, types=["consumer"]) == []


def test_a_listed_group_has_state_and_type() -> None:
    host = Host()
    host.stable_group()
    (group,) = host.run(host.machine.decide_list(ListGroupsRequest()))
    assert (group.protocol_type, group.group_state, group.group_type) == (
        "consumer",
        "Stable",
        "classic",
    )
