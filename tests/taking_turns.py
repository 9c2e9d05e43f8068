"""Checks whether long work on an event loop yields to other tasks."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass
class PassingClock:
    """A clock that advances with every call."""

    time_ms: int = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        self.time_ms += 1
        return self.time_ms


async def turns_of_others(work: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """Return the result of the work, and how often another task ran meanwhile."""
    count = 0

    async def other() -> None:
        nonlocal count
        while True:
            await asyncio.sleep(0)
            count += 1

    counting = asyncio.create_task(other())
    try:
        return await work, count
    finally:
        counting.cancel()
