"""DescribeTransactions and ListTransactions, for operators (KIP-664, KIP-994, KIP-1152)."""

from typing import Final

from ottla.machines.transactions.transaction import State, Transaction
from ottla.machines.transactions.transaction_store import Roster
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import numbers_by_topic
from ottla.model.linear_regex import Pattern, PatternError
from ottla.wire.messages import describe_transactions, list_transactions
from ottla.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

_STATE_NAMES: Final = frozenset(state.value for state in State)


def describe(roster: Roster, transactional_id: str) -> describe_transactions.TransactionState:
    """Show one transactional id, or why it cannot be shown."""
    found = roster.get(transactional_id)
    if found is None:
        is_valid = bool(transactional_id)
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if is_valid else ErrorCode.INVALID_REQUEST
        return describe_transactions.TransactionState(
            error_code=code, transactional_id=transactional_id
        )
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state.value,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer.producer_id,
        producer_epoch=found.producer.epoch,
        topics=[
            describe_transactions.TopicData(topic=topic, partitions=numbers)
            for topic, numbers in numbers_by_topic(found.partitions).items()
        ],
    )


def list_all(
    roster: Roster, request: ListTransactionsRequest, now_ms: int
) -> ListTransactionsResponse:
    """Return the transactional ids that pass all filters; may raise INVALID_REGULAR_EXPRESSION.

    Unknown states are returned as such, and match nothing.
    """
    pattern = _pattern(request.transactional_id_pattern)
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in _STATE_NAMES],
        transaction_states=[
            list_transactions.TransactionState(
                transactional_id=found.transactional_id,
                producer_id=found.producer.producer_id,
                transaction_state=found.state.value,
            )
            for found in roster.transactions()
            if _passes(found, request, now_ms)
            and (pattern is None or pattern.matches(found.transactional_id))
        ],
    )


def _passes(found: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    producer_ids, states = request.producer_id_filters, request.state_filters
    if producer_ids and found.producer.producer_id not in producer_ids:
        return False
    if states and found.state.value not in states:
        return False
    return request.duration_filter < 0 or now_ms - found.start_ms > request.duration_filter


def _pattern(text: str | None) -> Pattern | None:
    try:
        return Pattern(text) if text else None
    except PatternError as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
