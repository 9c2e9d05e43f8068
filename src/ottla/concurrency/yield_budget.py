"""Time slices for long work on the event loop, so that other work waits a few milliseconds."""

import asyncio
from typing import Final

from ottla.environment.clock import Clock

TIME_SLICE_MS: Final = 5


class YieldBudget:
    """Counts the time of one piece of work, which says after small parts of it whether to go on."""

    __slots__ = ("_clock", "_end_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end_ms = clock.monotonic_ms() + TIME_SLICE_MS

    @property
    def is_spent(self) -> bool:
        """Whether this time slice is spent."""
        return self._clock.monotonic_ms() >= self._end_ms

    async def yield_now(self) -> None:
        """Let other work run, then begin the next time slice."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        loop.call_soon(_end, turn)
        await turn
        self._end_ms = self._clock.monotonic_ms() + TIME_SLICE_MS

    async def yield_if_spent(self) -> None:
        """Yield to the event loop if this time slice is spent; then the next one begins."""
        if self.is_spent:
            await self.yield_now()


def _end(turn: "asyncio.Future[None]") -> None:
    """Complete the future of a time slice, unless its coroutine was cancelled in the meantime."""
    if not turn.done():
        turn.set_result(None)
