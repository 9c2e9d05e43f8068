"""How fast a query goes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Latency(StrEnum):
    """What Spark's JVM is set up for; which records are read and written is the same in both."""

    LOW = "low"
    """Micro-batches of few records: the JVM compiles its code once, and quickly."""
    THROUGHPUT = "throughput"
    """Micro-batches of very many records: the JVM optimises its code, which takes CPU time."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When a query looks for records: as soon as it can, every so often, or until it caught up."""

    every: str | None = None
    until_caught_up: bool = False

    @property
    def latency(self) -> Latency:
        """What suits this pace: low latency where each record is read as soon as it is there."""
        is_at_once = self.every is None and not self.until_caught_up
        return Latency.LOW if is_at_once else Latency.THROUGHPUT

    def trigger(self) -> dict[str, Any]:
        """Return what Spark takes."""
        if self.until_caught_up:
            return {"availableNow": True}
        return {"processingTime": self.every or "0 seconds"}
