"""Processes and their children, and their sudden end."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def descendants(process_id: int) -> list[int]:
    """Return the children of a process, and theirs, parents first."""
    found, waiting = [], [process_id]
    children = children_by_parent()
    while waiting:
        own = children.get(waiting.pop(), [])
        found += own
        waiting += own
    return found


def children_by_parent() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for process_id, parent_id in _parents():
        children.setdefault(parent_id, []).append(process_id)
    return children


def kill_tree(process_id: int) -> None:
    """Kill a process with all its descendants; parents first, so that no new processes start."""
    for each in (process_id, *descendants(process_id)):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def python_workers(process_id: int) -> list[int]:
    """Return the Python processes that Spark has forked under a process."""
    return [
        each
        for each in descendants(process_id)
        if b"pyspark.daemon" in command_of(each) and b"pyspark.daemon" in command_of(_parent(each))
    ]


def kill_python_workers(process_id: int) -> None:
    for each in python_workers(process_id):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def _parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            parent_id = _parent(int(folder.name))
            if parent_id:
                yield int(folder.name), parent_id


def _parent(process_id: int) -> int:
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def command_of(process_id: int) -> bytes:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes()
    except OSError:
        return b""
