"""OffsetDelete (API 47): delete a group's committed offsets.

Sent to the group's coordinator (KIP-496). A topic that the group is still subscribed to is
refused with GROUP_SUBSCRIBED_TO_TOPIC.
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, string


class OffsetDeleteRequestPartition(Struct):
    """A partition with a committed offset to delete."""

    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    """The positions to forget in one topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Message, versions=(0, 0)):
    """Forget these positions of the group."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    """Whether one partition's position was forgotten."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Struct):
    """Whether one topic's positions were forgotten."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Message, versions=(0, 0)):
    """The outcome of the deletion."""

    error_code: int = int16()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
