"""An event loop in a thread of its own: what the synchronous clients stand on.

A caller waits in `run` for a coroutine that runs over there. Meanwhile that coroutine can have
functions called in the caller's own thread, with `call_in_caller`: a listener runs where the
application is, and may use the client itself.

A loop that nobody closed ends when nobody refers to its `LoopThread` any more, or with the
interpreter, without a word. In a process that was forked off there is no such thread: there
everything is refused with ForkedClientError, and nothing is touched that the parent still uses.
"""

import asyncio
import atexit
import logging
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from typing import Any, Final, TypeVar
from weakref import WeakSet, finalize

from ottla.clients.errors import ClientClosedError, ForkedClientError

CANCELLED_SECONDS_MAX: Final = 5.0
"""How long tasks may take to end that were cancelled by `close`; then they are left alone."""
T = TypeVar("T")
_log = logging.getLogger(__name__)


class _Call:
    """A function that the waiting thread is to call, and where the outcome goes."""

    __slots__ = ("_function", "_loop", "outcome")

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[Any] = self._loop.create_future()

    def run(self) -> None:
        """Call it; what is no Exception, such as Ctrl-C, is for the calling thread alone."""
        result, failure = None, None
        try:
            result = self._function()
        except Exception as error:  # noqa: BLE001 - raised where the call was asked for
            failure = error
        with suppress(RuntimeError):  # the loop has ended meanwhile: nobody wants to know
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

    Everything but `wait` happens in the loop's thread, so whether somebody waits cannot change
    between looking and asking. Into the queue go calls, and None when there is nothing more.
    """

    __slots__ = ("_calls", "_coroutine", "_queue", "_task", "is_waiting")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._calls: set[_Call] = set()
        self._task: asyncio.Task[Any] | None = None
        self.is_waiting = True

    def close(self) -> None:
        """Let go of a task that has not begun, and will not."""
        self._coroutine.close()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the task, in a context that knows who waits for it, and nothing else."""
        if not self.is_waiting:
            return
        context = Context()
        context.run(_caller.set, self)
        self._task = loop.create_task(self._coroutine, context=context)
        self._task.add_done_callback(self.leave)

    async def call(self, function: Callable[[], Any]) -> Any:
        """Have a function called by the waiting thread."""
        call = _Call(function)
        self._calls.add(call)
        self._queue.put(call)
        try:
            return await call.outcome
        finally:
            self._calls.discard(call)

    def wait(self) -> Any:
        """In the caller's thread: call what is asked for until the task is done; its result.

        CancelledError, too, where the loop ended before the task did.
        """
        while (call := self._queue.get()) is not None:
            call.run()
        if self._task is None or not self._task.done():
            raise asyncio.CancelledError
        return self._task.result()

    def leave(self, _: object = None) -> None:
        """Nobody waits from now on; what still runs, or is still to be called, is cancelled."""
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

    Where no thread waits, because the application is asyncio's own, or because the one that did
    has its result, it is called right here; what it returns is awaited if it is a coroutine.
    """
    caller = _caller.get()
    if caller is None or not caller.is_waiting:
        returned = function(*arguments)
        return await returned if asyncio.iscoroutine(returned) else returned
    called: T = await caller.call(lambda: function(*arguments))
    return called


def is_for_a_thread() -> bool:
    """Whether the running coroutine was begun by a thread that waits for it in `LoopThread.run`."""
    return _caller.get() is not None


def create_background_task(
    coroutine: Coroutine[Any, Any, T], *, name: str | None = None
) -> asyncio.Task[T]:
    """Start a task that outlives the call that starts it, and does not know who waited then.

    Keep what is returned: asyncio itself does not, and Python may collect a task that nobody has.
    """
    context = copy_context()
    context.run(_caller.set, None)
    return asyncio.get_running_loop().create_task(coroutine, name=name, context=context)


class _Server:
    """The loop and those who wait for it; what its thread holds on to.

    The lock protects `_callers` and `_is_over` together: whoever is in the set is told of the end.
    """

    def __init__(self, name: str) -> None:
        # Not uvloop's, were it there: only in this one can another thread take an answer itself.
        self.loop = asyncio.SelectorEventLoop()
        self.context = Context()
        self.thread = Thread(target=self._serve, name=name, daemon=True)
        self.process_id = os.getpid()
        self.is_stopping = False
        self._lock = Lock()
        self._callers: set[_Caller] = set()
        self._is_over = False
        self.at_end: list[Callable[[], object]] = []

    def enter(self, caller: _Caller) -> None:
        """Start what somebody waits for; ClientClosedError if it is too late.

        Whatever was started before the end is among the tasks that are then cancelled.
        """
        with self._lock:
            if self._is_over:
                caller.close()
                raise ClientClosedError("the client is closed")
            self._callers.add(caller)
            self.loop.call_soon_threadsafe(caller.start, self.loop, context=self.context)

    def leave(self, caller: _Caller) -> None:
        """Count somebody no longer."""
        with self._lock:
            self._callers.discard(caller)

    def stop(self) -> None:
        """End the loop, from any thread; nothing in a process that was forked off."""
        if self.is_here:
            with suppress(RuntimeError):  # it has ended
                self.loop.call_soon_threadsafe(self._stop)

    def stop_after(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """End the loop when something is done, in its own thread."""
        if not self.is_stopping:
            self._last = self.loop.create_task(work())
            self._last.add_done_callback(lambda _: self._stop())

    def stop_and_wait(self, seconds_max: float | None = None) -> None:
        """End the loop and, but in its own thread, wait for that."""
        self.stop()
        if self.is_here and self.thread.ident != get_ident():
            self.thread.join(seconds_max)

    @property
    def is_here(self) -> bool:
        """Whether this is the process that the thread is in."""
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
        """End the loop before the interpreter does, which would complain about its tasks."""
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
    """Let nothing of the parent's loops be complained about when this process ends."""
    for server in _servers:
        server.loop.set_exception_handler(lambda _loop, _context: None)


os.register_at_fork(after_in_child=_after_fork)


class LoopThread:
    """A running event loop. `close` ends it; what still runs in it is cancelled."""

    def __init__(self, name: str) -> None:
        self._server = _Server(name)
        self.loop = self._server.loop
        _servers.add(self._server)
        atexit.register(self._server.stop_at_exit)
        finalize(self, self._server.stop).atexit = False
        self._server.thread.start()

    @property
    def is_current(self) -> bool:
        """Whether this is asked in the loop's own thread."""
        return self._server.thread.ident == get_ident()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine over there, and return or raise what it does.

        Ctrl-C ends the waiting, and cancels the coroutine. ClientClosedError where the loop is
        closed, also while this waits; ForkedClientError in another process; RuntimeError in the
        loop's own thread, which would wait for itself.
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
        except BaseException:  # Ctrl-C, most of all, perhaps before it was entered
            self._abandon(caller)
            raise
        finally:
            self._server.leave(caller)
        return result

    def check(self) -> None:
        """Raise what `run` raises where nothing can be run, for what is done without it."""
        self._check_place()
        if self._server.is_stopping:
            raise ClientClosedError("the client is closed")

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Have a function called over there soon, and do not wait; it must not block or raise.

        ClientClosedError and ForkedClientError as in `run`.
        """
        if not self._server.is_here:
            raise self._forked()
        try:
            self.loop.call_soon_threadsafe(function, *arguments, context=self._server.context)
        except RuntimeError:
            raise ClientClosedError("the client is closed") from None

    def call_at_end(self, *functions: Callable[[], object]) -> None:
        """Have functions called over there, however this ends, before what runs is cancelled."""
        self._server.at_end.extend(functions)

    def close(self) -> None:
        """Cancel what runs, and end the thread. Whoever waits in `run` gets ClientClosedError."""
        self._server.stop_and_wait()

    def abandon(self) -> None:
        """Do as `close` does, but wait for nothing."""
        self._server.stop()

    def abandon_after(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a coroutine over there, and end when it is done; wait for nothing."""
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


async def _end(at_end: list[Callable[[], object]]) -> None:
    loop = asyncio.get_running_loop()
    for function in at_end:
        try:
            function()
        except Exception:  # noqa: BLE001 - everything else has to end all the same
            _log.exception("a client did not end in order")
    remaining = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in remaining:
        task.cancel()
    if remaining:
        await asyncio.wait(remaining, timeout=CANCELLED_SECONDS_MAX)
    await loop.shutdown_asyncgens()
