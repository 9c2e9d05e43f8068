"""Finds the aborted transactions that a read_committed consumer needs for a range of a log."""

from collections.abc import Callable

from ottla.storage.indexes.aborted_index import AbortedTransaction
from ottla.storage.indexes.sparse_index import CorruptIndexError
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_list import SegmentRow


def aborted_between(
    row: SegmentRow,
    offset: int,
    end_offset: int,
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
            end_offset = min(end_offset, _end_of_bytes(row, offset, size_bytes, end_offset))
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


def _end_of_bytes(row: SegmentRow, offset: int, size_bytes: int, end_offset: int) -> int:
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
