"""The pace of a query, its trigger and its latency, and the other options of a run."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Latency(StrEnum):
    """The optimization goal of Spark's JVM; it has no effect on the records read and written."""

    LOW = "low"
    """Micro-batches of few records: the JVM compiles its code once, and quickly."""
    THROUGHPUT = "throughput"
    """Micro-batches of very many records: the JVM optimises its code, which takes CPU time."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The trigger of a query: continuous, at an interval, or until it has caught up."""

    every: str | None = None
    until_caught_up: bool = False

    @property
    def latency(self) -> Latency:
        """The best latency for this pace: low if each record is read as soon as it arrives."""
        is_at_once = self.every is None and not self.until_caught_up
        return Latency.LOW if is_at_once else Latency.THROUGHPUT

    def trigger(self) -> dict[str, Any]:
        """Return the arguments of Spark's `trigger`."""
        if self.until_caught_up:
            return {"availableNow": True}
        return {"processingTime": self.every or "0 seconds"}


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The options of a run."""

    state_dir: Path | None = None
    checkpoint_dir: str | None = None
    """The directory of checkpoints, if not the state directory; a cluster needs a shared one."""
    pace: Pace = field(default_factory=Pace)
    from_beginning: bool = False
    file: str = ""
