"""ListOffsets (API 2): find offsets by timestamp, or the ends of a log.

Special timestamps: -1 latest, -2 earliest, -3 the greatest timestamp (since version 7), -4 the
local start (8), -5 the last tiered (9), -6 the earliest not yet uploaded (11). Version 0 alone
could return several offsets.
"""

from ottla.wire.schema import Message, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    """The point in time to look up in one partition."""

    partition_index: int = int32()
    current_leader_epoch: int = int32(default=-1, since=4, ignorable=True)
    timestamp: int = int64()
    max_num_offsets: int = int32(default=1, until=1)


class ListOffsetsTopic(Struct):
    """The lookups for one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Message, versions=(0, 11), flexible_since=6):
    """Look up these offsets."""

    replica_id: int = int32()
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    """The offset found in one partition, or why there is none."""

    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = array("int64", until=1)
    timestamp: int = int64(default=-1, since=1)
    offset: int = int64(default=-1, since=1)
    leader_epoch: int = int32(default=-1, since=4)


class ListOffsetsTopicResponse(Struct):
    """The offsets found in one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Message, versions=(0, 11), flexible_since=6):
    """The offsets that were looked up."""

    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
