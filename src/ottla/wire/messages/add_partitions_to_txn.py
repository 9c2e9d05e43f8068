"""AddPartitionsToTxn (API 24): enlist partitions in a transaction.

Producers use versions 0 to 3, for one transaction. Since version 4 it is for brokers, which can
put several in one request or only verify that the partitions are enlisted (KIP-890).
"""

from ottla.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string


class AddPartitionsToTxnTopic(Struct):
    """The partitions of one topic to enlist."""

    name: str = string()
    partitions: list[int] = array("int32")


class AddPartitionsToTxnTransaction(Struct):
    """A transaction, and the partitions to enlist in it or to verify."""

    transactional_id: str = string(since=4)
    producer_id: int = int64(since=4)
    producer_epoch: int = int16(since=4)
    verify_only: bool = boolean(since=4)
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, since=4)


class AddPartitionsToTxnRequest(Message, versions=(0, 5), flexible_since=3):
    """Enlist these partitions, or verify that they are enlisted."""

    transactions: list[AddPartitionsToTxnTransaction] = array(
        AddPartitionsToTxnTransaction, since=4
    )
    v3_and_below_transactional_id: str = string(until=4)
    v3_and_below_producer_id: int = int64(until=4)
    v3_and_below_producer_epoch: int = int16(until=4)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=4)


class AddPartitionsToTxnPartitionResult(Struct):
    """Whether one partition is in the transaction."""

    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    """Whether one topic's partitions are in the transaction."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult
    )


class AddPartitionsToTxnResult(Struct):
    """How it went for one transaction."""

    transactional_id: str = string(since=4)
    topic_results: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, since=4
    )


class AddPartitionsToTxnResponse(Message, versions=(0, 5), flexible_since=3):
    """How it went for all the transactions."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(
        AddPartitionsToTxnResult, since=4
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, until=4
    )
