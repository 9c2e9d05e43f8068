"""DescribeShareGroupOffsets (API 90): show how far share groups have got.

Sent to the group coordinator (KIP-932). Null topics ask for all of a group's. Version 1 adds
the lag (KIP-1226).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid


class DescribeShareGroupOffsetsRequestTopic(Struct):
    """The partitions of one topic to show."""

    topic_name: str = string()
    partitions: list[int] = array("int32")


class DescribeShareGroupOffsetsRequestGroup(Struct):
    """A share group, and which of its partitions to show."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable_since=0
    )


class DescribeShareGroupOffsetsRequest(Message, versions=(0, 1), flexible_since=0):
    """Show the offsets of these share groups."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup
    )


class DescribeShareGroupOffsetsResponsePartition(Struct):
    """Where a group's reading of one partition starts, and its lag."""

    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64(default=-1, since=1, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    """A group's offsets in one topic."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    """The offsets of one share group."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(
        DescribeShareGroupOffsetsResponseTopic
    )
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)


class DescribeShareGroupOffsetsResponse(Message, versions=(0, 1), flexible_since=0):
    """The offsets that were asked for."""

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup
    )
