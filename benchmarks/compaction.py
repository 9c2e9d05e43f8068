"""Compaction of a log of records of 100 bytes, of which one in ten has a key of its own.

python -m benchmarks.compaction [megabytes]

compacts a log of that size (1000 if none is given) once, swap and all, and prints its duration.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from unittest.mock import patch

from benchmarks.comparison import MEGABYTES, Case
from ottla.model.settings.topic_config import CleanupPolicy, TopicConfig
from ottla.runtime.disk import KernelDisk
from ottla.storage.compaction import _compaction_python, batch_cleaner, offset_map, segment_swap
from ottla.storage.compaction.compaction_plan import plan
from ottla.storage.compaction.log_compaction import Compaction, prepare, replace
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.log import PartitionLog
from ottla.storage.recovery.log_recovery import open_log
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression.codecs import Compression

TITLE = "Compaction, CPU time of both passes and of writing"
ASKED_MB = 50
NOW_MS = 1_700_000_000_000
RECORD_BYTES = 100
BATCH_RECORDS = 160
VALUE = bytes(80)
CONFIG = TopicConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}), segment_bytes=256 << 20)

_DISK = KernelDisk()


def cases() -> Iterator[Case]:
    """Yield batches of 16 KB without and with compression, tiny ones, and plain Python."""
    yield from _case("batches of 16 KB", 64_000_000, asked=ASKED_MB)
    yield from _case("batches of 16 KB in lz4", 64_000_000, codec=Compression.LZ4)
    yield from _case("batches of 16 KB in zstd", 64_000_000, codec=Compression.ZSTD)
    yield from _case("batches of one record", 4_000_000, batch_records=1)
    with plain_python():
        yield from _case("batches of 16 KB, in plain Python", 2_000_000)


def _case(
    work: str,
    size_bytes: int,
    codec: Compression = Compression.NONE,
    batch_records: int = BATCH_RECORDS,
    asked: float | None = None,
) -> Iterator[Case]:
    with log_of(size_bytes, codec, batch_records) as log:
        ours = partial(clean, log)
        yield Case(work=work, unit=MEGABYTES, ours=ours, amount=size_bytes, asked=asked)


@contextmanager
def log_of(size_bytes: int, codec: Compression, batch_records: int) -> Iterator[PartitionLog]:
    """Make a log in a directory of its own; sizes are uncompressed."""
    directory = tempfile.mkdtemp(prefix="ottla-")
    try:
        log = open_log(OpenFiles(_DISK), directory, CONFIG, NOW_MS, is_clean=False).log
        fill(log, size_bytes // RECORD_BYTES, codec, batch_records)
        yield log
    finally:
        shutil.rmtree(directory)


def fill(log: PartitionLog, record_count: int, codec: Compression, batch_records: int) -> None:
    """Write this many records, and close the segment."""
    dice = Random(1)
    for start in range(0, record_count, batch_records):
        count = min(batch_records, record_count - start)
        keys = [b"%012d" % dice.randrange(record_count // 10) for _ in range(count)]
        builder = BatchBuilder(compression=codec)
        builder.extend(NOW_MS, [VALUE] * count, keys)
        log.append_as_leader(memoryview(builder.build()), 0, NOW_MS)
    log.roll(NOW_MS)


def clean(log: PartitionLog) -> None:
    """Do the work of a compaction's thread, and leave the log unchanged."""
    compaction = begun(log)
    while (group := compaction.clean_next()) is not None:
        segment_swap.discard(_DISK, log.directory, group.base_offset)


def begun(log: PartitionLog) -> Compaction:
    """Begin the compaction of a whole log."""
    planned = plan(log, 0, log.end_offset, NOW_MS)
    assert planned is not None
    return Compaction(_DISK, log, planned, NOW_MS)


@contextmanager
def plain_python() -> Iterator[None]:
    """Disable the code compiled for compaction."""
    with (
        patch.object(offset_map, "OffsetMap", _compaction_python.OffsetMap),
        patch.object(batch_cleaner, "shift_timestamps", _compaction_python.shift_timestamps),
    ):
        yield


def main() -> None:
    """Compact one large log."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with log_of(megabytes * 1_000_000, Compression.NONE, BATCH_RECORDS) as log:
        before_bytes = log.segments.size_bytes
        wall, cpu = time.perf_counter(), time.process_time()
        compaction = begun(log)
        while (group := compaction.clean_next()) is not None:
            prepare(log, group)
            compaction.decide(group)
            replace(log, group, NOW_MS)
            compaction.make_durable()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        assert compaction.end_offset == log.end_offset
        after_bytes = log.segments.size_bytes
    print(f"{before_bytes / 1e6:.0f} MB became {after_bytes / 1e6:.0f} MB")
    print(f"CPU time {cpu:.1f} s, {before_bytes / cpu / 1e6:.0f} MB/s")
    print(f"wall time {wall:.1f} s, {before_bytes / wall / 1e6:.0f} MB/s")


if __name__ == "__main__":
    main()
