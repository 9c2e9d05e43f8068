"""How fast a query goes."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Pace:
    """When a query looks for records: as soon as it can, every so often, or until it caught up."""

    every: str | None = None
    until_caught_up: bool = False

    def trigger(self) -> dict[str, Any]:
        """Return what Spark takes."""
        if self.until_caught_up:
            return {"availableNow": True}
        return {"processingTime": self.every or "0 seconds"}
