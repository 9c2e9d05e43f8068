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
CROWD_MAX: Final = 128
"""The maximum number of waits per shared deadline: all of them complete together."""


WOKEN_AT_ONCE_MAX: Final = 128
"""How many requests are woken in one iteration of the loop: each takes about 40 microseconds."""


class Deadlines:
    """The deadlines of all waiters, on one timer of the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[int, dict[asyncio.Future[bool], None]] = {}
        self._order: list[int] = []  # of their milliseconds; some may not be there any more
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def shared(self, start_ms: int, wait_ms: int) -> int:
        """Return a deadline for a wait that may end up to a sixteenth late, but never early.

        Each wake-up of the process costs more than a wait that ends in the same wake-up, and
        clients with simultaneous responses send their next requests together. So deadlines are
        rounded up to a grid. Its period is the wait and a sixteenth: a client that got its response
        on the grid and sends a request within that sixteenth reaches the next point. A wait that
        ends further from a point keeps its own end; its period is shorter, so each round ends
        nearer to a point. With many waits the grid has several points per period.
        """
        if wait_ms <= 0:
            return start_ms
        end_ms = start_ms + wait_ms + 1  # the clock cuts off the part of a millisecond
        late_max_ms = wait_ms >> 4
        points = 1 << (self._count // CROWD_MAX).bit_length()
        apart_ms = max((wait_ms + late_max_ms) // points, 1)
        late_ms = -end_ms % apart_ms
        if late_ms <= late_max_ms and len(self._waiting.get(end_ms + late_ms, ())) < CROWD_MAX:
            return end_ms + late_ms
        return end_ms + -end_ms % max(late_max_ms >> 2, 1)

    def add(self, deadline_ms: int, waiting: "asyncio.Future[bool]") -> None:
        """Complete it with False at this time, unless it is removed before."""
        self._count += 1
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
            self._count -= 1
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
