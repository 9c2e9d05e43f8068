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
CROWD_MAX: Final = 128
"""How many wait for one moment, where another will do: all of them are answered at a stroke."""


class Deadlines:
    """Who waits until when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[int, dict[asyncio.Future[bool], None]] = {}
        self._order: list[int] = []  # of their milliseconds; some may not be there any more
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def shared(self, start_ms: int, wait_ms: int) -> int:
        """Return when a wait ends at the latest: if it can be, at a moment in common with others.

        A process that wakes for one pays most for waking, and those who are answered together ask
        again together. So there are moments to meet at, which are multiples of the wait, or of a
        part of it when there are many. No wait ends more than a sixteenth early; who cannot reach
        one of them so is nearer to it when it asks again.
        """
        end_ms = start_ms + wait_ms
        early_max_ms = wait_ms >> 4
        apart_ms = max(wait_ms >> (self._count // CROWD_MAX).bit_length(), 1)
        meeting_ms = end_ms - end_ms % apart_ms
        is_near = end_ms - meeting_ms <= early_max_ms
        if is_near and len(self._waiting.get(meeting_ms, ())) < CROWD_MAX:
            return meeting_ms
        earliest_ms = end_ms - early_max_ms
        return earliest_ms + -earliest_ms % max(early_max_ms >> 2, 1)

    def add(self, deadline_ms: int, waiting: "asyncio.Future[bool]") -> None:
        """Tell it False at this time, unless it is removed before."""
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
        while order and order[0] <= now_ms:
            told = self._waiting.pop(heappop(order), {})
            self._count -= len(told)
            for late in told:
                if not late.done():
                    late.set_result(False)
        while order and order[0] not in self._waiting:
            heappop(order)
        if order:
            self._plan()
