"""Vote (API 52): ask for a vote in a Raft election.

Sent by a would-be leader to the other voters (KIP-595). Version 1 adds directory ids (KIP-853),
version 2 the pre-vote, which tests the waters without starting a new epoch (KIP-996).
"""

from ottla.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class VoteRequestPartition(Struct):
    """A candidate for the leadership of a partition, and the end of its log."""

    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=1, ignorable=True)
    voter_directory_id: bytes = uuid(since=1, ignorable=True)
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean(since=2)


class VoteRequestTopic(Struct):
    """The elections in one topic."""

    topic_name: str = string()
    partitions: list[VoteRequestPartition] = array(VoteRequestPartition)


class VoteRequest(Message, versions=(0, 2), flexible_since=0):
    """Vote for this replica."""

    cluster_id: str | None = string(default=None, nullable_since=0)
    voter_id: int = int32(default=-1, since=1, ignorable=True)
    topics: list[VoteRequestTopic] = array(VoteRequestTopic)


class VoteResponsePartition(Struct):
    """Whether the vote was given, and which leader the voter knows."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


class VoteResponseTopic(Struct):
    """The votes in one topic."""

    topic_name: str = string()
    partitions: list[VoteResponsePartition] = array(VoteResponsePartition)


class NodeEndpoint(Struct):
    """The address of a leader that the voter knows."""

    node_id: int = int32(since=1)
    host: str = string(since=1)
    port: int = uint16(since=1)


class VoteResponse(Message, versions=(0, 2), flexible_since=0):
    """The voter's decision."""

    error_code: int = int16()
    topics: list[VoteResponseTopic] = array(VoteResponseTopic)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=1, tag=0)
