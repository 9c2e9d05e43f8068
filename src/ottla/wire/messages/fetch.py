"""Fetch (API 1): read record batches from partitions.

Consumers, followers and the Raft replicas all use it. Incremental sessions exist since version
7 (KIP-227), reads from a nearby replica since 11 (KIP-392), topic ids since 13 (KIP-516). A
replica id of -1 means a consumer.
"""

from ottla.wire.schema import (
    Batches,
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    record_batches,
    string,
    struct,
    uuid,
)


class ReplicaState(Struct):
    """Which follower is fetching, and in which of its incarnations."""

    replica_id: int = int32(default=-1, since=15)
    replica_epoch: int = int64(default=-1, since=15)


class FetchPartition(Struct):
    """Where to read in one partition, and how much."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1, since=9, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(default=-1, since=12)
    log_start_offset: int = int64(default=-1, since=5, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid(since=17, ignorable=True, tag=0)
    high_watermark: int = int64(default=9223372036854775807, since=18, ignorable=True, tag=1)


class FetchTopic(Struct):
    """The partitions of one topic to read."""

    topic: str = string(until=13, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    """Partitions of one topic to drop from the fetch session."""

    topic: str = string(since=7, until=13, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[int] = array("int32", since=7)


class FetchRequest(Message, versions=(0, 18), flexible_since=12):
    """Read from these partitions, waiting a while if there is too little."""

    cluster_id: str | None = string(
        default=None, since=12, nullable_since=12, ignorable=True, tag=0
    )
    replica_id: int = int32(default=-1, until=15)
    replica_state: ReplicaState | None = struct(ReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF, since=3, ignorable=True)
    isolation_level: int = int8(since=4, ignorable=True)
    session_id: int = int32(since=7, ignorable=True)
    session_epoch: int = int32(default=-1, since=7, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11, ignorable=True)


class EpochEndOffset(Struct):
    """The last point at which the follower's log may agree with the leader's."""

    epoch: int = int32(default=-1, since=12)
    end_offset: int = int64(default=-1, since=12)


class LeaderIdAndEpoch(Struct):
    """The leader that should have been asked instead."""

    leader_id: int = int32(default=-1, since=12)
    leader_epoch: int = int32(default=-1, since=12)


class SnapshotId(Struct):
    """The snapshot that a replica too far behind must load first."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    """An aborted transaction: a read_committed consumer skips its records."""

    producer_id: int = int64(since=4)
    first_offset: int = int64(since=4)


class PartitionData(Struct):
    """The records of a partition, or the error."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1, since=4, ignorable=True)
    log_start_offset: int = int64(default=-1, since=5, ignorable=True)
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId | None = struct(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, since=4, nullable_since=4, ignorable=True
    )
    preferred_read_replica: int = int32(default=-1, since=11)
    records: Batches = record_batches(nullable_since=0)


class FetchableTopicResponse(Struct):
    """The fetched partitions of a topic."""

    topic: str = string(until=13, ignorable=True)
    topic_id: bytes = uuid(since=13, ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    """The address of the leader to fetch from."""

    node_id: int = int32(since=16)
    host: str = string(since=16)
    port: int = int32(since=16)
    rack: str | None = string(default=None, since=16, nullable_since=16)


class FetchResponse(Message, versions=(0, 18), flexible_since=12):
    """The batches read, and the session they belong to."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16(since=7, ignorable=True)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0)
