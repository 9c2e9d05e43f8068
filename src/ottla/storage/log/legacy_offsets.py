"""Offsets by time for the first version of ListOffsets: base offsets of segments only."""

from ottla.model.isolation_level import EARLIEST, LATEST
from ottla.storage.log.log import PartitionLog
from ottla.storage.log.retention import greatest_time_ms


def offsets_before(log: PartitionLog, timestamp_ms: int, now_ms: int) -> list[int]:
    """Return the base offsets of segments at least this old, the last one first.

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
