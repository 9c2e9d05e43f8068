"""Time slices for long work on the event loop, so that other work waits a few milliseconds.

    iteration:  | sockets | short requests | slice of the first long request | sockets | ...

Background work has slices of its own: `YieldBudget(clock)`. There may be any number of requests, so
they share `TimeSlices`: all requests in one iteration of the loop have one slice together. Longer
requests wait for the next iteration, in which one request continues. It is always the
longest-waiting request, until it completes: so all others hold only their request, and no partial
response, in memory.
"""

import asyncio
from heapq import heappop, heappush
from itertools import count
from typing import Final

from ottla.environment.clock import Clock

SLICE_MS: Final = 5
STEPS_PER_LOOK: Final = 8
"""The number of steps of a request per time check."""


class TimeSlices:
    """The time that the requests of one event loop share."""

    __slots__ = ("_clock", "_end_ms", "_numbers", "_waiting", "slice_count")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end_ms: int | None = None  # of the slice of this iteration, once it has begun
        self._numbers = count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self.slice_count = 0
        """How many iterations of the loop had a slice for requests; for tests."""

    def begin(self, steps_per_look: int = STEPS_PER_LOOK) -> "YieldBudget":
        """Begin to count the steps of one request."""
        return YieldBudget(self._clock, self, steps_per_look)

    @property
    def is_over(self) -> bool:
        """Whether the requests of this iteration have had their time; the first call begins it."""
        now_ms = self._clock.monotonic_ms()
        if self._end_ms is None:
            self._end_ms = now_ms + SLICE_MS
            self.slice_count += 1
            asyncio.get_running_loop().call_soon(self._next_iteration)
            return False
        return now_ms >= self._end_ms

    def renew(self) -> None:
        """Begin the slice of this iteration again, for a request that has waited for it."""
        if self._end_ms is not None:
            self._end_ms = self._clock.monotonic_ms() + SLICE_MS

    def new_number(self) -> int:
        """Return a number by which a request is ahead of all that come later."""
        return next(self._numbers)

    def wait(self, number: int) -> "asyncio.Future[None]":
        """Return a future for a slice of a later iteration; lower numbers go first."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        heappush(self._waiting, (number, next(self._numbers), future))
        if self._end_ms is None:
            self._end_ms = self._clock.monotonic_ms()
            loop.call_soon(self._next_iteration)
        return future

    def _next_iteration(self) -> None:
        """Resume one request in the next iteration, and check again after its slice."""
        self._end_ms = None
        while self._waiting:
            _, _, future = heappop(self._waiting)
            if not future.done():  # else the request was cancelled
                future.set_result(None)
                self._end_ms = self._clock.monotonic_ms() + SLICE_MS
                self.slice_count += 1
                asyncio.get_running_loop().call_soon(self._next_iteration)
                return


class YieldBudget:
    """The time of one piece of work, which asks after each step whether to suspend there."""

    __slots__ = ("_left", "_number", "_slices", "_steps_per_look")

    def __init__(
        self, clock: Clock, shared: TimeSlices | None = None, steps_per_look: int = 1
    ) -> None:
        self._slices = shared or TimeSlices(clock)
        self._steps_per_look = self._left = steps_per_look
        self._number: int | None = None

    @property
    def is_spent(self) -> bool:
        """Whether the slice of this iteration is over."""
        return self._slices.is_over

    async def yield_now(self) -> None:
        """Let other work run, until there is a slice for this work again."""
        if self._number is None:
            self._number = self._slices.new_number()
        await self._slices.wait(self._number)
        self._slices.renew()

    async def yield_if_spent(self) -> None:
        """Yield to the event loop if the slice of this iteration is over."""
        self._left -= 1
        if self._left <= 0:
            self._left = self._steps_per_look
            if self._slices.is_over:
                await self.yield_now()
