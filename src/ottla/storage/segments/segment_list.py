"""The segments of a log in their order, found by offset."""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.storage.files.damage import Damage, DamageKind
from ottla.storage.files.log_slice import LogSlice
from ottla.storage.indexes.sparse_index import CorruptIndexError
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_batches import BatchPlace


class SegmentRow:
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
    def closed_end_offset(self) -> int:
        """The offset with which the active segment begins: nothing before it is written again."""
        return self._bases[-1]

    @property
    def base_offset(self) -> int:
        """The offset with which the first segment begins."""
        return self._bases[0]

    def base_offset_of(self, number: int) -> int:
        """Return the offset with which the segment of this number begins, the first being 0."""
        return self._bases[number]

    @property
    def size_bytes(self) -> int:
        """The bytes of all batches."""
        return sum(segment.size_bytes for segment in self._segments)

    def since(self, offset: int) -> list[Segment]:
        """Return the segments from this offset's segment on."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def find(self, offset: int) -> tuple[Segment, BatchPlace] | None:
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
        self, segment: Segment, place: BatchPlace, end_offset: int, log_end_offset: int
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

    def end_of(self, segment: Segment, end_offset: int) -> int:
        """Return where the next segment begins, or this offset if the segment is the last."""
        following = bisect_right(self._bases, segment.base_offset)
        return end_offset if following == len(self._bases) else self._bases[following]

    def damaged_from(self, start_offset: int) -> list[Segment]:
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


def _check_sound(segment: Segment, offset: int, place: BatchPlace | None, code: ErrorCode) -> None:
    for damage in segment.damage:
        is_before = place is None or damage.offset < place.base_offset
        if is_before and offset < damage.end_offset:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE if damage.kind is DamageKind.OLD_FORMAT else code,
                f"{segment.path} is damaged from offset {damage.offset} to {damage.end_offset}",
            )
