"""DescribeTransactions (API 65): describe transactions.

Sent to the coordinator of the transactional ids (KIP-664).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, int64, string


class DescribeTransactionsRequest(Message, versions=(0, 0), flexible_since=0):
    """Describe the transactions with these ids."""

    transactional_ids: list[str] = array("string")


class TopicData(Struct):
    """The partitions of one topic that take part in the transaction."""

    topic: str = string()
    partitions: list[int] = array("int32")


class TransactionState(Struct):
    """One transaction in full, or why it cannot be shown."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(Message, versions=(0, 0), flexible_since=0):
    """The transactions that were asked for."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
