"""The common parts of decisions about transactions."""

from typing import Final, TypeAlias, TypeVar

from ottla.machines.decision import Decision
from ottla.machines.transactions.records import TransactionRecord
from ottla.model.error_code import ErrorCode

T = TypeVar("T")
Records: TypeAlias = tuple[TransactionRecord, ...]
ABORTABLE_SINCE: Final = 5
"""From which version of AddPartitionsToTxn on brokers know TRANSACTION_ABORTABLE."""
FENCED_SINCE: Final = 2
"""From which version on most requests know PRODUCER_FENCED."""
FENCED_SINCE_OF_INIT: Final = 4


def answer_only(response: T) -> Decision[TransactionRecord, T]:
    """Create a decision without records."""
    return Decision((), response)


def known(code: ErrorCode, api_version: int, fenced_since: int = FENCED_SINCE) -> ErrorCode:
    """Replace a code that an older client does not know (KIP-588)."""
    is_unknown = code is ErrorCode.PRODUCER_FENCED and api_version < fenced_since
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else code
