"""The process that runs a pipeline: at most one, which holds a lock until it ends."""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, Final, NamedTuple, Self

from ottla.pipelines.running.folders import PipelineDirectory, read_json, write_json

REMAINS_SECONDS_MAX: Final = 30
"""How long the JVM of a killed process may take to end."""
_POLL_SECONDS: Final = 0.05


class PipelineError(Exception):
    """A pipeline cannot be run, or has failed: one sentence with the reason."""


class Outcome(StrEnum):
    """The state of a pipeline."""

    RUNNING = "running"
    STOPPED = "stopped"
    """It was stopped on request."""
    DONE = "done"
    """It had caught up, and was configured to end then."""
    FAILED = "failed"
    DIED = "died"
    """Its process has ended without recording an outcome."""


class ProcessName(NamedTuple):
    """A process, distinguished from a later one with the same number."""

    pid: int
    start_ticks: int
    """Its start time in the kernel's clock ticks."""

    @classmethod
    def of(cls, pid: int) -> Self:
        """Return the name of a process. ProcessLookupError if there is none."""
        try:
            status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):
            raise ProcessLookupError(f"there is no process {pid}") from None
        fields = status.rpartition(")")[2].split()
        if fields[0] == "Z":
            raise ProcessLookupError(f"process {pid} has ended")
        return cls(pid, int(fields[19]))

    def is_alive(self) -> bool:
        """Whether this process still runs."""
        try:
            return type(self).of(self.pid) == self
        except ProcessLookupError:
            return False


@dataclass(frozen=True, slots=True)
class Record:
    """The facts about a pipeline besides its progress."""

    process: ProcessName
    since: str
    file: str
    brokers: str
    master: str
    jvm: ProcessName | None = None
    outcome: Outcome = Outcome.RUNNING
    failure: str = ""

    @classmethod
    def of_this_process(cls, file: str, brokers: str, master: str) -> Self:
        """Return the record of this process at the start of a pipeline's run."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(ProcessName.of(os.getpid()), now, file, brokers, master)

    @classmethod
    def read(cls, folder: PipelineDirectory) -> Self | None:
        """Return the written record, which may be out of date; None if there is none."""
        found = read_json(folder.record)
        if found is None:
            return None
        names = {
            name: ProcessName(*found[name])
            for name in ("process", "jvm")
            if found[name] is not None
        }
        return cls(**{**found, **names, "outcome": Outcome(found["outcome"])})

    def write(self, folder: PipelineDirectory) -> None:
        """Write the record to its file."""
        write_json(folder.record, asdict(self))


@contextmanager
def claimed(folder: PipelineDirectory) -> Iterator[None]:
    """Claim a pipeline for this process. PipelineError if another process runs it."""
    folder.path.mkdir(parents=True, exist_ok=True)
    with folder.lock.open("a") as lock:
        if not _try_lock(lock, fcntl.LOCK_EX):
            record = Record.read(folder)
            who = f" as process {record.process.pid}" if record else ""
            raise PipelineError(
                f"pipeline {folder.name} is already running{who}:"
                f" `ottla pipeline stop {folder.name}` stops it"
            )
        _wait_for_remains(Record.read(folder))
        yield


def is_running(folder: PipelineDirectory) -> bool:
    """Whether a process runs the pipeline."""
    if not folder.lock.exists():
        return False
    with folder.lock.open("a") as lock:
        return not _try_lock(lock, fcntl.LOCK_SH)


def present_record(folder: PipelineDirectory) -> Record | None:
    """Return the present state of a pipeline; None if it has never run."""
    record = Record.read(folder)
    if record is not None and record.outcome is Outcome.RUNNING and not is_running(folder):
        return replace(Record.read(folder) or record, outcome=Outcome.DIED)
    return record


def stop(folder: PipelineDirectory, seconds: float) -> None:
    """Stop a pipeline, and wait until its process has ended. PipelineError if it does not."""
    record = Record.read(folder)
    if record is None:
        raise PipelineError(f"there is no pipeline {folder.name}: `ottla pipeline list` shows them")
    if not is_running(folder):
        raise PipelineError(f"pipeline {folder.name} is not running")
    if not record.process.is_alive():
        raise PipelineError(
            f"pipeline {folder.name} is run by a process that is not to be seen from here,"
            f" {record.process.pid}: stop it where it runs"
        )
    with suppress(ProcessLookupError):  # it may just have ended
        os.kill(record.process.pid, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while is_running(folder) or record.process.is_alive():
        if time.monotonic() > deadline:
            raise PipelineError(
                f"pipeline {folder.name} was told to stop and has not in {seconds:g} s;"
                f" process {record.process.pid} goes on"
            )
        time.sleep(_POLL_SECONDS)


def _try_lock(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for_remains(record: Record | None) -> None:
    """Wait for the JVM of a killed process: it may be about to write a checkpoint."""
    if record is None or record.jvm is None or record.process == ProcessName.of(os.getpid()):
        return
    deadline = time.monotonic() + REMAINS_SECONDS_MAX
    while record.jvm.is_alive():
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.kill(record.jvm.pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
