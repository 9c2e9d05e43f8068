"""Waiting for a batch, in a thread or in any event loop."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final, Protocol

from ottla.runtime.clock import SystemClock

ANSWER_SECONDS_MAX: Final = 0.05
"""How long a caller's thread reads for its own response; the wait also delays Ctrl-C."""
_monotonic_ms: Final = SystemClock().monotonic_ms
_log = logging.getLogger(__name__)


class AwaitedBatch(Protocol):
    """The interface of batches for waiting callers."""

    @property
    def is_done(self) -> bool:
        """Whether the batch was written or has failed."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that completes the batch."""
        ...

    def hurry(self) -> None:
        """Send the batch without lingering, because a caller waits."""
        ...

    def take_answer(self, seconds_max: float) -> bool:
        """Wait for the response if this thread can read it; return whether the batch is done."""
        ...

    def when_done(self, call: Callable[[], None]) -> None:
        """Call this when the batch is done, or at once if it is."""
        ...


def wait_in_thread(batch: AwaitedBatch, timeout: float | None) -> None:
    """Return when the batch is done; TimeoutError after the timeout in seconds."""
    if batch.is_done:
        return
    if batch.loop is not None and _running_loop() is batch.loop:
        raise RuntimeError(
            "this would wait for ever: the records are sent by the thread that waits. "
            "In a coroutine, await the delivery; in a callback, do not wait"
        )
    batch.hurry()
    began_ms = _monotonic_ms()
    if batch.take_answer(
        ANSWER_SECONDS_MAX if timeout is None else min(max(timeout, 0), ANSWER_SECONDS_MAX)
    ):
        return
    lock = Lock()
    lock.acquire()
    batch.when_done(lock.release)
    left = -1 if timeout is None else max(timeout - (_monotonic_ms() - began_ms) / 1000, 0)
    if not lock.acquire(timeout=left):
        raise TimeoutError(f"the record is not confirmed after {timeout:g} s")


def wait_in_loop(batch: AwaitedBatch) -> asyncio.Future[None]:
    """Return a future of the running loop that completes with the batch."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    batch.when_done(lambda: _finish(loop, future))
    batch.hurry()
    return future


def all_done(batches: Sequence[AwaitedBatch]) -> asyncio.Future[None]:
    """Return a future that completes with the last of these batches, which are sent at once."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    remaining = len(batches)

    def count() -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            _finish(loop, future)

    for batch in batches:
        batch.when_done(count)
        batch.hurry()
    if not batches:
        future.set_result(None)
    return future


def call_safely(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function of the application; an exception is only logged.

    A BaseException such as SystemExit is raised later by the event loop, if there is one: the
    results of the other records must be reported first.
    """
    try:
        function(*arguments)
    except Exception:  # noqa: BLE001 - of the application: the next callback must be called, too
        _log.exception("a delivery callback raised")
    except BaseException as error:
        loop = _running_loop()
        if loop is None:
            raise
        loop.call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error


def _finish(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    """Complete the future in its own loop; the batch may have been completed by any thread."""
    if _running_loop() is not loop:
        if not loop.is_closed():
            loop.call_soon_threadsafe(_finish, loop, future)
    elif not future.done():
        future.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
