"""ShareFetch (API 78): acquire records for a share group's member.

It can carry acknowledgements too: 0 gap, 1 accept, 2 release, 3 reject, 4 renew (KIP-932).
Version 2 adds renewal (KIP-1222) and the acquire mode (KIP-1206). Session epoch 0 opens a share
session, -1 closes it.
"""

from ottla.wire.schema import (
    Batches,
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    record_batches,
    string,
    struct,
    uuid,
)


class AcknowledgementBatch(Struct):
    """Acknowledgements of a range of records that were fetched earlier."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array("int8")


class FetchPartition(Struct):
    """A partition to fetch, and the acknowledgements for it."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class FetchTopic(Struct):
    """The partitions of one topic to acquire records from."""

    topic_id: bytes = uuid()
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    """Partitions of one topic to drop from the share session."""

    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


class ShareFetchRequest(Message, versions=(1, 2), flexible_since=0):
    """Acquire records for this member, and settle earlier ones."""

    group_id: str | None = string(default=None, nullable_since=0)
    member_id: str | None = string(nullable_since=0)
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=0x7FFFFFFF)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8(since=2, ignorable=True)
    is_renew_ack: bool = boolean(since=2)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


class LeaderIdAndEpoch(Struct):
    """The leader that the member should fetch from."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class AcquiredRecords(Struct):
    """A run of records now locked for the member, and how often it was delivered."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


class PartitionData(Struct):
    """The records acquired in one partition, or why there are none."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(default=None, nullable_since=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
    records: Batches = record_batches()
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


class ShareFetchableTopicResponse(Struct):
    """The records acquired in one topic."""

    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    """The address of a leader that the member should fetch from."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, nullable_since=0)


class ShareFetchResponse(Message, versions=(1, 2), flexible_since=0):
    """The records acquired, and for how long."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    acquisition_lock_timeout_ms: int = int32()
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
