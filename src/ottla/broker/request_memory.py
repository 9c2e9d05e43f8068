"""The memory that requests take, counted over all connections of a server."""

from collections.abc import Callable

Wake = Callable[[], None]


class RequestMemory:
    """Counts the bytes of requests that are here, and knows who waits for there to be fewer.

    Whoever finds it full, and has a share in it, stops reading and waits; who has none may still
    read a little, so that small requests pass while large ones have to wait. All might wait like
    this, each with a part of a request. So one at a time is favoured, and may read on.
    """

    __slots__ = ("_bytes_max", "_favoured", "_waiting", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._favoured: Wake | None = None
        # A dict in place of a set, for its order: who came first is woken first.
        self._waiting: dict[Wake, None] = {}
        self.used_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no more should be read by those who have a share in it."""
        return self.used_bytes >= self._bytes_max

    def take(self, size_bytes: int) -> None:
        """Count bytes that have arrived, or that room was made for."""
        self.used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Count them no longer, and wake those who wait if there is room again."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, f"{size_bytes} bytes more than were taken"
        if self._waiting and not self.is_full:
            woken, self._waiting = self._waiting, {}
            for wake in woken:
                wake()

    def wait(self, wake: Wake) -> None:
        """Call once, and once only, when there is room again or nobody is favoured."""
        self._waiting[wake] = None

    def favours(self, waiter: Wake) -> bool:
        """Tell whether this is the one that may read on; it is if there is none."""
        if self._favoured is None:
            self._favoured = waiter
        return self._favoured == waiter

    def forget(self, waiter: Wake) -> None:
        """Do not call; and if this was favoured, it is another's turn."""
        self._waiting.pop(waiter, None)
        if self._favoured == waiter:
            self._favoured = None
            if self._waiting:
                wake = next(iter(self._waiting))
                del self._waiting[wake]
                wake()
