"""WriteTxnMarkers (API 27): write the commit or abort markers of transactions.

Sent by the transaction coordinator to the leaders of the partitions that took part. Version 2
adds the transaction version (KIP-1228).
"""

from ottla.wire.schema import Message, Struct, array, boolean, int8, int16, int32, int64, string


class WritableTxnMarkerTopic(Struct):
    """The partitions of one topic to mark."""

    name: str = string()
    partition_indexes: list[int] = array("int32")


class WritableTxnMarker(Struct):
    """The end of one transaction, and the partitions to note it in."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2, ignorable=True)


class WriteTxnMarkersRequest(Message, versions=(0, 2), flexible_since=1):
    """Write down how these transactions ended."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    """Whether one partition was marked."""

    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    """Whether one topic's partitions were marked."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    """Where one producer's marker was written."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Message, versions=(0, 2), flexible_since=1):
    """One result per partition."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
