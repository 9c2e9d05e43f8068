"""DescribeProducers (API 61): show the producers active on partitions.

Meant for finding hanging transactions (KIP-664). Sent to the partitions' leaders. A transaction
start of -1 means that none is open.
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, int64, string


class TopicRequest(Struct):
    """The partitions of a topic to describe the producers of."""

    name: str = string()
    partition_indexes: list[int] = array("int32")


class DescribeProducersRequest(Message, versions=(0, 0), flexible_since=0):
    """Show the producers of these partitions."""

    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(Struct):
    """The partition's state of one producer."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Struct):
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Struct):
    """The producers of one topic."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Message, versions=(0, 0), flexible_since=0):
    """The producers that were found."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
