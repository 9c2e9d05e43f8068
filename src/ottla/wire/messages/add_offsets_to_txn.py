"""AddOffsetsToTxn (API 25): enlist a group's offsets in a transaction.

Sent to the transaction's coordinator before TxnOffsetCommit. Under transactions version 2
(KIP-890) producers skip it, because TxnOffsetCommit does this step too.
"""

from ottla.wire.schema import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, versions=(0, 4), flexible_since=3):
    """This transaction is going to commit offsets for the group."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, versions=(0, 4), flexible_since=3):
    """Whether the group's offsets were enlisted."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
