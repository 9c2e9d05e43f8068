"""Produce (API 0): append record batches to partitions.

Since version 13 topics are named by id (KIP-516). acks is -1 for all in-sync replicas, 1 for
the leader alone, 0 for no response at all. Rejected records are named since version 8 (KIP-467),
the new leader since 10 (KIP-951).
"""

from ottla.wire.schema import (
    Batches,
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    record_batches,
    string,
    struct,
    uuid,
)


class PartitionProduceData(Struct):
    """The batches for one partition."""

    index: int = int32()
    records: Batches = record_batches(nullable_since=0)


class TopicProduceData(Struct):
    """The batches for one topic."""

    name: str = string(until=13, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, versions=(0, 13), flexible_since=9):
    """Append these batches."""

    transactional_id: str | None = string(default=None, since=3, nullable_since=3)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """The index of a record that invalidated its batch, and the reason."""

    batch_index: int = int32(since=8)
    batch_index_error_message: str | None = string(default=None, since=8, nullable_since=8)


class LeaderIdAndEpoch(Struct):
    """The leader that the producer should have sent to."""

    leader_id: int = int32(default=-1, since=10)
    leader_epoch: int = int32(default=-1, since=10)


class PartitionProduceResponse(Struct):
    """Where one partition's batches landed, or why they did not."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1, since=2, ignorable=True)
    log_start_offset: int = int64(default=-1, since=5, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, since=8, ignorable=True
    )
    error_message: str | None = string(default=None, since=8, nullable_since=8, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, since=10, tag=0)


class TopicProduceResponse(Struct):
    """The results of a topic's partitions."""

    name: str = string(until=13, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    """The address of the leader to produce to."""

    node_id: int = int32(since=10)
    host: str = string(since=10)
    port: int = int32(since=10)
    rack: str | None = string(default=None, since=10, nullable_since=10)


class ProduceResponse(Message, versions=(0, 13), flexible_since=9):
    """The outcome of the append, partition by partition."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(since=1, ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)
