"""How fast compaction may go: `log.cleaner.io.max.bytes.per.second`, over all its threads.

Reading and repairing damaged segments has paces of its own (`log_scrubber.py`).
"""

from math import inf
from threading import Event, Lock

from ottla.environment.clock import Clock


class CleaningStoppedError(Exception):
    """The broker stops: the running compaction is abandoned."""


class CleanerThrottle:
    """Holds threads back that go too fast, and ends them all when it is stopped."""

    def __init__(self, clock: Clock) -> None:
        self.bytes_per_second = inf
        self._clock = clock
        self._lock = Lock()
        self._stopped = Event()
        self._free_ms = 0.0

    def stop(self) -> None:
        """End all present and future waits at once."""
        self._stopped.set()

    def wait(self, size_bytes: int) -> None:
        """Wait as long as so many bytes may take; CleaningStoppedError when all is over."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            taken_ms = size_bytes * 1000 / self.bytes_per_second
            self._free_ms = max(self._free_ms, now_ms) + taken_ms
            wait_ms = self._free_ms - now_ms
        if self._stopped.wait(wait_ms / 1000):
            raise CleaningStoppedError
