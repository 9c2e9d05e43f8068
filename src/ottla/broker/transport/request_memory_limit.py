"""The memory that requests take, counted over all connections of a server."""

from collections.abc import Callable

Wake = Callable[[], None]


class RequestMemory:
    """Limits the bytes of requests that arrive or are in progress, over all connections.

    At the limit, connections that already hold request memory stop reading and wait; the others may
    read a little, so that small requests pass while large ones wait. Waiting connections might fill
    the memory, each with a part of a request. So unless requests in progress hold half of it, and
    will release it, one waiting connection gets priority, and reads on until its request is
    complete.
    """

    __slots__ = ("_bytes_max", "_favoured", "_waiting", "answering_bytes", "arriving_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._favoured: Wake | None = None
        # The waiting connections in FIFO order, and whether each has a part of a request.
        self._waiting: dict[Wake, bool] = {}
        self.arriving_bytes = 0
        self.answering_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether connections that hold request memory should stop reading."""
        return self.arriving_bytes + self.answering_bytes >= self._bytes_max

    def arriving(self, change_bytes: int) -> None:
        """Count received bytes and their room; negative when they have become a request."""
        self.arriving_bytes += change_bytes
        assert self.arriving_bytes >= 0, f"{change_bytes} bytes were never here"
        if self._waiting:
            self._wake()

    def answering(self, change_bytes: int) -> None:
        """Count a request in progress; a negative size when it completes."""
        self.answering_bytes += change_bytes
        assert self.answering_bytes >= 0, f"{change_bytes} bytes were never here"
        if self._waiting:
            self._wake()

    def wait(self, wake: Wake, *, has_part: bool) -> None:
        """Call back exactly once, when there is room again.

        A waiter with a part of a request is also called when it may be favoured.
        """
        self._waiting[wake] = has_part

    def favours(self, waiter: Wake) -> bool:
        """Return whether this waiter may read on, although the memory is full."""
        if self._can_favour:
            self._favoured = waiter
        return self._favoured == waiter

    def forget(self, waiter: Wake) -> None:
        """Remove a waiter; if it had priority, the next one gets it."""
        self._waiting.pop(waiter, None)
        if self._favoured == waiter:
            self._favoured = None
            if self._waiting:
                self._wake()

    @property
    def _can_favour(self) -> bool:
        return self._favoured is None and self.answering_bytes < self._bytes_max // 2

    def _wake(self) -> None:
        woken: list[Wake] = []
        if not self.is_full:
            woken = list(self._waiting)
        elif self._can_favour:
            woken = [wake for wake, has_part in self._waiting.items() if has_part][:1]
        for wake in woken:
            del self._waiting[wake]
        for wake in woken:
            wake()
