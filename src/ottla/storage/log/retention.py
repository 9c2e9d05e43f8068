"""Segments by age and size: retention, and the base offsets of ListOffsets version 0.

Retention deletes whole segments from the beginning, and never unreplicated records.
"""

from collections.abc import Callable

from ottla.model.identifiers import Offset
from ottla.model.isolation_level import EARLIEST, LATEST
from ottla.model.settings.topic_config import CleanupPolicy
from ottla.storage.log.log import PartitionLog
from ottla.storage.segments.segment import Segment


def offsets_before(log: PartitionLog, timestamp_ms: int, now_ms: int) -> list[int]:
    """Return the base offsets of segments at least this old, the last segment first.

    The log end counts as a segment created now, if the last segment is not empty. LATEST returns
    all of them, EARLIEST the first.
    """
    places = [
        (max(segment.base_offset, log.log_start_offset), greatest_time_ms(segment))
        for segment in log.segments
    ]
    if log.segments.active.size_bytes:
        places.append((log.end_offset, now_ms))
    if timestamp_ms == EARLIEST:
        return [places[0][0]]
    if timestamp_ms == LATEST:
        return [offset for offset, _ in reversed(places)]
    found = [number for number, (_, time_ms) in enumerate(places) if time_ms <= timestamp_ms]
    if not found:
        return []
    return [offset for offset, _ in reversed(places[: found[-1] + 1])]


def apply_retention(log: PartitionLog, now_ms: int, high_watermark: Offset) -> int:
    """Delete the segments that `expired_segments` counts, and return their number.

    If all have expired the active segment is closed first: a log keeps its end offset.
    """
    count = expired_segments(log, now_ms, high_watermark)
    if count == len(log.segments):
        log.roll(now_ms)
    if count:
        log.delete_segments(count, now_ms)
    return count


def expired_segments(log: PartitionLog, now_ms: int, high_watermark: Offset) -> int:
    """Return how many segments from the first on may be deleted.

    Segments before the log start always may. With the cleanup policy `delete`, so may segments in
    excess of `retention.bytes`, and then segments older than `retention.ms`; the rest never gets
    smaller than retention.bytes. Only segments that end at or below the high watermark count.
    """
    row = list(log.segments)
    ends = [segment.base_offset for segment in row[1:]] + [log.end_offset]
    final = sum(end_offset <= high_watermark for end_offset in ends)
    if row[-1].size_bytes == 0:
        final = min(final, len(row) - 1)
    # Whether the active segment is before the start does not matter: it stays, for appends.
    before_start = sum(end_offset <= log.log_start_offset for end_offset in ends[:-1])
    count = min(before_start, final)
    if CleanupPolicy.DELETE not in log.config.cleanup_policy:
        return count
    for is_expired in (_by_size(log, row[count:]), _by_time(log, now_ms)):
        while count < final and is_expired(row[count]):
            count += 1
    return count


def _by_size(log: PartitionLog, row: list[Segment]) -> Callable[[Segment], bool]:
    excess = sum(segment.size_bytes for segment in row) - log.config.retention_bytes

    def is_expired(segment: Segment) -> bool:
        nonlocal excess
        excess -= segment.size_bytes
        return excess >= 0

    return is_expired if log.config.retention_bytes >= 0 else _never


def _by_time(log: PartitionLog, now_ms: int) -> Callable[[Segment], bool]:
    retention_ms = log.config.retention_ms

    def is_expired(segment: Segment) -> bool:
        return now_ms - greatest_time_ms(segment) > retention_ms

    return is_expired if retention_ms >= 0 else _never


def _never(_: Segment) -> bool:
    return False


def greatest_time_ms(segment: Segment) -> int:
    """Return the greatest timestamp; if the records have none, when the file was modified."""
    timestamp_ms = segment.greatest_timestamp.timestamp_ms
    return timestamp_ms if timestamp_ms >= 0 else segment.file.modified_ms()
