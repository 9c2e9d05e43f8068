"""Begins coroutines at once: most requests never wait, and then need no task.

Those that wait for a `Wake` need none either: they go on when it is told. Only what waits for
something else becomes a task. So up to where it first does so, a coroutine must not ask for its
current task, nor use `asyncio.timeout` or `asyncio.TaskGroup`, which do.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Protocol


class Wake(asyncio.Future[bool]):
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
    if type(awaited) is Wake:
        return _Sleeper(work, awaited, loop)
    return asyncio.Task(_Begun(work, awaited), loop=loop)


class _Sleeper:
    """A coroutine that has waited for nothing but wakes so far."""

    __slots__ = ("_awaited", "_loop", "_work")

    def __init__(
        self, work: Coroutine[Any, Any, None], awaited: Wake, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._work = work
        self._loop = loop
        self._awaited: Wake | asyncio.Task[None] = awaited
        self._sleep(awaited)

    def _sleep(self, awaited: Wake) -> None:
        awaited._asyncio_future_blocking = False  # noqa: SLF001 - as whoever waits has to say
        awaited.add_done_callback(self._go_on)

    def _go_on(self, _: asyncio.Future[bool]) -> None:
        try:
            awaited = self._work.send(None)
        except (StopIteration, asyncio.CancelledError):
            return
        if type(awaited) is Wake:
            self._awaited = awaited
            self._sleep(awaited)
        else:
            self._awaited = asyncio.Task(_Begun(self._work, awaited), loop=self._loop)

    def cancel(self) -> None:
        self._awaited.cancel()


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
