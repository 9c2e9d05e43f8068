"""DeleteShareGroupState (API 86): delete the stored state of share partitions.

Sent by the group coordinator to the share coordinator (KIP-932).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, string, uuid


class PartitionData(Struct):
    """A share partition with state to delete."""

    partition: int = int32()


class DeleteStateData(Struct):
    """The share partitions of a topic with state to delete."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DeleteShareGroupStateRequest(Message, versions=(0, 0), flexible_since=0):
    """Delete the state of these share partitions."""

    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


class PartitionResult(Struct):
    """Whether one share partition's state is gone."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)


class DeleteStateResult(Struct):
    """Whether the states of one topic's share partitions are gone."""

    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class DeleteShareGroupStateResponse(Message, versions=(0, 0), flexible_since=0):
    """The outcome of the deletion."""

    results: list[DeleteStateResult] = array(DeleteStateResult)
