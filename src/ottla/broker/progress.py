"""Wakes requests when something that they wait for may have happened.

A request looks, and if what it finds is not enough it waits for a bell and looks again. No ring is
lost in between: `wait_any` registers before its first suspension, and until then nobody else runs.
"""

import asyncio
from collections.abc import Hashable, Sequence

from ottla.broker.deadlines import Deadlines
from ottla.broker.eager_start import Woken
from ottla.environment.clock import Clock


class Bells:
    """A bell per name, rung for everyone who waits for that name at the time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadlines = Deadlines(clock)
        # Dicts in place of sets, for their order: who came first is woken first.
        self._waiting: dict[Hashable, dict[asyncio.Future[bool], None]] = {}
        self.is_closed = False

    def close(self) -> None:
        """Let nobody wait any more: the broker stops, and answers with what there is."""
        self.is_closed = True
        for name in list(self._waiting):
            self.ring(name)

    def ring(self, name: Hashable) -> None:
        """Wake all who wait for this name."""
        for woken in self._waiting.pop(name, ()):
            _wake(woken, True)

    def shared_deadline(self, start_ms: int, wait_ms: int) -> int:
        """Return when a wait ends at the latest, at a moment in common with others if it can be."""
        return self._deadlines.shared(start_ms, wait_ms)

    async def wait_any(self, names: Sequence[Hashable], deadline_ms: int) -> bool:
        """Wait until one of the bells rings; False if the deadline, or the end, came first."""
        left_ms = deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0 or self.is_closed:
            return False
        loop = asyncio.get_running_loop()
        woken = Woken(loop=loop)
        for name in names:
            self._waiting.setdefault(name, {})[woken] = None
        self._deadlines.add(deadline_ms, woken)
        try:
            return await woken
        finally:
            self._deadlines.remove(deadline_ms, woken)
            self._forget(names, woken)

    def _forget(self, names: Sequence[Hashable], woken: "asyncio.Future[bool]") -> None:
        for name in names:
            waiting = self._waiting.get(name)
            if waiting is not None:
                waiting.pop(woken, None)
                if not waiting:
                    del self._waiting[name]


def _wake(woken: "asyncio.Future[bool]", is_rung: bool) -> None:
    if not woken.done():
        woken.set_result(is_rung)
