"""Begins coroutines at once: most requests never wait, and then need no task.

Python 3.12 has tasks that begin so. Before that, the first step is taken here, outside of a task of
its own: up to where it first waits, a coroutine must not ask for its current task, nor use
`asyncio.timeout` or `asyncio.TaskGroup`, which do.
"""

import asyncio
import sys
from collections.abc import Coroutine, Generator
from typing import Any


def start(
    work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop
) -> asyncio.Task[None] | None:
    """Run it up to where it first waits; return the task that goes on from there, if there is one.

    Who calls this keeps the task: an event loop alone does not keep it alive.
    """
    if sys.version_info >= (3, 12):
        task = asyncio.Task(work, loop=loop, eager_start=True)
        return None if task.done() else task
    try:
        awaited = work.send(None)
    except (StopIteration, asyncio.CancelledError):
        return None
    return loop.create_task(_Begun(work, awaited))


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
