"""Futures that complete with False at a deadline, on one timer of the loop for all of them.

There are many waiting requests, and most of them wait to the end: a timer each would cost more than
the rest of the wait.
"""

import asyncio
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from ottla.environment.clock import Clock

STALE_MAX: Final = 1000
"""How many milliseconds without waiters may be kept, besides as many with waiters."""
GRID_MS: Final = 25
"""Waits from 400 ms on end at multiples of this."""
WOKEN_AT_ONCE_MAX: Final = 128
"""How many requests are woken in one iteration of the loop: each takes about 40 microseconds."""


def shared_deadline(start_ms: int, wait_ms: int) -> int:
    """Return a deadline for a wait that may end up to a sixteenth late, but never early.

    It is on a grid, because a wake-up of the process costs more than a wait that ends in the same
    wake-up: any number of waits costs at most 40 wake-ups a second.
    """
    if wait_ms <= 0:
        return start_ms
    end_ms = start_ms + wait_ms + 1  # the clock cuts off the part of a millisecond
    return end_ms + -end_ms % min(max(wait_ms >> 4, 1), GRID_MS)


class TimerQueue:
    """The deadlines of all waiters, on one timer of the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[int, dict[asyncio.Future[bool], None]] = {}
        self._order: list[int] = []  # of their milliseconds; some may not be there any more
        self._timer: asyncio.TimerHandle | None = None

    def add(self, deadline_ms: int, waiting: "asyncio.Future[bool]") -> None:
        """Complete it with False at this time, unless it is removed before."""
        others = self._waiting.get(deadline_ms)
        if others is not None:
            others[waiting] = None
            return
        self._waiting[deadline_ms] = {waiting: None}
        heappush(self._order, deadline_ms)
        if len(self._order) > 2 * len(self._waiting) + STALE_MAX:
            self._order = list(self._waiting)
            heapify(self._order)
        if self._order[0] == deadline_ms:
            self._plan()

    def remove(self, deadline_ms: int, waiting: "asyncio.Future[bool]") -> None:
        """Forget it, if it is still waiting."""
        others = self._waiting.get(deadline_ms)
        if others is not None and waiting in others:
            del others[waiting]
            if not others:
                del self._waiting[deadline_ms]

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        left_ms = self._order[0] - self._clock.monotonic_ms()
        self._timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        order = self._order
        left = WOKEN_AT_ONCE_MAX
        while order and order[0] <= now_ms and left > 0:
            waiting = self._waiting.get(order[0], {})
            told = list(islice(waiting, left))
            left -= len(told)
            for late in told:
                self.remove(order[0], late)
                if not late.done():
                    late.set_result(False)
            if order[0] not in self._waiting:
                heappop(order)
        while order and order[0] not in self._waiting:
            heappop(order)
        if order:
            self._plan()
