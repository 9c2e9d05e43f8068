"""ListTransactions (API 66): list the transactions that a broker coordinates.

Each broker knows only its own (KIP-664). Empty filters match all. Version 1 can filter by age
(KIP-994), version 2 by a pattern for the transactional id (KIP-1152).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, int64, string


class ListTransactionsRequest(Message, versions=(0, 2), flexible_since=0):
    """List the transactions that pass these filters."""

    state_filters: list[str] = array("string")
    producer_id_filters: list[int] = array("int64")
    duration_filter: int = int64(default=-1, since=1)
    transactional_id_pattern: str | None = string(default=None, since=2, nullable_since=2)


class TransactionState(Struct):
    """One transaction, in brief."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Message, versions=(0, 2), flexible_since=0):
    """The transactions coordinated here."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array("string")
    transaction_states: list[TransactionState] = array(TransactionState)
