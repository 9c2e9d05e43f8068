"""Starts coroutines eagerly: most requests never wait, and then need no task.

A coroutine becomes a task at its first wait. So up to that point it must not ask for its current
task, nor use `asyncio.timeout` or `asyncio.TaskGroup`, which do. Python 3.12 has the same in
`asyncio.Task(eager_start=True)`.
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any


def start(
    work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop
) -> asyncio.Task[None] | None:
    """Run it up to its first wait; return the task that continues it, unless it is done.

    The caller keeps that task: the event loop has only a weak reference.
    """
    try:
        awaited = work.send(None)
    except (StopIteration, asyncio.CancelledError):
        return None
    return asyncio.Task(_Begun(work, awaited), loop=loop)


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
        try:
            return self._work.throw(*error)
        finally:
            # The error's traceback has this frame. With the error in the frame, all that the
            # cancelled work holds would be in a cycle until the next full garbage collection.
            del error

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        raise TypeError("only an asyncio task can await it")
