"""Checks of a segment that recovery does not scan: few, after a clean shutdown.

Errors are CorruptIndexError and CorruptSegmentError.
"""

from ottla.storage.indexes.sparse_index import CorruptIndexError
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_batches import CorruptSegmentError
from ottla.storage.segments.segment_indexes import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX


def check_present(segment: Segment, suffixes: set[str]) -> None:
    """See that a segment with these files has its indexes."""
    if segment.size_bytes and not {OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX} <= suffixes:
        raise CorruptIndexError(segment.path, "an index of it is missing")


def check_nothing(_segment: Segment, _end_offset: int) -> None:
    """Trust a closed segment: a search detects a corrupt index."""


def check_active(segment: Segment, end_offset: int) -> object:
    """Run the queries of an append, and check that the log ends where it was closed."""
    if segment.end_offset() != end_offset:
        raise CorruptSegmentError(segment.path, segment.size_bytes, f"no end at {end_offset}")
    return segment.greatest_timestamp, segment.aborted_index.last_offset


def check_indexes(segment: Segment, end_offset: int) -> None:
    """Read all indexes of a segment that ends here."""
    segment.offset_index.check(segment.size_bytes)
    segment.time_index.check(end_offset)
    segment.aborted_index.check()
