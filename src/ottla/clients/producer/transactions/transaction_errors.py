"""Transaction failures, and the error code of each (KIP-1050).

The codes in `ottla.clients.errors.RETRIABLE` are retried internally.
"""

from collections.abc import Mapping
from typing import Final

from ottla.clients.errors import RETRIABLE
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""The coordinator's codes for a producer that was fenced by its successor."""
ABORTABLE: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""The coordinator's codes after which the next transaction may succeed. All others are fatal."""
FATAL_FOR_BATCHES: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""A partition leader's codes that end the producer; its other codes are abortable."""
UNAUTHORIZED: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""After these, init_transactions may be called again once the permission is granted."""
_JOIN_AGAIN: Final = (
    "the group has gone on without this consumer: call abort_transaction, then have the consumer "
    "poll, so that it joins again, and process the records that poll then returns"
)
_ADVICE_TO_MEMBERS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_MEMBER_ID: _JOIN_AGAIN,
    ErrorCode.ILLEGAL_GENERATION: _JOIN_AGAIN,
    ErrorCode.FENCED_INSTANCE_ID: (
        "another consumer has this group.instance.id now: call abort_transaction, and close this "
        "consumer"
    ),
}
"""The group coordinator's codes, and their remedies."""
_ADVICE_TO_LATECOMERS: Final = (
    "its time was up, or another producer has this transactional id now: call abort_transaction, "
    "which tells; if it returns, begin anew"
)


class TransactionStateError(RuntimeError):
    """A call that is not allowed in the transaction's state; it had no effect."""


class TransactionAbortedError(Exception):
    """Why a record was not delivered: its transaction was aborted before it was sent."""


class TransactionFailedError(ApiError):
    """A transaction, or its producer, cannot go on; the subclasses name the remedy."""

    ADVICE = ""
    ADVICE_BY_CODE: Mapping[ErrorCode, str] = {}

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        advice = self.ADVICE_BY_CODE.get(code, self.ADVICE)
        super().__init__(code, f"{detail} ({advice})" if detail else advice)
        self.reason = detail

    def again(self) -> "TransactionFailedError":
        """Return the same failure, to be raised for another call."""
        return type(self)(self.code, self.reason)


class TransactionAbortableError(TransactionFailedError):
    """This transaction cannot be committed; abort it before the next."""

    ADVICE = "call abort_transaction, then begin it anew"
    ADVICE_BY_CODE: Mapping[ErrorCode, str] = {
        **_ADVICE_TO_MEMBERS,
        ErrorCode.INVALID_PRODUCER_EPOCH: _ADVICE_TO_LATECOMERS,
    }


class FatalTransactionError(TransactionFailedError):
    """This producer cannot be used any more; the next with its id aborts its transaction."""

    ADVICE = "close this producer and create another"


class ProducerFencedError(FatalTransactionError):
    """Another producer uses the transactional id; in the older protocol, also a timeout."""

    ADVICE = "another producer has this transactional id, or time was up: close this producer"


def is_abortable(code: ErrorCode, *, is_new: bool) -> bool:
    """Whether a coordinator's refusal ends only the transaction, not the producer.

    With the new protocol (KIP-890) a transaction that timed out was aborted, but its producer
    remains valid: the response to its abort has the new epoch.
    """
    return code in ABORTABLE or (is_new and code is ErrorCode.INVALID_TXN_STATE)


def fatal(code: ErrorCode, detail: str) -> FatalTransactionError:
    """Return the error of a producer that can no longer be used."""
    kind = ProducerFencedError if code in FENCED else FatalTransactionError
    return kind(code, detail)


def abortable(code: ErrorCode, detail: str) -> TransactionAbortableError:
    """Return the error of a lost transaction, with a code that is not retriable."""
    if code in RETRIABLE:
        code = ErrorCode.TRANSACTION_ABORTABLE
    return TransactionAbortableError(code, detail)
