"""InitProducerId (API 22): get a producer id, and fence older producers.

A null transactional id is for a producer that is only idempotent. Since version 3 a producer
can send its id and epoch to recover from an error (KIP-360). Version 6 is for two-phase commit
(KIP-939).
"""

from ottla.wire.schema import Message, boolean, int16, int32, int64, string


class InitProducerIdRequest(Message, versions=(0, 6), flexible_since=2):
    """Assign a producer id and epoch, and fence the former holder of the transactional id."""

    transactional_id: str | None = string(nullable_since=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(default=-1, since=3)
    producer_epoch: int = int16(default=-1, since=3)
    enable2_pc: bool = boolean(since=6)
    keep_prepared_txn: bool = boolean(since=6)


class InitProducerIdResponse(Message, versions=(0, 6), flexible_since=2):
    """The identity to stamp on batches."""

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64(default=-1, since=6)
    ongoing_txn_producer_epoch: int = int16(default=-1, since=6)
