"""Synchronous facades of asynchronous objects, without writing every call twice.

A facade lists its calls; each keeps the arguments, the types and the docstring of the asynchronous
method.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from ottla.clients.threads.loop_thread import LoopThread

N = TypeVar("N")
P = ParamSpec("P")
R = TypeVar("R")


class Face(Generic[N]):
    """An asynchronous object, with the thread that runs its calls."""

    def __init__(self, thread: LoopThread, behind: N) -> None:
        self._thread = thread
        self._behind = behind

    def _wait(self, call: Callable[[N], Coroutine[Any, Any, R]]) -> R:
        return self._thread.run(call(self._behind))


def blocking(
    method: Callable[Concatenate[N, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Face[N], P], R]:
    """Make a method of a facade: it waits for the result of the asynchronous method."""

    @wraps(method)
    def wait(face: Face[N], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return face._wait(lambda behind: method(behind, *args, **kwargs))  # noqa: SLF001 - its own

    return wait
