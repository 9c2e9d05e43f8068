"""Before a transaction's first batch in a partition: whether its coordinator knows of it (KIP-890).

    begin    a Verification is made, or the one of the producer that is there is used
    ask      the coordinator, which takes a while
    append   only if the verification is still the producer's

Whatever ends or begins a transaction of the producer here takes its verification away. So a batch
that was verified and comes after the end of its transaction begins none that nobody would ever end.
Where each transaction has an epoch of its own, its marker has that of the next one, which may be
under way already: its verification stays.
"""

from typing import NamedTuple

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode


class Verification:
    """That somebody asks a coordinator for a producer. Its identity is what counts."""

    __slots__ = ("is_epoch_bumped", "lowest_sequence", "producer_epoch")

    def __init__(self, producer_epoch: int, base_sequence: int, *, is_epoch_bumped: bool) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = base_sequence
        self.is_epoch_bumped = is_epoch_bumped
        """Whether each transaction has an epoch of its own, so that it begins with sequence 0."""

    def note(self, producer_epoch: int, base_sequence: int) -> None:
        """Take note of another batch of the producer that has to wait for the same answer."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, base_sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, base_sequence)

    def is_ended_by(self, marker_epoch: int) -> bool:
        """Tell whether a marker may end what is verified, and not what came before it."""
        return not (self.is_epoch_bumped and marker_epoch == self.producer_epoch)

    def check_sequence(self, base_sequence: int) -> None:
        """Raise ApiError OUT_OF_ORDER_SEQUENCE_NUMBER for what cannot be a first batch."""
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
