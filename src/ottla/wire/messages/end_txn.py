"""EndTxn (API 26): commit or abort a transaction.

Since version 5 every transaction ends with a new producer epoch, in the response
(KIP-890).
"""

from ottla.wire.schema import Message, boolean, int16, int32, int64, string


class EndTxnRequest(Message, versions=(0, 5), flexible_since=3):
    """Commit the transaction, or abort it."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, versions=(0, 5), flexible_since=3):
    """Whether the end was accepted, and the producer's next identity."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1, since=5, ignorable=True)
    producer_epoch: int = int16(default=-1, since=5, ignorable=True)
