"""Processes in a simulation: all tasks of a process stop with it, and at no other moment.

Everything that a process starts inherits its context: tasks, callbacks, timers. A task with
another context still belongs to the process that made it. Before a handle runs, the loop looks up
its process. Handles of a dead process are dropped, as by `kill -9`: no `finally` runs. Handles of a
paused process are kept until it continues.
"""

import asyncio
from collections import deque
from contextvars import Context, ContextVar, copy_context
from typing import Final, Optional

_PROCESS: Final[ContextVar[Optional["Process"]]] = ContextVar("process", default=None)


class Process:
    """One life of a program on one machine."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.context = copy_context()
        self.context.run(_PROCESS.set, self)
        self._parked: deque[asyncio.Handle] | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def is_paused(self) -> bool:
        """Whether it has been stopped for a while."""
        return self._parked is not None

    def pause(self) -> None:
        """Stop it for a while; it will not know."""
        if self._parked is None:
            self._parked = deque()

    def resume(self) -> deque[asyncio.Handle]:
        """Continue, and return the handles to run now."""
        parked, self._parked = self._parked, None
        return parked or deque()

    def takes(self, handle: asyncio.Handle) -> bool:
        """Tell whether a handle may run now; if it is only not now, keep it."""
        if not self.is_alive:
            return False
        if self._parked is not None:
            self._parked.append(handle)
            return False
        return True


def process_of(context: Context) -> Process | None:
    """Return the process that a context belongs to."""
    return context.get(_PROCESS)


def adopt(context: Context) -> None:
    """Assign a context without a process to the running process."""
    process = _PROCESS.get()
    if process is not None and process_of(context) is None:
        context.run(_PROCESS.set, process)


def running_process() -> Process | None:
    """Return the running process; None in the story itself."""
    return _PROCESS.get()


def current_process() -> Process:
    """Return the running process, which must exist."""
    process = _PROCESS.get()
    assert process is not None, "only processes have a network and a disk"
    return process
