"""An event loop with virtual time: when it is idle, it jumps to the next timer.

Equal seeds give equal runs, so nothing here may depend on addresses or on the real world:

* ready handles run in the order in which they became ready, timers of one moment in the order in
  which they were set;
* tasks hash by their number, so that asyncio's sets of tasks have one order;
* garbage is collected at fixed steps, so that finalizers run at the same points;
* the loop itself does the work of threads, after a random delay;
* sockets are simulated ones, which notify the loop of their changes.

asyncio's own `BaseEventLoop` does the rest. `_run_once` is the only private part that is replaced.

Its trace is one number: equal traces mean equal runs.
"""

import asyncio
import gc
import heapq
import marshal
import threading
import warnings
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from hashlib import blake2b
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Any, Final, Protocol, TypeVar

from ottla.simulation.world.process import Process, adopt, process_of

UNHASHED_MAX: Final = 4000
"""So many words are hashed together."""
PLAIN: Final = 2
"""The version in which marshal writes equal values as equal bytes, with or without references."""

STEPS_AT_ONE_MOMENT_MAX: Final = 1_000_000
STEPS_BETWEEN_COLLECTIONS: Final = 50_000
WORK_SECONDS_MEAN: Final = 0.0004
NOBODY: Final = "None"
"""The owner, in the trace, of steps that belong to no process."""
T = TypeVar("T")


class Trace:
    """Hashes every event; optionally keeps readable lines, too."""

    def __init__(self, *, keeps_lines: bool = False) -> None:
        self.keeps_lines = keeps_lines
        self.lines: list[str] = []
        """Every event."""
        self.news: list[str] = []
        """Recorded notes: a few lines where events are thousands."""
        self._hash = blake2b(digest_size=16)
        self._unhashed: list[float | str] = []

    def add(self, now: float, *words: str | int) -> None:
        """Take an event at a moment. Words must not hold addresses, nor anything of the host."""
        unhashed = self._unhashed
        unhashed += (now, *words)
        if len(unhashed) >= UNHASHED_MAX:
            self._hash_all()
        if self.keeps_lines:
            self.lines.append(_line(now, words))

    def note(self, now: float, *words: str | int) -> None:
        """Take an event that people want to know of."""
        self.add(now, *words)
        self.tell(now, *words)

    def tell(self, now: float, *words: object) -> None:
        """Keep a line for people: it is not an event, and may hold anything."""
        if self.keeps_lines:
            self.news.append(_line(now, words))

    def digest(self) -> str:
        """Return the number, of all events so far."""
        self._hash_all()
        return self._hash.hexdigest()

    def _hash_all(self) -> None:
        self._hash.update(marshal.dumps(self._unhashed, PLAIN))
        self._unhashed.clear()


def _line(now: float, words: tuple[object, ...]) -> str:
    return f"{now:.6f} {' '.join(map(str, words))}"


class DeadlockError(RuntimeError):
    """Nothing is ready, and no timer is set: nothing will ever happen again."""


class LivelockError(RuntimeError):
    """Time stands still while callbacks go on calling each other."""


class Watched(Protocol):
    """A socket, as the loop sees it."""

    def is_readable(self) -> bool:
        """Tell whether reading would not block."""
        ...

    def is_writable(self) -> bool:
        """Tell whether writing would not block."""
        ...


class NumberedTask(asyncio.Task[Any]):
    """A task that hashes by its number, which is the same in every run."""

    def __init__(self, work: Coroutine[Any, Any, Any], number: int, **options: Any) -> None:
        self.number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self.number


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs everything of a simulation, and keeps its trace."""

    # Of BaseEventLoop, which does not declare them.
    _ready: deque[asyncio.Handle]
    _stopping: bool
    _thread_id: int | None

    def __init__(self, stream: Random, trace: Trace) -> None:
        super().__init__()
        self.trace = trace
        self.steps = 0
        self.after_step: Callable[[Process | None], None] | None = None
        """Called after each step with the process of the step, None if it has none."""
        self._stream = stream
        self._now = 0.0
        self._number = 0
        self._steps_before_now = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        # Kept until they end: a task of a dead process must not be collected, which would run its
        # `finally` blocks.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._readers: dict[Watched, asyncio.Handle] = {}
        self._writers: dict[Watched, asyncio.Handle] = {}
        self._touched: dict[Watched, None] = {}
        self.set_task_factory(_numbered)  # type: ignore[arg-type]  # a function is a factory too

    # -- time -----------------------------------------------------------------------------------

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._now

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call something at a moment; of two for the same moment the first comes first."""
        handle = events.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, self.next_number(), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave it where it is: it is passed over when its time comes."""

    async def elapse(self, seconds: float) -> None:
        """Let time pass."""
        passed = self.create_future()
        timer = self.call_later(seconds, _set, passed)
        try:
            await passed
        finally:
            timer.cancel()

    def next_number(self) -> int:
        """Return a number that was never returned before."""
        self._number += 1
        return self._number

    # -- one round ------------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run until `stop`."""
        was_enabled = gc.isenabled()
        gc.disable()
        gc.freeze()  # existing objects need not be scanned again and again
        try:
            super().run_forever()
        finally:
            gc.unfreeze()
            if was_enabled:
                gc.enable()

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call something after all that is ready; without asyncio's questions for debugging."""
        handle = events.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _run_once(self) -> None:
        if self._touched:
            self._poll()
        self._jump()
        ready = self._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                self._step(handle)

    def _jump(self) -> None:
        """Jump to the next event, and make the due handles ready."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not self._ready and not self._stopping:
            if not timers:
                raise DeadlockError(f"at {self._now:.3f} s nothing is left to happen")
            if timers[0][0] > self._now:
                self._now = timers[0][0]
                self._steps_before_now = self.steps
        while timers and timers[0][0] <= self._now:
            self._ready.append(heapq.heappop(timers)[2])

    def _step(self, handle: asyncio.Handle) -> None:
        process = process_of(handle._context)  # type: ignore[attr-defined]
        if process is not None and not process.takes(handle):
            return
        self.steps += 1
        if self.steps - self._steps_before_now > STEPS_AT_ONE_MOMENT_MAX:
            raise LivelockError(f"time stands still at {self._now:.3f} s: {handle!r}")
        if self.steps % STEPS_BETWEEN_COLLECTIONS == 0:
            gc.collect()
        who = NOBODY if process is None else process.name
        self.trace.add(self._now, who, _name_of(handle))
        handle._run()
        if self.after_step is not None:
            self.after_step(process)

    def resume(self, process: Process) -> None:
        """Let a paused process go on."""
        self._ready.extend(process.resume())
        self._touched.update(dict.fromkeys([*self._readers, *self._writers]))

    # -- sockets --------------------------------------------------------------------------------

    def add_reader(self, watched: Watched, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        """Call back as long as the socket is readable."""
        self._readers[watched] = events.Handle(callback, args, self)
        self._touched[watched] = None

    def remove_reader(self, watched: Watched) -> bool:  # type: ignore[override]
        """Call back no more."""
        return _remove(self._readers, watched)

    def add_writer(self, watched: Watched, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        """Call back as long as the socket is writable."""
        self._writers[watched] = events.Handle(callback, args, self)
        self._touched[watched] = None

    def remove_writer(self, watched: Watched) -> bool:  # type: ignore[override]
        """Call back no more."""
        return _remove(self._writers, watched)

    def touch(self, watched: Watched) -> None:
        """Look at a socket in the next round: something about it has changed."""
        self._touched[watched] = None

    def _poll(self) -> None:
        """Make the callbacks of sockets ready; a socket is looked at until there is nothing."""
        for watched in list(self._touched):
            reader = self._readers.get(watched)
            writer = self._writers.get(watched)
            is_busy = False
            if reader is not None and watched.is_readable():
                self._ready.append(reader)
                is_busy = True
            if writer is not None and watched.is_writable():
                self._ready.append(writer)
                is_busy = True
            if not is_busy or not self._is_running(reader or writer):
                del self._touched[watched]

    @staticmethod
    def _is_running(handle: asyncio.Handle | None) -> bool:
        """Return whether the process of a handle can run it now."""
        process = None if handle is None else process_of(handle._context)  # type: ignore[attr-defined]
        return process is None or (process.is_alive and not process.is_paused)

    # -- threads --------------------------------------------------------------------------------

    def run_in_executor(  # type: ignore[override]
        self, _executor: object, work: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Do work for a thread here, all at once, after as long as threads and disks may take."""
        done: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if done.done():
                return
            try:
                result = work(*args)
            except Exception as error:  # noqa: BLE001 - passed on to the waiting caller
                done.set_exception(error)
            else:
                done.set_result(result)

        self.call_later(self._stream.expovariate(1 / WORK_SECONDS_MEAN), run)
        return done

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call soon; a real thread has no place here."""
        assert self._thread_id in {None, threading.get_ident()}, "a thread got into the simulation"
        return self.call_soon(callback, *args, context=context)

    def _write_to_self(self) -> None:
        """Do nothing: no selector has to be woken."""

    def _process_events(self, event_list: object) -> None:
        """There are no events of a kernel."""

    def close(self) -> None:
        """End the world; unfinished tasks are not reported, nor are their errors."""
        self.set_exception_handler(lambda *_: None)
        for task in list(self._tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(Exception):
                task.get_coro().close()
        self._tasks.clear()
        # A task that is closed in a `finally` may have asked for a coroutine that cannot run now.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            super().close()

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Refer to a task until it ends."""
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)


def _numbered(
    loop: VirtualLoop,
    work: Coroutine[Any, Any, Any],
    *,
    context: Context | None = None,
    **options: Any,
) -> asyncio.Task[Any]:
    number = loop.next_number()
    if context is not None:
        adopt(context)
    options.setdefault("name", f"task-{number}")
    task = NumberedTask(work, number, loop=loop, context=context, **options)
    loop.keep(task)
    return task


def _set(passed: "asyncio.Future[None]") -> None:
    if not passed.done():  # the waiter may have been cancelled at this very moment
        passed.set_result(None)


def _remove(handles: dict[Watched, asyncio.Handle], watched: Watched) -> bool:
    handle = handles.pop(watched, None)
    if handle is None:
        return False
    handle.cancel()
    return True


def _name_of(handle: asyncio.Handle) -> str | int:
    """Return a name for a handle's callback that is the same in every run."""
    callback = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, NumberedTask):
        return owner.number
    name: str = getattr(callback, "__qualname__", "?")
    return name
