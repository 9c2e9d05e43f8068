"""OffsetFetch (API 9): read groups' committed offsets.

Null topics ask for everything the group has committed (since version 2). Several groups can be
asked for at once since 8, and topics are named by id since 10. An offset of -1 means that
nothing was committed.
"""

from ottla.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string, uuid


class OffsetFetchRequestTopic(Struct):
    """The partitions of one topic to look up, before version 8."""

    name: str = string(until=8)
    partition_indexes: list[int] = array("int32", until=8)


class OffsetFetchRequestTopics(Struct):
    """The partitions of one topic to look up for one group."""

    name: str = string(since=8, until=10, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partition_indexes: list[int] = array("int32", since=8)


class OffsetFetchRequestGroup(Struct):
    """A group, and which of its offsets are wanted."""

    group_id: str = string(since=8)
    member_id: str | None = string(default=None, since=9, nullable_since=9, ignorable=True)
    member_epoch: int = int32(default=-1, since=9, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, since=8, nullable_since=8
    )


class OffsetFetchRequest(Message, versions=(0, 10), flexible_since=6):
    """Look up the positions that these groups committed."""

    group_id: str = string(until=8)
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, until=8, nullable_since=2
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


class OffsetFetchResponsePartition(Struct):
    """One partition's committed position, before version 8."""

    partition_index: int = int32(until=8)
    committed_offset: int = int64(until=8)
    committed_leader_epoch: int = int32(default=-1, since=5, until=8, ignorable=True)
    metadata: str | None = string(until=8, nullable_since=0)
    error_code: int = int16(until=8)


class OffsetFetchResponseTopic(Struct):
    """One topic's committed positions, before version 8."""

    name: str = string(until=8)
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, until=8)


class OffsetFetchResponsePartitions(Struct):
    """The position a group committed for one partition."""

    partition_index: int = int32(since=8)
    committed_offset: int = int64(since=8)
    committed_leader_epoch: int = int32(default=-1, since=8, ignorable=True)
    metadata: str | None = string(since=8, nullable_since=8)
    error_code: int = int16(since=8)


class OffsetFetchResponseTopics(Struct):
    """The positions a group committed for one topic."""

    name: str = string(since=8, until=10, ignorable=True)
    topic_id: bytes = uuid(since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, since=8)


class OffsetFetchResponseGroup(Struct):
    """All that was asked about one group."""

    group_id: str = string(since=8)
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, since=8)
    error_code: int = int16(since=8)


class OffsetFetchResponse(Message, versions=(0, 10), flexible_since=6):
    """The committed positions that were looked up."""

    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=8)
    error_code: int = int16(since=2, until=8, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
