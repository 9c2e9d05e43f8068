"""The operations of a transaction on the records of its producer."""

from typing import Protocol


class Records(Protocol):
    """Where the producer's records wait."""

    def refuse(self, reason: Exception | None) -> None:
        """Take no more records, or if there is no reason take them again."""

    async def flush(self) -> None:
        """Return when every record that is there is delivered, or has failed."""

    async def drop(self, reason: Exception) -> None:
        """Fail every record that is not on its way, and return when none is any more."""
