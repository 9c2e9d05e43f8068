"""DescribeQuorum (API 55): show the state of the Raft quorum.

Answered by the leader of the metadata partition; brokers pass it on (KIP-595). Version 1 adds
the times of the last fetches (KIP-836), version 2 directory ids and the nodes' addresses
(KIP-853).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, int64, string, uint16, uuid


class DescribeQuorumRequestPartition(Struct):
    """A partition to describe the quorum of."""

    partition_index: int = int32()


class DescribeQuorumRequestTopic(Struct):
    """The quorums wanted in one topic."""

    topic_name: str = string()
    partitions: list[DescribeQuorumRequestPartition] = array(DescribeQuorumRequestPartition)


class DescribeQuorumRequest(Message, versions=(0, 2), flexible_since=0):
    """Show these quorums."""

    topics: list[DescribeQuorumRequestTopic] = array(DescribeQuorumRequestTopic)


class ReplicaState(Struct):
    """How far one voter or observer has got."""

    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(default=-1, since=1, ignorable=True)
    last_caught_up_timestamp: int = int64(default=-1, since=1, ignorable=True)


class DescribeQuorumResponsePartition(Struct):
    """The quorum of one partition: its leader and its replicas."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable_since=2, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class DescribeQuorumResponseTopic(Struct):
    """The quorums of one topic."""

    topic_name: str = string()
    partitions: list[DescribeQuorumResponsePartition] = array(DescribeQuorumResponsePartition)


class Listener(Struct):
    """An address of a quorum node, on one listener."""

    name: str = string(since=2)
    host: str = string(since=2)
    port: int = uint16(since=2)


class Node(Struct):
    """A node of the quorum, and where to reach it."""

    node_id: int = int32(since=2)
    listeners: list[Listener] = array(Listener, since=2)


class DescribeQuorumResponse(Message, versions=(0, 2), flexible_since=0):
    """The quorums that were asked for."""

    error_code: int = int16()
    error_message: str | None = string(since=2, nullable_since=2, ignorable=True)
    topics: list[DescribeQuorumResponseTopic] = array(DescribeQuorumResponseTopic)
    nodes: list[Node] = array(Node, since=2)
