"""ShareAcknowledge (API 79): acknowledge records that a member acquired.

KIP-932. Types: 0 gap, 1 accept, 2 release, 3 reject, 4 renew; type 4 came with version 2
(KIP-1222). It runs in the same share session as ShareFetch.
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
    struct,
    uuid,
)


class AcknowledgementBatch(Struct):
    """The verdict on a run of acquired records."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array("int8")


class AcknowledgePartition(Struct):
    """The verdicts in one partition."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class AcknowledgeTopic(Struct):
    """The verdicts in one topic."""

    topic_id: bytes = uuid()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


class ShareAcknowledgeRequest(Message, versions=(1, 2), flexible_since=0):
    """Settle these records, or keep them locked for longer."""

    group_id: str | None = string(default=None, nullable_since=0)
    member_id: str | None = string(nullable_since=0)
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean(since=2)
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


class LeaderIdAndEpoch(Struct):
    """The leader that the member should acknowledge to."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class PartitionData(Struct):
    """Whether one partition's verdicts were accepted."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    """Whether one topic's verdicts were accepted."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    """The address of a leader that the member should acknowledge to."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, nullable_since=0)


class ShareAcknowledgeResponse(Message, versions=(1, 2), flexible_since=0):
    """One result per partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    acquisition_lock_timeout_ms: int = int32(since=2, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
