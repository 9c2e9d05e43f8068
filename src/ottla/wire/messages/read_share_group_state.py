"""ReadShareGroupState (API 84): load the stored state of share partitions.

Sent by a share partition's leader to the share coordinator (KIP-932). Delivery states: 0
available, 2 acknowledged, 4 archived.
"""

from ottla.wire.schema import Message, Struct, array, int8, int16, int32, int64, string, uuid


class PartitionData(Struct):
    """A share partition to read the state of."""

    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateData(Struct):
    """The share partitions of a topic to read the state of."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateRequest(Message, versions=(0, 0), flexible_since=0):
    """Load the state of these share partitions."""

    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


class StateBatch(Struct):
    """The stored delivery state of a run of records."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionResult(Struct):
    """The state of one share partition, or why it was not loaded."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    state_epoch: int = int32()
    start_offset: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ReadStateResult(Struct):
    """The states of one topic's share partitions."""

    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateResponse(Message, versions=(0, 0), flexible_since=0):
    """The states that were loaded."""

    results: list[ReadStateResult] = array(ReadStateResult)
