"""The operations of a transaction on the records of its producer."""

from typing import Protocol


class Records(Protocol):
    """The producer's pending records."""

    def refuse(self, reason: Exception | None) -> None:
        """Refuse new records with this error; None accepts them again."""

    async def flush(self) -> None:
        """Return when all pending records are delivered or have failed."""

    async def drop(self, reason: Exception) -> None:
        """Fail all records that are not in flight, and wait for those in flight."""
