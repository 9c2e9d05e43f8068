"""Watches the event loop: its latency, its utilization, and whether it still runs."""

import asyncio
from collections.abc import Callable, Sequence
from time import thread_time
from typing import Final

from ottla.environment.clock import Clock

BEAT_SECONDS: Final = 0.1
BEATS_PER_SECOND: Final = 10
BEATS_PER_LOOK: Final = 10 * BEATS_PER_SECOND
"""The interval of utilization samples."""
BEATS_PER_MINUTE: Final = 60 * BEATS_PER_SECOND
_NS_PER_SECOND: Final = 1e9


class LoopWatch:
    """Ticks ten times a second from `start` to `stop`, and calls others as seconds pass.

    Belongs to the loop's thread; any thread may read its measurements.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        each_second: Sequence[Callable[[], None]] = (),
        each_minute: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._each_second = each_second
        self._each_minute = each_minute
        self._loop = loop
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._beats = 0
        self._due = 0.0
        self._looked = self._looked_cpu = 0.0
        self._worst_now = self._worst_before = 0.0
        self.lag_seconds = 0.0
        """How late the last beat was."""
        self.idle_ratio = 1.0
        """Which part of its time the loop's thread did not use a processor."""
        self.beat_ms = clock.monotonic_ms()
        """When the last beat was."""

    @property
    def lag_seconds_max(self) -> float:
        """How late the latest beat of the last minute or two was."""
        return max(self._worst_now, self._worst_before)

    def start(self) -> None:
        """Begin to beat."""
        self.beat_ms = self._clock.monotonic_ms()
        self._looked = self._seconds()
        self._looked_cpu = thread_time()
        self._plan()

    def stop(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _plan(self) -> None:
        self._due = self._seconds() + BEAT_SECONDS
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat)

    def _beat(self) -> None:
        self.beat_ms = self._clock.monotonic_ms()
        self.lag_seconds = max(self._seconds() - self._due, 0.0)
        self._worst_now = max(self._worst_now, self.lag_seconds)
        self._plan()
        self._beats += 1
        if self._beats % BEATS_PER_LOOK == 0:
            self._look()
        if self._beats % BEATS_PER_MINUTE == 0:
            self._worst_before, self._worst_now = self._worst_now, 0.0
            _call(self._each_minute)
        if self._beats % BEATS_PER_SECOND == 0:
            _call(self._each_second)

    def _look(self) -> None:
        cpu, now = thread_time(), self._seconds()
        elapsed = now - self._looked
        if elapsed > 0:
            self.idle_ratio = min(max(1 - (cpu - self._looked_cpu) / elapsed, 0.0), 1.0)
        self._looked, self._looked_cpu = now, cpu

    def _seconds(self) -> float:
        # Not the loop's own time: some loops read the clock once per iteration.
        return self._clock.monotonic_ns() / _NS_PER_SECOND


def _call(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()
