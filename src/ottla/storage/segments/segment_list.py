"""The segments of a log in their order, and searches over them.

Records are found by offset or timestamp; timestamps need not rise with the offsets. A fetch with
read_committed also gets the aborted transactions of its range.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset
from ottla.storage.files.damage import Damage, DamageKind
from ottla.storage.files.log_slice import LogSlice
from ottla.storage.indexes.aborted_index import AbortedTransaction
from ottla.storage.indexes.sparse_index import CorruptIndexError
from ottla.storage.indexes.time_index import NO_TIMESTAMP_MS, TimestampOffset
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_batches import BatchPlace
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.record import find_time

_NEVER_MS: Final = 2**63 - 1


class SegmentList:
    """Segments, the oldest first. There is always at least one; only the last is written."""

    __slots__ = ("_bases", "_segments", "damage_code", "may_be_damaged")

    def __init__(self, segments: list[Segment]) -> None:
        assert segments, "a log has at least one segment"
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.may_be_damaged = True
        """False while no segment is known to be damaged; cheap to check for all logs."""
        self.damage_code = ErrorCode.KAFKA_STORAGE_ERROR
        """The error of reads of lost offsets. By default, clients refresh their metadata."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def active(self) -> Segment:
        """The segment that is written."""
        return self._segments[-1]

    @property
    def closed_end_offset(self) -> Offset:
        """The offset with which the active segment begins: nothing before it is written again."""
        return self._bases[-1]

    @property
    def base_offset(self) -> Offset:
        """The offset with which the first segment begins."""
        return self._bases[0]

    def base_offset_of(self, number: int) -> Offset:
        """Return the offset with which the segment of this number begins, the first being 0."""
        return self._bases[number]

    @property
    def size_bytes(self) -> int:
        """The bytes of all batches."""
        return sum(segment.size_bytes for segment in self._segments)

    def since(self, offset: Offset) -> list[Segment]:
        """Return the segments from this offset's segment on."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def find(self, offset: Offset) -> tuple[Segment, BatchPlace] | None:
        """Return the first batch that reaches this offset, and its segment.

        Something damaged between the two is an ApiError with `damage_code`: to pass over it would
        look as if compaction had taken it.
        """
        first = max(bisect_right(self._bases, offset) - 1, 0)
        for index in range(first, len(self._segments)):
            segment = self._segments[index]
            place = segment.find(offset)
            if segment.damage:
                _check_sound(segment, offset, place, self.damage_code)
            if place is not None:
                return segment, place
        return None

    def end_position(
        self, segment: Segment, place: BatchPlace, end_offset: Offset, log_end_offset: Offset
    ) -> int:
        """Return up to where the segment can be read from a place on, below this offset."""
        following = bisect_right(self._bases, segment.base_offset)
        is_last = following == len(self._bases)
        is_whole = end_offset >= (log_end_offset if is_last else self._bases[following])
        after = None if is_whole else segment.find(end_offset)
        position = segment.size_bytes if after is None else after.position
        for damage in segment.damage:
            if damage.position > place.position:
                position = min(position, damage.position)
        return position

    def cut(
        self, segment: Segment, place: BatchPlace, size_bytes: int, interval_bytes: int
    ) -> LogSlice:
        """Return a slice of about this size from a place on, without a partial long batch.

        A partial batch would be sent in vain. Batches longer than the index interval have index
        entries, so a complete range after the last entry is shorter than the interval.
        """
        start = place.position + place.size_bytes
        end = place.position + size_bytes
        with suppress(CorruptIndexError):  # the next offset lookup rebuilds it
            start = max(start, segment.offset_index.position_up_to(end))
        left_out_bytes = end - start if end - start > interval_bytes else 0
        return LogSlice(segment.file, place.position, size_bytes - left_out_bytes, left_out_bytes)

    def end_of(self, segment: Segment, end_offset: Offset) -> Offset:
        """Return where the next segment begins, or this offset if the segment is the last."""
        following = bisect_right(self._bases, segment.base_offset)
        return end_offset if following == len(self._bases) else self._bases[following]

    def damaged_from(self, start_offset: Offset) -> list[Segment]:
        """Return the segments that have lost records at or after this offset."""
        if not self.may_be_damaged:
            return []
        damaged = [segment for segment in self._segments if segment.damage]
        self.may_be_damaged = bool(damaged)
        return [one for one in damaged if any(d.is_lost_from(start_offset) for d in one.damage)]

    # -- changing -------------------------------------------------------------------------------

    def fence_off(self, segment: Segment, damage: Damage) -> None:
        """Record damage that was found in a segment of this log."""
        segment.fence_off(damage)
        self.may_be_damaged = True

    def append(self, segment: Segment) -> None:
        """Add the segment that will be written from now on."""
        assert segment.base_offset > self._bases[-1], "segments in their order"
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def take_first(self) -> Segment:
        """Remove the oldest segment."""
        assert len(self._segments) > 1, "the active segment stays"
        del self._bases[0]
        return self._segments.pop(0)

    def take_last(self) -> Segment:
        """Remove the active segment; the previous one becomes active."""
        assert len(self._segments) > 1, "a log has at least one segment"
        del self._bases[-1]
        return self._segments.pop()

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """Put segments in the place of neighbours that cover the same offsets."""
        first = self._segments.index(old[0])
        assert self._segments[first : first + len(old)] == old, "neighbours"
        self._segments[first : first + len(old)] = new
        self._bases = [segment.base_offset for segment in self._segments]
        assert self._bases == sorted(set(self._bases)), "segments in their order"


def _check_sound(
    segment: Segment, offset: Offset, place: BatchPlace | None, code: ErrorCode
) -> None:
    for damage in segment.damage:
        is_before = place is None or damage.offset < place.base_offset
        if is_before and offset < damage.end_offset:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE if damage.kind is DamageKind.OLD_FORMAT else code,
                f"{segment.path} is damaged from offset {damage.offset} to {damage.end_offset}",
            )


def aborted_between(
    row: SegmentList,
    offset: Offset,
    end_offset: Offset,
    size_bytes: int | None,
    mend: Callable[[Segment], None],
) -> list[AbortedTransaction]:
    """Return the aborted transactions from an offset on, up to another or in so many bytes.

    The offset index determines the end of the bytes, so that a few transactions may begin behind
    them: within one index interval. A corrupt index is rebuilt first.
    """
    found: list[AbortedTransaction] = []
    is_bounded = size_bytes is None
    for segment in row.since(offset):
        try:
            last_offset = segment.aborted_index.last_offset
        except CorruptIndexError:
            mend(segment)
            last_offset = segment.aborted_index.last_offset
        if last_offset < offset:  # as nearly everywhere: nothing was aborted
            continue
        if not is_bounded and size_bytes is not None:
            end_offset = Offset(min(end_offset, _end_of_bytes(row, offset, size_bytes, end_offset)))
            is_bounded = True
        try:
            more, is_complete = segment.aborted_index.overlapping(offset, end_offset)
        except CorruptIndexError:
            mend(segment)
            more, is_complete = segment.aborted_index.overlapping(offset, end_offset)
        found += more
        if is_complete:
            break
    return found


def _end_of_bytes(row: SegmentList, offset: Offset, size_bytes: int, end_offset: Offset) -> int:
    """Return an offset that is not before the end of so many bytes from an offset on."""
    place = row.find(offset)
    if place is None:
        return end_offset
    segment, first = place
    try:
        bound = segment.offset_index.offset_from(first.position + size_bytes)
    except CorruptIndexError:  # the next search in it rebuilds it
        return end_offset
    return row.end_of(segment, end_offset) if bound is None else bound


def first_record_since(
    segments: SegmentList, timestamp_ms: int, start_offset: Offset, end_offset: Offset
) -> TimestampOffset | None:
    """Return the first record in these bounds that is no older than this."""
    for batch in _batches_since(segments, timestamp_ms, start_offset):
        if batch.base_offset >= end_offset:
            return None
        if batch.max_timestamp_ms < timestamp_ms:
            continue
        found = find_time(batch, timestamp_ms, start_offset, end_offset)
        if found is not None and found[0] >= timestamp_ms:
            return TimestampOffset(found[0], Offset(found[1]))
    return None


def greatest_record(
    segments: SegmentList, start_offset: Offset, end_offset: Offset
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


def _times_ms(batches: Iterator[RecordBatch], start_offset: Offset) -> Iterator[int]:
    """Yield max timestamps from headers; for the batch with the start, from its records."""
    for batch in batches:
        if batch.base_offset >= start_offset:
            yield batch.max_timestamp_ms
        elif (youngest := find_time(batch, _NEVER_MS, start_offset, batch.end_offset)) is not None:
            yield youngest[0]


def _batches_since(
    segments: SegmentList, timestamp_ms: int, start_offset: Offset
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
