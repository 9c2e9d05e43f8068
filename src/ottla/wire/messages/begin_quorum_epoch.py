"""BeginQuorumEpoch (API 53): announce a new Raft leader.

Sent by the leader to the voters after it wins an election (KIP-595). Version 1 adds directory
ids and the leader's addresses (KIP-853).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, string, uint16, uuid


class BeginQuorumEpochRequestPartition(Struct):
    """The new leader of one partition."""

    partition_index: int = int32()
    voter_directory_id: bytes = uuid(since=1, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()


class BeginQuorumEpochRequestTopic(Struct):
    """The new leaders in one topic."""

    topic_name: str = string()
    partitions: list[BeginQuorumEpochRequestPartition] = array(BeginQuorumEpochRequestPartition)


class LeaderEndpoint(Struct):
    """An address of the new leader, on one listener."""

    name: str = string(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


class BeginQuorumEpochRequest(Message, versions=(0, 1), flexible_since=1):
    """Follow this leader from now on."""

    cluster_id: str | None = string(default=None, nullable_since=0)
    voter_id: int = int32(default=-1, since=1, ignorable=True)
    topics: list[BeginQuorumEpochRequestTopic] = array(BeginQuorumEpochRequestTopic)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, since=1, ignorable=True)


class BeginQuorumEpochResponsePartition(Struct):
    """Whether the voter follows, or the leader that it follows instead."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class BeginQuorumEpochResponseTopic(Struct):
    """The voter's stance in one topic."""

    topic_name: str = string()
    partitions: list[BeginQuorumEpochResponsePartition] = array(BeginQuorumEpochResponsePartition)


class NodeEndpoint(Struct):
    """The address of a leader that the voter follows."""

    node_id: int = int32(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


class BeginQuorumEpochResponse(Message, versions=(0, 1), flexible_since=1):
    """The voter's stance on the new leader."""

    error_code: int = int16()
    topics: list[BeginQuorumEpochResponseTopic] = array(BeginQuorumEpochResponseTopic)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=1, tag=0)
