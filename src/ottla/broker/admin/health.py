"""Whether a broker is alive, and whether clients should be sent to it."""

from typing import Final

from ottla.broker.metrics.loop_watch import LoopWatch
from ottla.environment.clock import Clock
from ottla.storage.log_dirs.log_dirs import LogDirs

SILENT_MS_MAX: Final = 10_000
"""How long the event loop may be silent before it counts as stuck."""


class Health:
    """The broker's state, set by the broker and read by any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._doing: str | None = "the broker is starting: its logs are being opened"
        self._watch: LoopWatch | None = None
        self._log_dirs: LogDirs | None = None

    def set_ready(self, watch: LoopWatch, log_dirs: LogDirs) -> None:
        """Say that logs are recovered and listeners open."""
        self._watch = watch
        self._log_dirs = log_dirs
        self._doing = None

    def set_stopping(self) -> None:
        """Report that the broker accepts no more clients."""
        self._doing = "the broker is stopping"

    def why_not_alive(self) -> list[str]:
        """Say why the process should be ended and started again; nothing if it should not be.

        Opening logs after a crash may take its time, and is no reason.
        """
        if self._watch is None or self._doing is not None:
            return []
        silent_ms = self._clock.monotonic_ms() - self._watch.beat_ms
        if silent_ms <= SILENT_MS_MAX:
            return []
        return [f"the event loop has not turned for {silent_ms} ms"]

    def why_not_ready(self) -> list[str]:
        """Say why clients should go elsewhere; nothing if they are welcome."""
        if self._doing is not None:
            return [self._doing]
        reasons = self.why_not_alive()
        if self._log_dirs is not None and not self._log_dirs.online:
            reasons.append("all log directories have failed")
        return reasons
