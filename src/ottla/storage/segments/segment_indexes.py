"""The three indexes of a segment, and what is done to all of them."""

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
        """Take note of the files that were found: indexes that are not among them are not read."""
        if OFFSET_INDEX_SUFFIX not in suffixes:
            self.offset.note_missing()
        if TIME_INDEX_SUFFIX not in suffixes:
            self.time.note_missing()
        if ABORTED_INDEX_SUFFIX not in suffixes:
            self.aborted.note_missing()

    def unname(self) -> None:
        """Let the offset and the time index go by other names until `name`.

        So an opening that comes before that finds them missing, and makes them anew itself.
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
        """Empty all indexes; the aborted transactions have to be told again."""
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
        """Give up what is mapped; it is mapped again when it is searched."""
        for index in self:
            index.release()
