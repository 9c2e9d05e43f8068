"""Reads the pipeline's output, as any consumer would, and compares it with the shop's books."""

import json
from dataclasses import dataclass, field
from datetime import datetime

from examples.demo.shop import Shop
from ottla import Consumer


@dataclass(slots=True)
class Results:
    """The output: the paid amount of each product and window, and its number of updates."""

    cents: dict[tuple[str, int], int] = field(default_factory=dict)
    records: int = 0

    def read(self, consumer: Consumer, seconds: float) -> None:
        """Read the available records; wait no longer than this."""
        for record in consumer.poll(timeout=seconds):
            assert isinstance(record.value, bytes)
            row = json.loads(record.value)
            begin = datetime.fromisoformat(row["window"]["start"])
            self.cents[row["product"], int(begin.timestamp())] = row["cents"]
            self.records += 1

    def windows(self) -> list[int]:
        """Return the start times of the windows, the newest at the end."""
        return sorted({window for _, window in self.cents})

    def check(self, shop: Shop) -> tuple[bool, str]:
        """Return whether the output matches the input exactly once, with a sentence about it."""
        wrong = [name for name, cents in self.cents.items() if shop.books[name]["cents"] != cents]
        doubled = self.records - len(self.cents)
        if wrong or doubled:
            return False, f"{len(wrong)} sums differ from the shop's books, {doubled} came twice."
        return (
            True,
            f"All {len(self.cents)} sums are those in the shop's own books, and each came once.",
        )
