"""A guard against concurrent use of a synchronous consumer."""

from threading import Lock, get_ident

from ottla.clients.consumer.state.errors import ConcurrentUseError


class OneThread:
    """Held during a call. It is reentrant, because listeners may call the consumer."""

    __slots__ = ("_depth", "_lock", "_owner")

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner = 0
        self._depth = 0

    def __enter__(self) -> None:
        if self._owner != get_ident():
            if not self._lock.acquire(blocking=False):
                raise ConcurrentUseError(
                    f"thread {self._owner} is using this consumer, and thread {get_ident()} tries "
                    "to: give each thread its own consumer, or call wakeup() from outside"
                )
            self._owner = get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = 0
            self._lock.release()
