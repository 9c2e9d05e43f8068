"""The clocks of this machine. The contract is `ottla.environment.clock`."""

from time import monotonic_ns, time_ns

_NS_PER_MS = 1_000_000


class SystemClock:
    """The kernel's clocks."""

    __slots__ = ()

    monotonic_ns = staticmethod(monotonic_ns)
    """Nanoseconds since the machine was started; a direct reference, without a Python call."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970 in UTC."""
        return time_ns() // _NS_PER_MS

    def monotonic_ms(self) -> int:
        """Return milliseconds since the machine was started."""
        return monotonic_ns() // _NS_PER_MS
