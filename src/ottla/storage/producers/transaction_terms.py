"""Verifies a transaction with its coordinator before its first batch in a partition (KIP-890).

    begin    create a Verification, or use the producer's existing one
    ask      the coordinator, which takes a while
    append   only if the verification is still the producer's

The begin or end of a transaction of the producer in this log removes its verification. So a
verified batch that arrives after the end of its transaction cannot begin a hanging transaction.
If every transaction has its own epoch, a marker already carries the next epoch, whose transaction
may have begun: its verification stays.
"""

from typing import NamedTuple

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode


class Verification:
    """A pending request to the coordinator on behalf of a producer. Compared by identity."""

    __slots__ = ("is_epoch_bumped", "lowest_sequence", "producer_epoch")

    def __init__(self, producer_epoch: int, base_sequence: int, *, is_epoch_bumped: bool) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = base_sequence
        self.is_epoch_bumped = is_epoch_bumped
        """Whether each transaction has an epoch of its own, so that it begins with sequence 0."""

    def note(self, producer_epoch: int, base_sequence: int) -> None:
        """Record another batch of the producer that waits for the same response."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, base_sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, base_sequence)

    def is_ended_by(self, marker_epoch: int) -> bool:
        """Return whether a marker may end the verified transaction, and not an earlier one."""
        return not (self.is_epoch_bumped and marker_epoch == self.producer_epoch)

    def check_sequence(self, base_sequence: int) -> None:
        """Raise ApiError OUT_OF_ORDER_SEQUENCE_NUMBER if this cannot be a first batch."""
        expected = 0 if self.is_epoch_bumped else self.lowest_sequence
        if base_sequence > expected:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"a transaction begins with sequence {base_sequence} in place of {expected}",
            )


class TransactionTerms(NamedTuple):
    """On which terms something of a transaction is appended."""

    version: int = 0
    """The transaction version of a marker."""
    is_verified_only: bool = False
    """Whether no transaction may begin that was not verified."""
    verification: Verification | None = None


ANY_TRANSACTION = TransactionTerms()
VERIFIED_ONLY = TransactionTerms(is_verified_only=True)
