"""Dice: whatever is decided by chance comes from here, so that a simulation can repeat it."""

from typing import Protocol


class Randomness(Protocol):
    """Numbers and ids that nobody can foresee."""

    def uuid(self) -> bytes:
        """Return a new id of sixteen bytes: never zero, nor one that Kafka reserves.

        As text it does not begin with a dash, which command lines would take for an option.
        """
        ...

    def below(self, limit: int) -> int:
        """Return a number from 0 up to, but not including, a limit of at least 1."""
        ...
