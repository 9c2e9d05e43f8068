"""Futures that are told False when their time comes, on one timer of the loop for all of them.

Requests that wait are many, and most of them wait to the end: a timer each would cost more than
all the rest of waiting.
"""

import asyncio
from heapq import heapify, heappop, heappush
from typing import Final

from ottla.environment.clock import Clock

STALE_MAX: Final = 1000
"""How many milliseconds may be kept in which nobody waits any more, beside as many as are used."""


def shared_deadline(start_ms: int, wait_ms: int) -> int:
    """Return when a wait ends at the latest: at a moment that it has in common with others.

    That is up to a sixteenth of the wait early. A process that wakes for one pays most for waking;
    and those who are answered together ask again together.
    """
    end_ms = start_ms + wait_ms
    return end_ms - end_ms % max(wait_ms >> 4, 1)


class Deadlines:
    """Who waits until when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[int, dict[asyncio.Future[bool], None]] = {}
        self._order: list[int] = []  # of their milliseconds; some may not be there any more
        self._timer: asyncio.TimerHandle | None = None

    def add(self, deadline_ms: int, waiting: "asyncio.Future[bool]") -> None:
        """Tell it False at this time, unless it is removed before."""
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
        if others is not None:
            others.pop(waiting, None)
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
        while order and order[0] <= now_ms:
            for late in self._waiting.pop(heappop(order), ()):
                if not late.done():
                    late.set_result(False)
        while order and order[0] not in self._waiting:
            heappop(order)
        if order:
            self._plan()
