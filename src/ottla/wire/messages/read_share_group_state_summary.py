"""ReadShareGroupStateSummary (API 87): read how far share partitions have got.

Sent by the group coordinator to the share coordinator (KIP-932). Version 1 adds the count of
finished deliveries (KIP-1226).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid


class PartitionData(Struct):
    """A share partition to read the progress of."""

    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateSummaryData(Struct):
    """The share partitions of a topic to read the progress of."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateSummaryRequest(Message, versions=(0, 1), flexible_since=0):
    """Ask how far these share partitions have got."""

    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)


class PartitionResult(Struct):
    """The progress of one share partition."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, since=1, ignorable=True)


class ReadStateSummaryResult(Struct):
    """The progress of one topic's share partitions."""

    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateSummaryResponse(Message, versions=(0, 1), flexible_since=0):
    """The progress that was asked for."""

    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)
