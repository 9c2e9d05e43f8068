"""Time, as two clocks that must not be mixed."""

from typing import Protocol


class Clock(Protocol):
    """Tells the time in whole milliseconds; sleeping is the event loop's business."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970 in UTC, for records and people.

        It jumps, also backwards, when the clock is set: no wait may depend on it.
        """
        ...

    def monotonic_ms(self) -> int:
        """Return milliseconds since some moment, for deadlines; never less than before."""
        ...

    def monotonic_ns(self) -> int:
        """Return the same in nanoseconds, for measuring how long something takes."""
        ...
