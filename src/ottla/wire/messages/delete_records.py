"""DeleteRecords (API 21): drop the oldest records of partitions.

Sent to the partitions' leaders (KIP-107). It moves the log start offset forward; an offset of
-1 stands for the high watermark.
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, int64, string


class DeleteRecordsPartition(Struct):
    """The offset in one partition before which everything goes."""

    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Struct):
    """The cuts to make in one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Message, versions=(0, 2), flexible_since=2):
    """Drop the records before these offsets."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResult(Struct):
    """Where one partition's log begins now, or why it was not cut."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Struct):
    """The outcome of the cuts in one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Message, versions=(0, 2), flexible_since=2):
    """One result per partition, with the new log start offset."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
