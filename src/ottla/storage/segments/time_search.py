"""Finds records by their timestamps, which need not rise with the offsets."""

from collections.abc import Iterator
from typing import Final

from ottla.storage.indexes.time_index import NO_TIMESTAMP_MS, TimestampOffset
from ottla.storage.segments.segment_list import SegmentRow
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.record import find_time

_NEVER_MS: Final = 2**63 - 1


def first_record_since(
    segments: SegmentRow, timestamp_ms: int, start_offset: int, end_offset: int
) -> TimestampOffset | None:
    """Return the first record in these bounds that is no older than this."""
    for batch in _batches_since(segments, timestamp_ms, start_offset):
        if batch.base_offset >= end_offset:
            return None
        if batch.max_timestamp_ms < timestamp_ms:
            continue
        found = find_time(batch, timestamp_ms, start_offset, end_offset)
        if found is not None and found[0] >= timestamp_ms:
            return TimestampOffset(*found)
    return None


def greatest_record(
    segments: SegmentRow, start_offset: int, end_offset: int
) -> TimestampOffset | None:
    """Return the greatest timestamp in these bounds, and the first record that has it."""
    first, *others = segments.since(start_offset)
    times_ms = [segment.greatest_timestamp.timestamp_ms for segment in others]
    greatest, place = first.greatest_timestamp, first.find(start_offset)
    is_behind = place is not None and place.last_offset < greatest.offset
    if start_offset <= first.base_offset or is_behind:
        times_ms.append(greatest.timestamp_ms)
    elif place is not None:
        # The segment's max timestamp may belong to a record before the start.
        times_ms += _times_ms(first.batches(place.position), start_offset)
    greatest_ms = max(times_ms, default=NO_TIMESTAMP_MS)
    if greatest_ms < 0:
        return None
    return first_record_since(segments, greatest_ms, start_offset, end_offset)


def _times_ms(batches: Iterator[RecordBatch], start_offset: int) -> Iterator[int]:
    """Yield max timestamps from headers; for the batch with the start, from its records."""
    for batch in batches:
        if batch.base_offset >= start_offset:
            yield batch.max_timestamp_ms
        elif (youngest := find_time(batch, _NEVER_MS, start_offset, batch.end_offset)) is not None:
            yield youngest[0]


def _batches_since(
    segments: SegmentRow, timestamp_ms: int, start_offset: int
) -> Iterator[RecordBatch]:
    """Yield the batches of those segments that have a record young enough."""
    for segment in segments.since(start_offset):
        if segment.greatest_timestamp.timestamp_ms < timestamp_ms:
            continue
        # The entry found is the last that is too old, or has just this timestamp: look from there.
        older = segment.last_older(timestamp_ms)
        place = segment.find(max(older.offset, start_offset))
        if place is not None:
            yield from segment.batches(place.position)
