"""WriteShareGroupState (API 85): store the state of share partitions.

Sent by a share partition's leader to the share coordinator (KIP-932). Delivery states: 0
available, 2 acknowledged, 4 archived. Version 1 adds the count of finished deliveries
(KIP-1226).
"""

from ottla.wire.schema import Message, Struct, array, int8, int16, int32, int64, string, uuid


class StateBatch(Struct):
    """The delivery state to store for a run of records."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionData(Struct):
    """The changes to one share partition's state."""

    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, since=1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch)


class WriteStateData(Struct):
    """The changes to the states of one topic's share partitions."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class WriteShareGroupStateRequest(Message, versions=(0, 1), flexible_since=0):
    """Store these states."""

    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


class PartitionResult(Struct):
    """Whether one share partition's state was stored."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)


class WriteStateResult(Struct):
    """Whether the states of one topic's share partitions were stored."""

    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class WriteShareGroupStateResponse(Message, versions=(0, 1), flexible_since=0):
    """The outcome of the storing."""

    results: list[WriteStateResult] = array(WriteStateResult)
