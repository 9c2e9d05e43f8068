"""Offset gaps between two segments: normal in a log written by Kafka, data loss in Ottla's.

Ottla's segments begin at the end of the previous one, and compaction keeps that end. So after a
power cut, a gap above the recovery point means that a segment lost its tail. Kafka's compaction may
remove the end of a segment, and a follower of Kafka begins a segment with the next batch it gets.
If Kafka is known to have written the log last, a gap is closed once, by a segment that holds only
an empty batch.
"""

import posixpath
from contextlib import suppress
from typing import Final

from ottla.environment.disk import Disk
from ottla.storage.compaction.batch_cleaner import placeholder
from ottla.storage.files.checkpoints import write_atomically
from ottla.storage.indexes.sparse_index import CorruptIndexError
from ottla.storage.indexes.time_index import NO_TIMESTAMP_MS
from ottla.storage.log.leader_epochs import NO_EPOCH
from ottla.storage.segments.segment import LOG_SUFFIX, Segment, segment_name
from ottla.storage.segments.segment_indexes import TEMPORARY_SUFFIX
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import Record

PREALLOCATED_BYTES_MIN: Final = 1 << 20
"""Kafka's active index has ten times as much; a power cut leaves fewer zeros in one of ours."""


def is_kafkas(active: Segment) -> bool:
    """Return whether Kafka wrote the last segment of a log, and was not stopped properly.

    A smaller index is Kafka's if it has the size that it may grow to, most of it zeros: one of ours
    has that size only when it is full, and then it is not the active one for long.
    """
    index = active.offset_index
    with suppress(CorruptIndexError):
        padding_bytes = index.padding_bytes
        file_bytes = index.entry_count * index.ENTRY_BYTES + padding_bytes
        is_preallocated = file_bytes == index.entries_max * index.ENTRY_BYTES
        is_empty = 0 < file_bytes <= 2 * padding_bytes
        return padding_bytes >= PREALLOCATED_BYTES_MIN or (is_preallocated and is_empty)
    return False


def close_gap(
    disk: Disk, directory: str, offset: int, end_offset: int, leader_epoch: int | None
) -> None:
    """Create the segment that reaches from one offset to the other, as a whole and durably."""
    content = memoryview(build_batch([Record(0, NO_TIMESTAMP_MS, None, None)]))
    batch = placeholder(RecordBatch(content))
    batch.restamp(end_offset - 1, NO_EPOCH if leader_epoch is None else leader_epoch)
    path = posixpath.join(directory, segment_name(offset) + LOG_SUFFIX)
    write_atomically(disk, path, bytes(batch.raw), suffix=TEMPORARY_SUFFIX)
