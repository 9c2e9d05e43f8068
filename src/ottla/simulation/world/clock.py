"""Virtual time, as one machine sees it. The twin of `runtime.clock`."""

from typing import Final

from ottla.simulation.world.virtual_loop import VirtualLoop

EPOCH_MS: Final = 1_800_000_000_000
"""When a simulation begins, by the clocks on its walls."""


class SimulatedClock:
    """A monotonic clock, and a wall clock that can be set wrong."""

    def __init__(self, loop: VirtualLoop, start_ms: int = 0) -> None:
        self.skew_ms = 0
        self._loop = loop
        self._start_ms = start_ms

    def now_ms(self) -> int:
        """Return the time on the wall."""
        return EPOCH_MS + self.skew_ms + self._passed_ms()

    def monotonic_ms(self) -> int:
        """Return the time since a moment that only this machine knows."""
        return self._start_ms + self._passed_ms()

    def monotonic_ns(self) -> int:
        """Return the same in nanoseconds, as exact as milliseconds are."""
        return self.monotonic_ms() * 1_000_000

    def _passed_ms(self) -> int:
        return int(self._loop.time() * 1000)
