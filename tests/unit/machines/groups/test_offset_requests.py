"""OffsetCommit, OffsetFetch, OffsetDelete."""

import pytest

from ottla.machines.groups.classic_group import GroupState
from ottla.machines.groups.group_records import CommittedOffset
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.unit.machines.groups.host import GROUP, SESSION_MS, Host

TOPIC_ID = bytes(range(16))


def delete(host: Host, topic: str, *partitions: int, group: str = GROUP) -> OffsetDeleteResponse:
    named = [OffsetDeleteRequestPartition(partition_index=p) for p in partitions]
    request = OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=named)]
    )
    return host.run(host.machine.decide_offset_delete(request))


def test_committed_offsets_are_found_again() -> None:
    host = Host()
    leader, _ = host.stable_group()
    assert host.fetch() == -1
    assert host.commit(42, leader, 1) == ErrorCode.NONE
    assert host.fetch() == 42
    assert host.fetch(topic="other") == -1
    host.commit(43, leader, 1)
    host.reload()
    assert host.fetch() == 43


def test_a_commit_keeps_epoch_metadata_and_topic_id() -> None:
    host = Host()
    partition = OffsetCommitRequestPartition(
        partition_index=7, committed_offset=5, committed_leader_epoch=3, committed_metadata="note"
    )
    topic = OffsetCommitRequestTopic(name="events", topic_id=TOPIC_ID, partitions=[partition])
    request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
    answer = host.run(host.machine.decide_commit(request, 10, host.now))
    assert (answer.topics[0].name, answer.topics[0].topic_id) == ("events", TOPIC_ID)
    host.reload()
    expected = CommittedOffset(5, 3, "note", host.wall_ms, -1, TOPIC_ID)
    assert host.machine.committed(GROUP, "events", 7) == expected

    everything = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    found = host.run(host.machine.decide_fetch(everything)).topics
    assert [topic.name for topic in found] == ["events"]
    (position,) = found[0].partitions
    assert (position.partition_index, position.committed_offset) == (7, 5)
    assert (position.committed_leader_epoch, position.metadata) == (3, "note")


def test_an_offset_of_a_topic_that_was_deleted_and_made_anew_is_not_found() -> None:
    host = Host()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(name="events", topic_id=TOPIC_ID, partitions=[partition])
    host.run(
        host.machine.decide_commit(
            OffsetCommitRequest(group_id=GROUP, topics=[topic]), 10, host.now
        )
    )

    def fetched(topic_id: bytes) -> int:
        asked = OffsetFetchRequestTopics(name="events", topic_id=topic_id, partition_indexes=[0])
        request = OffsetFetchRequestGroup(group_id=GROUP, topics=[asked])
        answer = host.run(host.machine.decide_fetch(request)).topics[0]
        assert answer.topic_id == topic_id
        return answer.partitions[0].committed_offset

    assert fetched(TOPIC_ID) == 5
    assert fetched(bytes(16)) == 5
    assert fetched(TOPIC_ID[::-1]) == -1


@pytest.mark.parametrize(
    ("generation", "is_member", "code"),
    [
        (1, True, ErrorCode.NONE),
        (0, True, ErrorCode.ILLEGAL_GENERATION),
        (2, True, ErrorCode.ILLEGAL_GENERATION),
        (-1, True, ErrorCode.ILLEGAL_GENERATION),
        (1, False, ErrorCode.UNKNOWN_MEMBER_ID),
        (-1, False, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_in_a_group_with_members_only_its_generation_commits(
    generation: int, is_member: bool, code: ErrorCode
) -> None:
    host = Host()
    leader, _ = host.stable_group()
    assert host.commit(1, leader if is_member else "", generation) == code
    assert host.fetch() == (1 if code == ErrorCode.NONE else -1)


def test_members_commit_their_old_partitions_before_they_join_again() -> None:
    host = Host()
    leader, follower = host.stable_group()
    host.join(leader)
    assert host.group.state is GroupState.PREPARING_REBALANCE
    assert host.commit(5, follower, 1) == ErrorCode.NONE


def test_no_member_commits_while_the_assignment_is_missing() -> None:
    host = Host()
    leader, follower = host.stable_group()
    host.join(leader)
    host.join(follower)
    assert host.group.state is GroupState.COMPLETING_REBALANCE
    assert host.commit(5, follower, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert host.commit(5, follower, 1) == ErrorCode.ILLEGAL_GENERATION


def test_the_former_life_of_a_static_member_commits_nothing() -> None:
    host = Host()
    old = host.join(instance="one")
    host.pass_ms(3_000)
    member_id = host.joined(old).member_id
    host.sync(member_id, 1, {}, instance="one")
    host.join(instance="one")
    code = host.commit(5, member_id, 1, group_instance_id="one")
    assert code == ErrorCode.FENCED_INSTANCE_ID


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    host = Host()
    leader, follower = host.stable_group()
    host.pass_ms(SESSION_MS - 1)
    host.commit(1, leader, 1)
    host.pass_ms(1)
    assert list(host.group.members) == [leader]
    assert follower not in host.group.members


def test_without_members_any_client_may_commit() -> None:
    host = Host()
    assert host.commit(7) == ErrorCode.NONE
    assert host.group.state is GroupState.EMPTY
    assert host.commit(8, generation=-1) == ErrorCode.NONE
    host.leave(*host.stable_group())
    assert host.commit(9) == ErrorCode.NONE
    assert host.fetch() == 9


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_there_are_no_members_without_a_group(version: int, code: ErrorCode) -> None:
    host = Host()
    assert host.commit(7, "a", 1, version=version) == code
    assert host.machine.group(GROUP) is None


def test_metadata_may_be_null_but_not_too_large() -> None:
    host = Host()
    assert host.commit(1, metadata="x" * 4_096) == ErrorCode.NONE
    assert host.commit(2, metadata="x" * 4_097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert host.fetch() == 1
    assert host.commit(3, metadata=None) == ErrorCode.NONE
    committed = host.machine.committed(GROUP, "events", 0)
    assert committed is not None
    assert committed.metadata == ""


def test_a_partition_that_is_refused_does_not_hold_up_the_others() -> None:
    host = Host()
    partitions = [
        OffsetCommitRequestPartition(partition_index=n, committed_offset=n, committed_metadata=m)
        for n, m in enumerate(["", "x" * 5_000, ""])
    ]
    topic = OffsetCommitRequestTopic(name="events", partitions=partitions)
    request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
    answer = host.run(host.machine.decide_commit(request, 9, host.now))
    codes = [p.error_code for p in answer.topics[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert len(host.log) == 2


@pytest.mark.parametrize("retention_time_ms", [1_000, 2**63 - 1])
def test_clients_of_old_say_when_their_offsets_expire(retention_time_ms: int) -> None:
    host = Host()
    assert host.commit(1, version=4, retention_time_ms=retention_time_ms) == ErrorCode.NONE
    before = host.machine.committed(GROUP, "events", 0)
    assert before is not None
    assert before.expire_timestamp_ms == min(host.wall_ms + retention_time_ms, 2**63 - 1)
    host.reload()
    assert host.machine.committed(GROUP, "events", 0) == before


def test_a_machine_starts_no_more_groups_by_commits_than_it_may() -> None:
    host = Host(groups_max=1)
    assert host.commit(1) == ErrorCode.NONE
    assert host.commit(1, group="another") == ErrorCode.POLICY_VIOLATION
    assert host.commit(2) == ErrorCode.NONE


def test_offsets_are_forgotten_on_demand() -> None:
    host = Host()
    host.commit(1)
    host.commit(2, topic="other")
    answer = delete(host, "events", 0, 0, 5)
    codes = [p.error_code for p in answer.topics[0].partitions]
    assert codes == [ErrorCode.NONE] * 3
    assert len(host.log) == 3
    assert (host.fetch(), host.fetch(topic="other")) == (-1, 2)
    delete(host, "other", 0)
    assert host.machine.group(GROUP) is None


def test_offsets_of_topics_in_use_are_kept() -> None:
    host = Host()
    leader, _ = host.stable_group()
    host.commit(1, leader, 1)
    host.commit(2, leader, 1, topic="other")
    answer = delete(host, "events", 0)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    answer = delete(host, "other", 0)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert (host.fetch(), host.fetch(topic="other")) == (1, -1)


def test_no_offset_is_deleted_of_groups_with_another_protocol_type() -> None:
    host = Host()
    assert delete(host, "events", 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(host, "events", 0, group="").error_code == ErrorCode.INVALID_GROUP_ID
    host.stable_group(protocol_type="connect")
    assert delete(host, "events", 0).error_code == ErrorCode.NON_EMPTY_GROUP
