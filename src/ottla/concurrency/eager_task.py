"""Starts coroutines eagerly: most requests never wait, and then need no task.

A coroutine that waits for a `Woken` needs no task either: it continues when that is completed. Only
a coroutine that waits for something else becomes a task. So up to that point a coroutine must not
ask for its current task, nor use `asyncio.timeout` or `asyncio.TaskGroup`, which do.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Protocol


class Woken(asyncio.Future[bool]):
    """A future that can be awaited without a task."""

    __slots__ = ()


class Waiting(Protocol):
    """A coroutine that has begun, and waits."""

    def cancel(self) -> object:
        """Cancel the coroutine that waits."""
        ...


def start(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> Waiting | None:
    """Run it up to its first wait; return the object that continues it, unless it is done.

    The caller keeps that object: the event loop has only a weak reference.
    """
    try:
        awaited = work.send(None)
    except (StopIteration, asyncio.CancelledError):
        return None
    if type(awaited) is Woken:
        return _Sleeper(work, awaited, loop)
    return asyncio.Task(_Begun(work, awaited), loop=loop)


class _Sleeper:
    """A coroutine that has waited for nothing but wakes so far."""

    __slots__ = ("_awaited", "_is_cancelled", "_loop", "_work")

    def __init__(
        self, work: Coroutine[Any, Any, None], awaited: Woken, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._work = work
        self._loop = loop
        self._is_cancelled = False
        self._awaited: Woken | asyncio.Task[None] = awaited
        self._sleep(awaited)

    def _sleep(self, awaited: Woken) -> None:
        awaited._asyncio_future_blocking = False  # noqa: SLF001 - part of asyncio's await protocol
        awaited.add_done_callback(self._go_on)

    def _go_on(self, _: asyncio.Future[bool]) -> None:
        work = self._work
        try:
            awaited = (
                work.throw(asyncio.CancelledError()) if self._is_cancelled else work.send(None)
            )
        except (StopIteration, asyncio.CancelledError):
            return
        self._is_cancelled = False
        if type(awaited) is Woken:
            self._awaited = awaited
            self._sleep(awaited)
        else:
            self._awaited = asyncio.Task(_Begun(work, awaited), loop=self._loop)

    def cancel(self) -> None:
        # A coroutine that was just woken has not continued yet: it is cancelled when it does.
        self._is_cancelled = not self._awaited.cancel()


class _Begun(Coroutine[Any, Any, None]):
    """A started coroutine, and the future that it waits for: the first that its task gets."""

    __slots__ = ("_awaited", "_work")

    def __init__(self, work: Coroutine[Any, Any, None], awaited: object) -> None:
        self._work = work
        self._awaited = awaited

    def send(self, value: None) -> Any:
        awaited, self._awaited = self._awaited, None
        return self._work.send(value) if awaited is None else awaited

    def throw(self, *error: Any) -> Any:
        self._awaited = None
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise TypeError("a task goes on with it, nobody else")
