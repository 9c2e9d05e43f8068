"""OffsetCommit (API 8): store a group's committed offsets.

Sent to the group's coordinator. Since version 9 it also serves the new consumer protocol
(KIP-848), with a member epoch in place of the generation; since 10 topics are named by id.
Consumers outside a group send -1 as the generation.
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid


class OffsetCommitRequestPartition(Struct):
    """The position to remember for one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1, since=6, ignorable=True)
    commit_timestamp: int = int64(default=-1, since=1, until=2)
    committed_metadata: str | None = string(nullable_since=0)


class OffsetCommitRequestTopic(Struct):
    """The positions to remember for one topic."""

    name: str = string(until=10, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Message, versions=(0, 10), flexible_since=8):
    """Remember these positions for the group."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1, since=1, ignorable=True)
    member_id: str = string(since=1, ignorable=True)
    group_instance_id: str | None = string(default=None, since=7, nullable_since=7)
    retention_time_ms: int = int64(default=-1, since=2, until=5, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    """Whether one partition's position was stored."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    """Whether one topic's positions were stored."""

    name: str = string(until=10, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Message, versions=(0, 10), flexible_since=8):
    """The outcome of the commit."""

    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
