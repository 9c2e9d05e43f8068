"""The partition log on the disk that holds the temporary directory.

Appends go into the page cache, as they do by default. The write() beside them writes the same
bytes to the same disk, from the same memory, and does nothing else.
"""

import os
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, cycle
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.comparison import (
    BYTES_EACH,
    MEGABYTES,
    MICROSECONDS,
    SECONDS,
    Case,
    Peer,
)
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.runtime.disk import KernelDisk
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.log import PartitionLog
from ottla.storage.log_dirs.log_dirs import LogDirs
from ottla.storage.recovery.log_recovery import open_log
from ottla.wire.records.builder import BatchBuilder

TITLE = "The partition log"
NOW_MS = 1_700_000_000_000
FILE_BYTES_MAX = 1 << 28
SEGMENTS = 1000
PARTITIONS = 10_000
RECOVERED_BYTES = 1 << 28


def cases() -> Iterator[Case]:
    """Yield appending, finding, opening and recovering."""
    with TemporaryDirectory() as folder:
        yield from _appends(folder)
        yield _find(folder)
        yield _recovery(folder)
        yield from _opening(folder)


def batch_of(value_bytes: int, records: int) -> bytearray:
    """Build a batch of records of one size."""
    builder = BatchBuilder()
    builder.extend(NOW_MS, [b"x" * value_bytes] * records)
    return builder.build()


def new_log(folder: str, name: str, config: TopicConfig) -> PartitionLog:
    """Open an empty log."""
    return open_log(OpenFiles(KernelDisk()), f"{folder}/{name}", config, NOW_MS, is_clean=True).log


def _appends(folder: str) -> Iterator[Case]:
    small = batch_of(100, 150)
    yield Case(
        work=f"append a batch of {len(small) >> 10} KB",
        unit=MICROSECONDS,
        ours=_appender(new_log(folder, "small-0", TopicConfig(segment_bytes=1 << 26)), small),
        asked=25,
    )
    large = batch_of(1 << 10, 1000)
    config = TopicConfig(max_message_bytes=1 << 21, segment_bytes=1 << 26)
    yield Case(
        work="append a batch of 1 MB",
        unit=MEGABYTES,
        ours=_appender(new_log(folder, "large-0", config), large),
        amount=len(large),
        peers=(Peer("write()", _writer(f"{folder}/plain", large), 0.5),),
    )


def _appender(log: PartitionLog, batch: bytearray) -> Callable[[], object]:
    """Append the batch from one of several buffers, and start over before the disk is full."""
    buffers = cycle([memoryview(bytearray(batch)) for _ in range(8)])

    def append() -> None:
        log.append_as_leader(next(buffers), 0, NOW_MS)
        if log.segments.size_bytes > FILE_BYTES_MAX:
            log.restart_at(log.end_offset)

    return append


def _writer(path: str, data: bytearray) -> Callable[[], object]:
    buffers = cycle([memoryview(bytearray(data)) for _ in range(8)])
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    position = 0

    def write() -> None:
        nonlocal position
        position += os.pwrite(descriptor, next(buffers), position)
        if position > FILE_BYTES_MAX:
            os.ftruncate(descriptor, 0)
            position = 0

    return write


def _find(folder: str) -> Case:
    log = new_log(folder, "found-0", TopicConfig(segment_bytes=1 << 16))
    batch = memoryview(batch_of(100, 30))
    while len(log.segments) < SEGMENTS:
        log.append_as_leader(batch, 0, NOW_MS)
    offsets = (number * 7919 % log.end_offset for number in count())
    return Case(
        work=f"find an offset in a log of {SEGMENTS:,} segments",
        unit=MICROSECONDS,
        ours=lambda: log.read(next(offsets), log.end_offset, 1 << 20),
        asked=20,
    )


def _recovery(folder: str) -> Case:
    log = new_log(folder, "crashed-0", TopicConfig())
    batch = memoryview(batch_of(100, 150))
    while log.segments.size_bytes < RECOVERED_BYTES:
        log.append_as_leader(batch, 0, NOW_MS)
    config = TopicConfig()
    return Case(
        work="recover after a crash, every batch checked",
        unit=MEGABYTES,
        ours=lambda: open_log(
            OpenFiles(KernelDisk()), log.directory, config, NOW_MS, is_clean=False
        ),
        amount=RECOVERED_BYTES,
        asked=300,
        rounds=3,
    )


def _opening(folder: str) -> Iterator[Case]:
    path = str(Path(folder) / "many")
    dirs = LogDirs(KernelDisk(), [path])
    dirs.open(lambda _: TopicConfig(), NOW_MS)
    batch = batch_of(100, 5)
    for number in range(PARTITIONS):
        log = dirs.create(TopicPartition("orders", number), bytes(range(16)), TopicConfig(), NOW_MS)
        log.append_as_leader(memoryview(bytearray(batch)), 0, NOW_MS)
    dirs.close(NOW_MS, 1)
    yield Case(
        work=f"open {PARTITIONS:,} partitions after a clean stop",
        unit=SECONDS,
        ours=partial(_open_and_close, path),
        asked=10,
        rounds=2,
    )
    yield Case(
        work="memory of each of them",
        unit=BYTES_EACH,
        ours=lambda: None,
        figures=(_memory_of_each(path),),
        asked=10 << 10,
    )


def _open_and_close(path: str) -> LogDirs:
    """Open every log, and restore the clean shutdown marker, so that it can be repeated."""
    dirs = LogDirs(KernelDisk(), [path])
    dirs.open(lambda _: TopicConfig(), NOW_MS)
    assert dirs.dirs[0].was_clean
    assert len(dirs.dirs[0].hosted) == PARTITIONS
    (Path(path) / ".kafka_cleanshutdown").touch()
    return dirs


def _memory_of_each(path: str) -> float:
    tracemalloc.start()
    dirs = _open_and_close(path)
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert dirs.online
    return held_bytes / PARTITIONS
