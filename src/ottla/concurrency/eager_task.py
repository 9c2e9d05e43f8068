"""Begins coroutines at once: most requests never wait, and then need no task.

Those that wait for a `Woken` need none either: they go on when it is told. Only what waits for
something else becomes a task. So up to where it first does so, a coroutine must not ask for its
current task, nor use `asyncio.timeout` or `asyncio.TaskGroup`, which do.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Protocol


class Woken(asyncio.Future[bool]):
    """What can be waited for without a task."""

    __slots__ = ()


class Waiting(Protocol):
    """A coroutine that has begun, and waits."""

    def cancel(self) -> object:
        """Have it told, where it waits, that nobody needs it any more."""
        ...


def start(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> Waiting | None:
    """Run it up to where it first waits; return what goes on from there, unless it is done.

    Who calls this keeps that: an event loop alone does not keep it alive.
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
        awaited._asyncio_future_blocking = False  # noqa: SLF001 - as whoever waits has to say
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
        # One that has just been woken has not gone on yet: it hears of it then.
        self._is_cancelled = not self._awaited.cancel()


class _Begun(Coroutine[Any, Any, None]):
    """A coroutine that has begun, and what it waits for: the first thing that its task is told."""

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
