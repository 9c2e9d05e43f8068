"""EndQuorumEpoch (API 54): announce that a Raft leader steps down.

Sent by the resigning leader to the voters, with the successors it would prefer, so that they
need not wait for a timeout (KIP-595). Version 1 names the successors with their directory ids
(KIP-853).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, string, uint16, uuid


class ReplicaInfo(Struct):
    """A replica that could take over."""

    candidate_id: int = int32(since=1)
    candidate_directory_id: bytes = uuid(since=1)


class EndQuorumEpochRequestPartition(Struct):
    """The leader that resigns from a partition, and its preferred successors."""

    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_successors: list[int] = array("int32", until=1, ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, since=1, ignorable=True)


class EndQuorumEpochRequestTopic(Struct):
    """The resignations in one topic."""

    topic_name: str = string()
    partitions: list[EndQuorumEpochRequestPartition] = array(EndQuorumEpochRequestPartition)


class LeaderEndpoint(Struct):
    """An address of the resigning leader, on one listener."""

    name: str = string(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


class EndQuorumEpochRequest(Message, versions=(0, 1), flexible_since=1):
    """Elect a new leader: the sender resigns."""

    cluster_id: str | None = string(default=None, nullable_since=0)
    topics: list[EndQuorumEpochRequestTopic] = array(EndQuorumEpochRequestTopic)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, since=1, ignorable=True)


class EndQuorumEpochResponsePartition(Struct):
    """Whether the resignation in one partition was accepted."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class EndQuorumEpochResponseTopic(Struct):
    """Whether the resignations in one topic were accepted."""

    topic_name: str = string()
    partitions: list[EndQuorumEpochResponsePartition] = array(EndQuorumEpochResponsePartition)


class NodeEndpoint(Struct):
    """The address of a leader that the voter holds to."""

    node_id: int = int32(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


class EndQuorumEpochResponse(Message, versions=(0, 1), flexible_since=1):
    """The voter's response to the resignation."""

    error_code: int = int16()
    topics: list[EndQuorumEpochResponseTopic] = array(EndQuorumEpochResponseTopic)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=1, tag=0)
