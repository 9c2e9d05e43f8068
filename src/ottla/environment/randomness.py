"""Randomness as an interface, so that a simulation can repeat every random decision."""

from typing import Protocol


class Randomness(Protocol):
    """Unpredictable numbers and ids."""

    def uuid(self) -> bytes:
        """Return a new id of sixteen bytes: never zero, nor an id that Kafka reserves.

        Its text does not begin with a dash, which command lines would take for an option.
        """
        ...

    def below(self, limit: int) -> int:
        """Return a number from 0 up to, but not including, a limit of at least 1."""
        ...
