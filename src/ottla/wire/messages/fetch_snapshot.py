"""FetchSnapshot (API 59): download a snapshot of the metadata log.

Sent by a replica that lags behind the start of the leader's log, piece by piece (KIP-630).
Version 1 adds directory ids and the leader's address (KIP-853).
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
    uint16,
    uuid,
)


class SnapshotId(Struct):
    """The snapshot to download, by the point in the log where it ends."""

    end_offset: int = int64()
    epoch: int = int32()


class FetchSnapshotRequestPartitionSnapshot(Struct):
    """A snapshot of one partition, and where to read on in it."""

    partition: int = int32()
    current_leader_epoch: int = int32()
    snapshot_id: SnapshotId = struct(SnapshotId)
    position: int = int64()
    replica_directory_id: bytes = uuid(since=1, ignorable=True, tag=0)


class FetchSnapshotRequestTopicSnapshot(Struct):
    """The snapshots wanted of one topic."""

    name: str = string()
    partitions: list[FetchSnapshotRequestPartitionSnapshot] = array(
        FetchSnapshotRequestPartitionSnapshot
    )


class FetchSnapshotRequest(Message, versions=(0, 1), flexible_since=0):
    """Send the next piece of these snapshots."""

    cluster_id: str | None = string(default=None, nullable_since=0, tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=0x7FFFFFFF)
    topics: list[FetchSnapshotRequestTopicSnapshot] = array(FetchSnapshotRequestTopicSnapshot)


class LeaderIdAndEpoch(Struct):
    """The leader that the replica should download from."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class FetchSnapshotResponsePartitionSnapshot(Struct):
    """A piece of one partition's snapshot."""

    index: int = int32()
    error_code: int = int16()
    snapshot_id: SnapshotId = struct(SnapshotId)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, tag=0)
    size: int = int64()
    position: int = int64()
    unaligned_records: Batches = record_batches()


class FetchSnapshotResponseTopicSnapshot(Struct):
    """The pieces of one topic's snapshots."""

    name: str = string()
    partitions: list[FetchSnapshotResponsePartitionSnapshot] = array(
        FetchSnapshotResponsePartitionSnapshot
    )


class NodeEndpoint(Struct):
    """The address of a leader that has the snapshot."""

    node_id: int = int32(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


class FetchSnapshotResponse(Message, versions=(0, 1), flexible_since=0):
    """The pieces that were read."""

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    topics: list[FetchSnapshotResponseTopicSnapshot] = array(FetchSnapshotResponseTopicSnapshot)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=1, tag=0)
