"""How a transaction can fail, and which code means which failure (KIP-1050).

Codes after which asking again may help are `ottla.clients.errors.RETRIABLE`; that is done inside.
"""

from collections.abc import Mapping
from typing import Final

from ottla.clients.errors import RETRIABLE
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""What a coordinator says to a producer that has a successor."""
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
"""What a coordinator says where the next transaction can go well. All else is fatal."""
FATAL_FOR_BATCHES: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""What the leader of a partition says that ends the producer; all else is abortable there."""
UNAUTHORIZED: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""After these init_transactions may be called again, when somebody has given the permission."""
_JOIN_AGAIN: Final = (
    "the group has gone on without this consumer: call abort_transaction, then have the consumer "
    "poll, so that it joins again, and begin anew with what that returns"
)
_ADVICE_TO_MEMBERS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_MEMBER_ID: _JOIN_AGAIN,
    ErrorCode.ILLEGAL_GENERATION: _JOIN_AGAIN,
    ErrorCode.FENCED_INSTANCE_ID: (
        "another consumer has this group.instance.id now: call abort_transaction, and close this "
        "consumer"
    ),
}
"""What the coordinator of a group says, and what helps against it."""
_ADVICE_TO_LATECOMERS: Final = (
    "its time was up, or another producer has this transactional id now: call abort_transaction, "
    "which tells; if it returns, begin anew"
)


class TransactionStateError(RuntimeError):
    """A call that does not fit where the transaction stands; nothing was done."""


class TransactionAbortedError(Exception):
    """Why a record was not delivered: its transaction was aborted before it was sent."""


class TransactionFailedError(ApiError):
    """A transaction, or its producer, cannot go on; the kinds below say what to do."""

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
    """This transaction cannot be committed; after abort_transaction the next one can begin."""

    ADVICE = "call abort_transaction, then begin it anew"
    ADVICE_BY_CODE: Mapping[ErrorCode, str] = {
        **_ADVICE_TO_MEMBERS,
        ErrorCode.INVALID_PRODUCER_EPOCH: _ADVICE_TO_LATECOMERS,
    }


class FatalTransactionError(TransactionFailedError):
    """This producer cannot be used any more; its transaction is aborted by who comes next."""

    ADVICE = "close this producer and make a new one"


class ProducerFencedError(FatalTransactionError):
    """Another producer has the transactional id now; or time was up, in the older protocol."""

    ADVICE = "another producer has this transactional id now, or time was up: close this one"


def is_abortable(code: ErrorCode, *, is_new: bool) -> bool:
    """Whether a coordinator's refusal is the end of the transaction only.

    With the new protocol (KIP-890) one that ran out of time was aborted, but its producer has not
    lost its place: it is told the new epoch when it aborts, too.
    """
    return code in ABORTABLE or (is_new and code is ErrorCode.INVALID_TXN_STATE)


def fatal(code: ErrorCode, detail: str) -> FatalTransactionError:
    """Say that the producer is of no more use."""
    kind = ProducerFencedError if code in FENCED else FatalTransactionError
    return kind(code, detail)


def abortable(code: ErrorCode, detail: str) -> TransactionAbortableError:
    """Say that the transaction is lost, with a code that nobody takes for one that may pass."""
    if code in RETRIABLE:
        code = ErrorCode.TRANSACTION_ABORTABLE
    return TransactionAbortableError(code, detail)
