"""Processes of a local cluster; none outlives the process that started them.

All are in one process group with a guard: a shell that reads from a pipe without writers. The
kernel closes the pipe when this process ends, however it ends; the guard then kills the group. The
kernel's own mechanism, PR_SET_PDEATHSIG, would kill a child when the thread that started it ends,
and needs a launcher for programs like Java. A group of their own also keeps Ctrl-C in a terminal
from the children: their parent stops them in order.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import sleep
from typing import Final

from ottla.runtime.clock import SystemClock

_GUARD: Final = ("/bin/sh", "-c", "read _; kill -KILL 0")
_TAIL_BYTES: Final = 4_000
_TAIL_LINES: Final = 12
_POLL_SECONDS: Final = 0.01

HOST: Final = "127.0.0.1"


class ClusterError(Exception):
    """The reason, in a sentence or two, why a local cluster cannot run."""


class ProcessGroup:
    """Starts processes that end when this process, and those forked from it, have ended."""

    def __init__(self) -> None:
        self._guard = subprocess.Popen(  # noqa: S603
            _GUARD,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        self._started: list[subprocess.Popen[bytes]] = []

    def spawn(
        self, command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start a process and append its output to a file."""
        self._started = [process for process in self._started if process.poll() is None]
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environ,
                process_group=self._guard.pid,
            )
        self._started.append(process)
        return process

    def close(self) -> None:
        """Kill the running processes, and return when all have ended."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        for process in (self._guard, *self._started):
            process.kill()  # the guard's work, in case the guard was killed
            process.wait()


class ChildProcess:
    """Successive processes that run the same program and write to one log."""

    def __init__(self, name: str, group: ProcessGroup, log: Path) -> None:
        self.name = name
        self.log = log
        """The program's stderr and stdout, for all its runs."""
        self.is_paused = False
        self._group = group
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process's number; ClusterError if there is none."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the process exists, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last process; negative for a signal, None while it runs."""
        return None if self._process is None else self._process.poll()

    def spawn(self, command: Sequence[str], environ: Mapping[str, str] | None = None) -> None:
        """Start the program."""
        if self.is_running:
            raise ClusterError(f"{self.name} is running already")
        self.is_paused = False
        self._process = self._group.spawn(command, self.log, environ)

    def wait_until_up(self, is_up: Callable[[], bool], seconds_max: float) -> None:
        """Wait until `is_up` returns true. ClusterError if the program ends, or takes too long."""

        def is_known() -> bool:
            if not self.is_running:
                raise ClusterError(f"{self.name} did not start:\n{self.last_lines()}")
            return is_up()

        wait_until(
            is_known,
            seconds_max,
            lambda: f"{self.name} did not start in {seconds_max:g} s:\n{self.last_lines()}",
        )

    def terminate(self, seconds_max: float) -> None:
        """Send SIGTERM, and wait. ClusterError if the program does not end, or fails."""
        process = self._running()
        process.terminate()
        try:
            code = process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            raise ClusterError(
                f"{self.name} did not stop in {seconds_max:g} s:\n{self.last_lines()}"
            ) from None
        if code:
            raise ClusterError(f"{self.name} ended with {code}:\n{self.last_lines()}")

    def kill(self) -> None:
        """Kill the process like a power failure, and wait until it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.is_paused = False

    def pause(self) -> None:
        """Pause the process, and return when it no longer runs."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.is_paused = True

    def resume(self) -> None:
        """Continue a paused process."""
        self._running().send_signal(signal.SIGCONT)
        self.is_paused = False

    def last_lines(self) -> str:
        """Return the end of the log."""
        with self.log.open("rb") as opened:
            opened.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            lines = opened.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            raise ClusterError(f"{self.name} is not running")
        return self._process


def wait_until(is_so: Callable[[], bool], seconds_max: float, sentence: Callable[[], str]) -> None:
    """Poll until the condition holds. ClusterError with a sentence if it does not in time."""
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + 1000 * seconds_max
    while not is_so():
        if clock.monotonic_ms() > deadline_ms:
            raise ClusterError(sentence())
        sleep(_POLL_SECONDS)


class ReservedPort:
    """A port on loopback that the kernel assigns to no other process, until it is released.

    A socket is bound to it and never listens. A server may listen on this port, with SO_REUSEADDR;
    a process that binds or connects from a free port gets a different one.
    """

    def __init__(self, number: int = 0) -> None:
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._held.bind((HOST, number))
        except OverflowError:
            self._held.close()
            raise ClusterError(f"there is no port {number}: 65535 is the last") from None
        except OSError as error:
            self._held.close()
            raise ClusterError(f"port {number} cannot be had: {error.strerror}") from None
        self.number = int(self._held.getsockname()[1])

    def release(self) -> None:
        """Release the port."""
        self._held.close()
