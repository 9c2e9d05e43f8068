"""The three indexes of a segment, and the operations on all of them."""

from collections.abc import Collection
from typing import Final, NamedTuple

from ottla.storage.indexes.aborted_index import AbortedIndex
from ottla.storage.indexes.offset_index import OffsetIndex
from ottla.storage.indexes.time_index import TimeIndex

OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
ABORTED_INDEX_SUFFIX: Final = ".txnindex"
INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_INDEX_SUFFIX)
TEMPORARY_SUFFIX: Final = ".tmp"


class SegmentIndexes(NamedTuple):
    """The indexes of one segment."""

    offset: OffsetIndex
    time: TimeIndex
    aborted: AbortedIndex

    def note_files(self, suffixes: Collection[str]) -> None:
        """Record the files that were found: indexes that are not among them are not read."""
        if OFFSET_INDEX_SUFFIX not in suffixes:
            self.offset.note_missing()
        if TIME_INDEX_SUFFIX not in suffixes:
            self.time.note_missing()
        if ABORTED_INDEX_SUFFIX not in suffixes:
            self.aborted.note_missing()

    def unname(self) -> None:
        """Rename the offset and the time index to temporary names until `name`.

        So a start before `name` finds them missing, and rebuilds them.
        """
        for index in (self.offset, self.time):
            if not index.path.endswith(TEMPORARY_SUFFIX):
                index.rename(index.path + TEMPORARY_SUFFIX)

    def name(self, *, sync: bool) -> None:
        """Give them their names again, each synced before that if it is to be there as a whole."""
        for index in (self.time, self.offset):
            if sync:
                index.sync()
            index.rename(index.path.removesuffix(TEMPORARY_SUFFIX))

    def drop(self) -> None:
        """Empty all indexes; the aborted transactions have to be added again."""
        self.unname()
        for index in self:
            index.reset()

    def move(self, suffix: str) -> None:
        """Put a suffix behind the names of all files."""
        for index in self:
            index.release()
            index.rename(index.path + suffix)

    def remove(self) -> None:
        """Remove all files."""
        for index in self:
            index.remove()

    def release(self) -> None:
        """Drop the mappings; the next search maps the files again."""
        for index in self:
            index.release()
