"""The memory that requests take, counted over all connections of a server."""

from collections.abc import Callable

Wake = Callable[[], None]


class RequestMemory:
    """Counts the bytes of requests that arrive or are being answered, and knows who waits.

    Whoever finds it full, and has a share in it, stops reading and waits; who has none may still
    read a little, so that small requests pass while large ones have to wait. Those who wait might
    fill it, each with a part of a request. So unless requests that are being answered take half of
    it, and will leave, one of the others is favoured, and may read on until its request is here.
    """

    __slots__ = ("_bytes_max", "_favoured", "_waiting", "answering_bytes", "arriving_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._favoured: Wake | None = None
        # Who waits, first come first, and whether a part of a request is what it has.
        self._waiting: dict[Wake, bool] = {}
        self.arriving_bytes = 0
        self.answering_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no more should be read by those who have a share in it."""
        return self.arriving_bytes + self.answering_bytes >= self._bytes_max

    def arriving(self, change_bytes: int) -> None:
        """Count what has arrived, or has room made for it; less of it once it is a request."""
        self.arriving_bytes += change_bytes
        assert self.arriving_bytes >= 0, f"{change_bytes} bytes were never here"
        if self._waiting:
            self._wake()

    def answering(self, change_bytes: int) -> None:
        """Count a request that is being answered; less of it once that is done."""
        self.answering_bytes += change_bytes
        assert self.answering_bytes >= 0, f"{change_bytes} bytes were never here"
        if self._waiting:
            self._wake()

    def wait(self, wake: Wake, *, has_part: bool) -> None:
        """Call once, and once only, when there is room again.

        One that has a part of a request is also called when it could be favoured.
        """
        self._waiting[wake] = has_part

    def favours(self, waiter: Wake) -> bool:
        """Tell whether this one may read on, although it is full."""
        if self._can_favour:
            self._favoured = waiter
        return self._favoured == waiter

    def forget(self, waiter: Wake) -> None:
        """Do not call; and if this one was favoured, it is another's turn."""
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
