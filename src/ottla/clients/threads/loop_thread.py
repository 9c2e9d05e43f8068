"""An event loop in a thread of its own, under the synchronous clients.

A caller waits in `run` for a coroutine that runs in the loop. Meanwhile the coroutine can call
functions in the caller's thread, with `call_in_caller`: a listener runs in the application's
thread, and may use the client itself.

An unclosed loop ends silently with the last reference to its `LoopThread`, or with the interpreter.
A forked process does not have the thread: there every call raises ForkedClientError, and the
parent's connections are not touched.
"""

import asyncio
import atexit
import logging
import os
import selectors
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from typing import Any, Final, TypeVar
from weakref import WeakSet, finalize

from ottla.clients.errors import ClientClosedError, ForkedClientError

CANCELLED_SECONDS_MAX: Final = 5.0
"""How long `close` waits for cancelled tasks to end; then it abandons them."""
NO_EPOLL: Final = -1
T = TypeVar("T")
_log = logging.getLogger(__name__)


class _Call:
    """A function to call in the waiting thread, and the future of its result."""

    __slots__ = ("_function", "_loop", "outcome")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[Any] = self._loop.create_future()

    def run(self) -> None:
        """Call it; a BaseException such as KeyboardInterrupt stays in the calling thread."""
        result, failure = None, None
        try:
            result = self._function()
        except Exception as error:  # noqa: BLE001 - raised where the call was asked for
            failure = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(self._finish, result, failure)

    def _finish(self, result: Any, failure: Exception | None) -> None:
        if self.outcome.done():
            return
        if failure is None:
            self.outcome.set_result(result)
        else:
            self.outcome.set_exception(failure)


class _Caller:
    """A thread that waits for a task.

    Everything but `wait` happens in the loop's thread, so `is_waiting` cannot change between a
    check and the act that relies on it. The queue holds calls, and None at the end.
    """

    __slots__ = ("_calls", "_coroutine", "_queue", "_task", "is_waiting")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._calls: set[_Call] = set()
        self._task: asyncio.Task[Any] | None = None
        self.is_waiting = True

    def close(self) -> None:
        """Discard a task that was not started."""
        self._coroutine.close()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the task, in a context that holds only this caller."""
        if not self.is_waiting:
            return
        context = Context()
        context.run(_caller.set, self)
        self._task = loop.create_task(self._coroutine, context=context)
        self._task.add_done_callback(self.leave)

    async def call(self, function: Callable[[], Any]) -> Any:
        """Call a function in the waiting thread."""
        call = _Call(function)
        self._calls.add(call)
        self._queue.put(call)
        try:
            return await call.outcome
        finally:
            self._calls.discard(call)

    def wait(self) -> Any:
        """Run queued calls in the caller's thread until the task is done; return its result.

        CancelledError also if the loop ended before the task did.
        """
        while (call := self._queue.get()) is not None:
            call.run()
        if self._task is None or not self._task.done():
            raise asyncio.CancelledError
        return self._task.result()

    def leave(self, _: object = None) -> None:
        """Cancel the caller's task and its queued calls: it no longer waits."""
        self.is_waiting = False
        if self._task is None:
            self.close()
        else:
            self._task.cancel()
        for call in self._calls:
            call.outcome.cancel()
        self._queue.put(None)


_caller: Final[ContextVar[_Caller | None]] = ContextVar("the waiting thread", default=None)


async def call_in_caller(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in the thread that waits in `LoopThread.run` for this coroutine.

    If no thread waits, because the application uses asyncio or the thread already has its result,
    the function is called right here; its result is awaited if it is a coroutine.
    """
    caller = _caller.get()
    if caller is None or not caller.is_waiting:
        returned = function(*arguments)
        return await returned if asyncio.iscoroutine(returned) else returned
    called: T = await caller.call(lambda: function(*arguments))
    return called


def is_for_a_thread() -> bool:
    """Whether a thread in `LoopThread.run` waits for the running coroutine."""
    return _caller.get() is not None


def create_background_task(
    coroutine: Coroutine[Any, Any, T], *, name: str | None = None
) -> asyncio.Task[T]:
    """Start a task that outlives the current call, in a context without a waiting caller.

    Keep the returned task: asyncio holds only a weak reference to it.
    """
    context = copy_context()
    context.run(_caller.set, None)
    return asyncio.get_running_loop().create_task(coroutine, name=name, context=context)


class _Server:
    """The loop and its waiting callers: all that the loop's thread refers to.

    The lock protects `_callers` and `_is_over` together, so that every caller in the set is
    notified of the end.
    """

    def __init__(self, name: str) -> None:
        # Not uvloop's loop, which hides its epoll.
        selector = selectors.DefaultSelector()
        self.epoll = selector.fileno() if _is_epoll(selector) else NO_EPOLL
        self.loop = asyncio.SelectorEventLoop(selector)
        self.context = Context()
        self.thread = Thread(target=self._serve, name=name, daemon=True)
        self.process_id = os.getpid()
        self.is_stopping = False
        self._lock = Lock()
        self._callers: set[_Caller] = set()
        self._is_over = False
        self.at_end: list[Callable[[], object]] = []

    def enter(self, caller: _Caller) -> None:
        """Start the caller's task; ClientClosedError if the loop has ended.

        A task that was started before the end is among the tasks that the end cancels.
        """
        with self._lock:
            if self._is_over:
                caller.close()
                raise ClientClosedError("the client is closed")
            self._callers.add(caller)
            self.loop.call_soon_threadsafe(caller.start, self.loop, context=self.context)

    def leave(self, caller: _Caller) -> None:
        """Remove a caller."""
        with self._lock:
            self._callers.discard(caller)

    def stop(self) -> None:
        """End the loop, from any thread; does nothing in a forked process."""
        if self.is_here:
            with suppress(RuntimeError):  # it has ended
                self.loop.call_soon_threadsafe(self._stop)

    def stop_after(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """End the loop after a coroutine has completed in it."""
        if not self.is_stopping:
            self._last = self.loop.create_task(work())
            self._last.add_done_callback(lambda _: self._stop())

    def stop_and_wait(self, seconds_max: float | None = None) -> None:
        """End the loop; outside of its own thread, also wait for the end."""
        self.stop()
        if self.is_here and self.thread.ident != get_ident():
            self.thread.join(seconds_max)

    @property
    def is_here(self) -> bool:
        """Whether this is the thread's process, and not a fork."""
        return os.getpid() == self.process_id

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while not self.is_stopping:
                self._run_forever()
            with self._lock:
                self._is_over = True
            self.loop.run_until_complete(_end(self.at_end))
        finally:
            for caller in tuple(self._callers):
                caller.leave()
            asyncio.set_event_loop(None)
            self.loop.close()
            atexit.unregister(self.stop_at_exit)

    def stop_at_exit(self) -> None:
        """End the loop at interpreter exit, so that asyncio does not warn of its tasks."""
        self.stop_and_wait(CANCELLED_SECONDS_MAX)

    def _run_forever(self) -> None:
        try:
            self.loop.run_forever()
        except (SystemExit, KeyboardInterrupt):  # of a callback: no reason to fail all others
            _log.exception("a callback tried to end the client's thread")

    def _stop(self) -> None:
        if not self.is_stopping:  # else the loop runs its last tasks, and must not be disturbed
            self.is_stopping = True
            self.loop.stop()


_servers: Final[WeakSet[_Server]] = WeakSet()


def _after_fork() -> None:
    """Suppress warnings about the parent's loops when this process ends."""
    for server in _servers:
        server.loop.set_exception_handler(lambda _loop, _context: None)


os.register_at_fork(after_in_child=_after_fork)


class LoopThread:
    """A running event loop. `close` ends it and cancels its tasks."""

    def __init__(self, name: str) -> None:
        self._server = _Server(name)
        self.loop = self._server.loop
        self.epoll = self._server.epoll
        """The loop's epoll descriptor, for a thread that receives its own response; or NO_EPOLL."""
        _servers.add(self._server)
        atexit.register(self._server.stop_at_exit)
        finalize(self, self._server.stop).atexit = False
        self._server.thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller is in the loop's own thread."""
        return self._server.thread.ident == get_ident()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and return its result or raise its exception.

        Ctrl-C ends the wait, and cancels the coroutine. ClientClosedError if the loop is closed,
        also during the wait; ForkedClientError in another process; RuntimeError in the loop's own
        thread, which would wait for itself.
        """
        caller = _Caller(coroutine)
        try:
            self._check_place()
        except BaseException:
            caller.close()
            raise
        try:
            self._server.enter(caller)
            result: T = caller.wait()
        except asyncio.CancelledError:
            if self._server.is_stopping:
                raise ClientClosedError("the client was closed while this call waited") from None
            raise
        except BaseException:  # mainly Ctrl-C, perhaps before `enter`
            self._abandon(caller)
            raise
        finally:
            self._server.leave(caller)
        return result

    def check(self) -> None:
        """Raise the error that `run` would raise, for calls that do not use `run`."""
        self._check_place()
        if self._server.is_stopping:
            raise ClientClosedError("the client is closed")

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop's thread soon, without waiting; it must not block or raise.

        ClientClosedError and ForkedClientError as in `run`.
        """
        if not self._server.is_here:
            raise self._forked()
        try:
            self.loop.call_soon_threadsafe(function, *arguments, context=self._server.context)
        except RuntimeError:
            raise ClientClosedError("the client is closed") from None

    def call_at_end(self, *functions: Callable[[], object]) -> None:
        """Register functions that the loop calls at its end, before it cancels its tasks."""
        self._server.at_end.extend(functions)

    def close(self) -> None:
        """Cancel all tasks, and end the thread. Callers in `run` get ClientClosedError."""
        self._server.stop_and_wait()

    def abandon(self) -> None:
        """Close without waiting."""
        self._server.stop()

    def abandon_after(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a coroutine in the loop, and end the loop afterwards; without waiting."""
        with suppress(ClientClosedError):
            self.post(self._server.stop_after, work)

    def _check_place(self) -> None:
        if not self._server.is_here:
            raise self._forked()
        if self.is_current:
            raise RuntimeError(
                "a callback in the client's own thread cannot wait for the client: "
                "let another thread do it"
            )

    def _forked(self) -> ForkedClientError:
        return ForkedClientError(
            f"this client was made in process {self._server.process_id}, before a fork: "
            f"make one in each process (this is {os.getpid()})"
        )

    def _abandon(self, caller: _Caller) -> None:
        with suppress(RuntimeError):  # the loop has ended, and so has the coroutine
            self.loop.call_soon_threadsafe(caller.leave)


def _is_epoll(selector: selectors.BaseSelector) -> bool:
    return isinstance(selector, getattr(selectors, "EpollSelector", ()))


async def _end(at_end: list[Callable[[], object]]) -> None:
    loop = asyncio.get_running_loop()
    for function in at_end:
        try:
            function()
        except Exception:  # noqa: BLE001 - everything else has to end all the same
            _log.exception("closing a client failed")
    remaining = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in remaining:
        task.cancel()
    if remaining:
        await asyncio.wait(remaining, timeout=CANCELLED_SECONDS_MAX)
    await loop.shutdown_asyncgens()
