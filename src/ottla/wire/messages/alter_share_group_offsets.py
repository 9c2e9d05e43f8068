"""AlterShareGroupOffsets (API 91): reset where a share group reads.

Sent to the group coordinator (KIP-932). The group must be empty.
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid


class AlterShareGroupOffsetsRequestPartition(Struct):
    """Where to start in one partition."""

    partition_index: int = int32()
    start_offset: int = int64()


class AlterShareGroupOffsetsRequestTopic(Struct):
    """Where to start in one topic's partitions."""

    topic_name: str = string()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(
        AlterShareGroupOffsetsRequestPartition
    )


class AlterShareGroupOffsetsRequest(Message, versions=(0, 0), flexible_since=0):
    """Let the share group start from these offsets."""

    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


class AlterShareGroupOffsetsResponsePartition(Struct):
    """Whether one partition was reset."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)


class AlterShareGroupOffsetsResponseTopic(Struct):
    """Whether one topic's partitions were reset."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(
        AlterShareGroupOffsetsResponsePartition
    )


class AlterShareGroupOffsetsResponse(Message, versions=(0, 0), flexible_since=0):
    """The outcome of the reset."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(
        AlterShareGroupOffsetsResponseTopic
    )
