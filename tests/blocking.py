"""Finds blocking work on an event loop: blocking disk calls, and the loop's lag."""

import asyncio
import threading
from pathlib import Path
from typing import NamedTuple

from ottla.environment.disk import File
from ottla.runtime.disk import KernelDisk

SCHEDULING = Path("/proc/thread-self/schedstat")


class BlockingCall(NamedTuple):
    """A call that waits for the hardware."""

    thread_id: int
    call: str
    path: str


class BlockingCalls:
    """The calls that were made, by any thread."""

    def __init__(self) -> None:
        self._noted: list[BlockingCall] = []

    def note(self, call: str, path: str) -> None:
        self._noted.append(BlockingCall(threading.get_ident(), call, path))

    def by_this_thread(self) -> list[BlockingCall]:
        return [call for call in self._noted.copy() if call.thread_id == threading.get_ident()]

    def by_others(self) -> list[BlockingCall]:
        return [call for call in self._noted.copy() if call.thread_id != threading.get_ident()]

    def clear(self) -> None:
        self._noted.clear()


class _WatchedFile:
    """A file that records its syncs; all other calls go to the file itself."""

    def __init__(self, file: File, path: str, calls: BlockingCalls) -> None:
        self._file = file
        self._path = path
        self._calls = calls

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def sync(self) -> None:
        self._calls.note("sync", self._path)
        self._file.sync()


class WatchedDisk(KernelDisk):
    """The kernel's disk; records every call that waits for the hardware."""

    def __init__(self) -> None:
        self.calls = BlockingCalls()

    def open_file(self, path: str) -> File:
        return _WatchedFile(super().open_file(path), path, self.calls)  # type: ignore[return-value]

    def create_file(self, path: str) -> File:
        return _WatchedFile(super().create_file(path), path, self.calls)  # type: ignore[return-value]

    def sync_directory(self, path: str) -> None:
        self.calls.note("sync_directory", path)
        super().sync_directory(path)


class LoopLag:
    """Schedules calls on the loop again and again, and keeps their maximum delay.

    The time in which its thread could have run, and the kernel ran others instead, is not counted:
    it depends on the load of the machine. No test fails by this: it is for people and benchmarks.
    """

    INTERVAL_SECONDS = 0.002

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None
        self.max_ms = 0.0
        self.calls = 0

    def start(self) -> None:
        self._plan()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _plan(self) -> None:
        due = self._loop.time() + self.INTERVAL_SECONDS
        self._handle = self._loop.call_at(due, self._look, due, _kept_waiting_ms())

    def _look(self, due: float, kept_waiting_ms: float) -> None:
        late_ms = (self._loop.time() - due) * 1000
        self.max_ms = max(self.max_ms, late_ms - (_kept_waiting_ms() - kept_waiting_ms))
        self.calls += 1
        self._plan()


def _kept_waiting_ms() -> float:
    """Return for how long this thread has been ready, and did not get a processor."""
    return int(SCHEDULING.read_text(encoding="ascii").split()[1]) / 1e6
