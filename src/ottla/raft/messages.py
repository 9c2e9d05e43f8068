"""Requests and responses of the quorum's APIs: built from values, and read back.

All are about the partition of the metadata log. A request about another partition, or about
none, has no `partition_of`.
"""

from typing import Any, Final

from ottla.model.error_code import ErrorCode
from ottla.raft.actions import Node
from ottla.raft.settings import Identity
from ottla.raft.snapshots import SnapshotId
from ottla.raft.voters import Endpoint, ReplicaKey
from ottla.wire.messages import (
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    vote,
)
from ottla.wire.schema import Message, Struct

NO_ID: Final = -1
NO_OFFSET: Final = -1
PARTITION: Final = 0


def partition_of(message: Message, identity: Identity) -> Any | None:
    """Return the metadata partition's part of a request or response; None if it has none."""
    topics: list[Any] = getattr(message, "responses", None) or getattr(message, "topics", [])
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    (topic,), (partition,) = topics, topics[0].partitions
    is_ours = identity.topic_name in _names(topic) or (
        getattr(topic, "topic_id", b"") == identity.topic_id
    )
    numbers = (getattr(partition, name, None) for name in _NUMBERS)
    is_first = PARTITION in [number for number in numbers if number is not None]
    return partition if is_ours and is_first else None


_NUMBERS: Final = ("partition_index", "partition", "index")


def _names(topic: Any) -> list[str]:
    return [getattr(topic, name, "") for name in ("topic_name", "name", "topic")]


# -- requests --------------------------------------------------------------------------------------


def vote_request(
    identity: Identity,
    voter: ReplicaKey,
    *,
    epoch: int,
    log_end: tuple[int, int],
    is_pre_vote: bool,
) -> vote.VoteRequest:
    """Ask a voter for its vote."""
    partition = vote.VoteRequestPartition(
        partition_index=PARTITION,
        replica_epoch=epoch,
        replica_id=identity.key.id,
        replica_directory_id=identity.key.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=log_end[0],
        last_offset=log_end[1],
        pre_vote=is_pre_vote,
    )
    topic = vote.VoteRequestTopic(topic_name=identity.topic_name, partitions=[partition])
    return vote.VoteRequest(cluster_id=identity.cluster_id, voter_id=voter.id, topics=[topic])


def begin_request(
    identity: Identity, voter: ReplicaKey, epoch: int
) -> begin_quorum_epoch.BeginQuorumEpochRequest:
    """Announce this leader to a voter."""
    partition = begin_quorum_epoch.BeginQuorumEpochRequestPartition(
        partition_index=PARTITION,
        voter_directory_id=voter.directory_id,
        leader_id=identity.key.id,
        leader_epoch=epoch,
    )
    topic = begin_quorum_epoch.BeginQuorumEpochRequestTopic(
        topic_name=identity.topic_name, partitions=[partition]
    )
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id=identity.cluster_id,
        voter_id=voter.id,
        topics=[topic],
        leader_endpoints=[
            begin_quorum_epoch.LeaderEndpoint(name=one.name, host=one.host, port=one.port)
            for one in identity.endpoints
        ],
    )


def end_request(
    identity: Identity, epoch: int, successors: tuple[ReplicaKey, ...]
) -> end_quorum_epoch.EndQuorumEpochRequest:
    """Announce the resignation of this leader."""
    partition = end_quorum_epoch.EndQuorumEpochRequestPartition(
        partition_index=PARTITION,
        leader_id=identity.key.id,
        leader_epoch=epoch,
        preferred_successors=[key.id for key in successors],
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(
                candidate_id=key.id, candidate_directory_id=key.directory_id
            )
            for key in successors
        ],
    )
    topic = end_quorum_epoch.EndQuorumEpochRequestTopic(
        topic_name=identity.topic_name, partitions=[partition]
    )
    return end_quorum_epoch.EndQuorumEpochRequest(
        cluster_id=identity.cluster_id,
        topics=[topic],
        leader_endpoints=[
            end_quorum_epoch.LeaderEndpoint(name=one.name, host=one.host, port=one.port)
            for one in identity.endpoints
        ],
    )


def fetch_request(
    identity: Identity,
    *,
    epoch: int,
    log_end: tuple[int, int],
    log_start_offset: int,
    high_watermark: int,
    wait_ms: int,
    bytes_max: int,
) -> fetch.FetchRequest:
    """Ask for the records from the end of this log on."""
    partition = fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=epoch,
        fetch_offset=log_end[1],
        last_fetched_epoch=log_end[0],
        log_start_offset=log_start_offset,
        partition_max_bytes=bytes_max,
        replica_directory_id=identity.key.directory_id,
        high_watermark=high_watermark,
    )
    topic = fetch.FetchTopic(topic_id=identity.topic_id, partitions=[partition])
    return fetch.FetchRequest(
        cluster_id=identity.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=identity.key.id),
        max_wait_ms=wait_ms,
        min_bytes=0,
        max_bytes=bytes_max,
        topics=[topic],
    )


def fetch_snapshot_request(
    identity: Identity, epoch: int, snapshot_id: SnapshotId, position: int, bytes_max: int
) -> fetch_snapshot.FetchSnapshotRequest:
    """Ask for a piece of a snapshot."""
    partition = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=epoch,
        snapshot_id=fetch_snapshot.SnapshotId(
            end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch
        ),
        position=position,
        replica_directory_id=identity.key.directory_id,
    )
    topic = fetch_snapshot.FetchSnapshotRequestTopicSnapshot(
        name=identity.topic_name, partitions=[partition]
    )
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=identity.cluster_id,
        replica_id=identity.key.id,
        max_bytes=bytes_max,
        topics=[topic],
    )


# -- responses -------------------------------------------------------------------------------------


def vote_response(
    identity: Identity,
    *,
    code: ErrorCode,
    epoch: int,
    leader: Node | None,
    leader_id: int | None,
    is_granted: bool,
) -> vote.VoteResponse:
    """Answer a vote request."""
    partition = vote.VoteResponsePartition(
        partition_index=PARTITION,
        error_code=code,
        leader_id=_id(leader_id),
        leader_epoch=epoch,
        vote_granted=is_granted,
    )
    topic = vote.VoteResponseTopic(topic_name=identity.topic_name, partitions=[partition])
    return vote.VoteResponse(topics=[topic], node_endpoints=_endpoints(vote.NodeEndpoint, leader))


def begin_response(
    identity: Identity, *, code: ErrorCode, epoch: int, leader: Node | None, leader_id: int | None
) -> begin_quorum_epoch.BeginQuorumEpochResponse:
    """Answer BeginQuorumEpoch."""
    partition = begin_quorum_epoch.BeginQuorumEpochResponsePartition(
        partition_index=PARTITION, error_code=code, leader_id=_id(leader_id), leader_epoch=epoch
    )
    topic = begin_quorum_epoch.BeginQuorumEpochResponseTopic(
        topic_name=identity.topic_name, partitions=[partition]
    )
    return begin_quorum_epoch.BeginQuorumEpochResponse(
        topics=[topic], node_endpoints=_endpoints(begin_quorum_epoch.NodeEndpoint, leader)
    )


def end_response(
    identity: Identity, *, code: ErrorCode, epoch: int, leader: Node | None, leader_id: int | None
) -> end_quorum_epoch.EndQuorumEpochResponse:
    """Answer EndQuorumEpoch."""
    partition = end_quorum_epoch.EndQuorumEpochResponsePartition(
        partition_index=PARTITION, error_code=code, leader_id=_id(leader_id), leader_epoch=epoch
    )
    topic = end_quorum_epoch.EndQuorumEpochResponseTopic(
        topic_name=identity.topic_name, partitions=[partition]
    )
    return end_quorum_epoch.EndQuorumEpochResponse(
        topics=[topic], node_endpoints=_endpoints(end_quorum_epoch.NodeEndpoint, leader)
    )


def fetch_response(
    identity: Identity,
    partition: fetch.PartitionData,
    *,
    epoch: int,
    leader: Node | None,
    leader_id: int | None,
) -> fetch.FetchResponse:
    """Complete the answer to a Fetch with the leader."""
    partition.current_leader = fetch.LeaderIdAndEpoch(leader_id=_id(leader_id), leader_epoch=epoch)
    topic = fetch.FetchableTopicResponse(topic_id=identity.topic_id, partitions=[partition])
    return fetch.FetchResponse(
        responses=[topic], node_endpoints=_endpoints(fetch.NodeEndpoint, leader)
    )


def fetch_snapshot_response(
    identity: Identity,
    partition: fetch_snapshot.FetchSnapshotResponsePartitionSnapshot,
    *,
    epoch: int,
    leader: Node | None,
    leader_id: int | None,
) -> fetch_snapshot.FetchSnapshotResponse:
    """Complete the answer to a FetchSnapshot with the leader."""
    partition.current_leader = fetch_snapshot.LeaderIdAndEpoch(
        leader_id=_id(leader_id), leader_epoch=epoch
    )
    topic = fetch_snapshot.FetchSnapshotResponseTopicSnapshot(
        name=identity.topic_name, partitions=[partition]
    )
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[topic], node_endpoints=_endpoints(fetch_snapshot.NodeEndpoint, leader)
    )


def fit_response(response: Struct, version: int) -> None:
    """Reset the fields that a version does not have, so that the response can be written in it."""
    for field in type(response).fields:
        value = getattr(response, field.name)
        if not field.is_present(version):
            default = field.default
            setattr(response, field.name, [] if isinstance(default, list) else default)
            continue
        for struct in value if isinstance(value, list) else [value]:
            if isinstance(struct, Struct):
                fit_response(struct, version)


def leader_of(message: Message, partition: Any) -> tuple[int, int | None, Node | None]:
    """Return the epoch, the leader and its address that a response names; epoch -1 if none."""
    if hasattr(partition, "current_leader"):
        partition = partition.current_leader
        if partition is None:
            return NO_ID, None, None
    leader_id: int | None = partition.leader_id if partition.leader_id >= 0 else None
    endpoints: list[Any] = getattr(message, "node_endpoints", [])
    found = (Node(one.node_id, one.host, one.port) for one in endpoints)
    leader = next((one for one in found if leader_id is not None and one[0] == leader_id), None)
    return partition.leader_epoch, leader_id, leader


def _id(replica_id: int | None) -> int:
    return NO_ID if replica_id is None else replica_id


def _endpoints(cls: type[Struct], leader: Node | None) -> list[Any]:
    if leader is None:
        return []
    return [cls(node_id=leader.node_id, host=leader.host, port=leader.port)]


def node_of(replica_id: int, endpoints: tuple[Endpoint, ...], listener: str) -> Node | None:
    """Return the address on this listener, or else the first address."""
    named = [one for one in endpoints if one.name == listener] or endpoints[:1]
    return Node(replica_id, named[0].host, named[0].port) if named else None
