"""Up to where a segment holds only older records: Kafka's `.timeindex` file.

Entries of twelve bytes, a timestamp and an offset relative to the segment's base. They say: no
record up to this offset is younger than this timestamp. A closed segment's last entry holds the
greatest timestamp in it, by which retention decides.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ottla.model.identifiers import Offset
from ottla.storage.indexes.sparse_index import SparseIndex

NO_TIMESTAMP_MS = -1


class TimestampOffset(NamedTuple):
    """The greatest timestamp so far, and the last offset of the batch that has it."""

    timestamp_ms: int
    offset: Offset


class TimeIndex(SparseIndex):
    """The time index of one segment; SparseIndex says when it reads and writes its file."""

    __slots__ = ()

    ENTRY = Struct(">qi")
    ENTRY_BYTES = ENTRY.size
    KEY = Struct(">q")
    KEPT_FREE = 1  # for the segment's last entry

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry, or no timestamp at the base offset if there is none."""
        self._ensure_read()
        return TimestampOffset(self._last_key, Offset(self.base_offset + max(self._last_value, 0)))

    def append(self, timestamp_ms: int, offset: Offset, *, is_closing: bool = False) -> None:
        """Add the greatest timestamp so far and its offset, if both exceed the last entry's.

        A full index drops it, except when the segment is rolled or closed: retention needs that
        entry.
        """
        assert self.can_append(offset), f"offset {offset} in a segment from {self.base_offset}"
        if self.is_full and not is_closing:
            return
        relative = offset - self.base_offset
        if timestamp_ms > self._last_key and relative > self._last_value:
            self._add(timestamp_ms, relative)

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """Return the last entry up to this timestamp, or no timestamp at the base offset."""
        found = self._floor(timestamp_ms)
        if found is None:
            return TimestampOffset(NO_TIMESTAMP_MS, self.base_offset)
        return TimestampOffset(found[0], Offset(self.base_offset + found[1]))

    def entries(self) -> Iterator[TimestampOffset]:
        """Iterate over the entries as they are at the first step."""
        for timestamp_ms, relative in self._pairs():
            yield TimestampOffset(timestamp_ms, Offset(self.base_offset + relative))

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries from this offset on, in the file too."""
        limit = offset - self.base_offset - 1
        self._keep(self._count_at_most(self.VALUE, self.KEY.size, limit))

    def check(self, end_offset: Offset) -> None:
        """Read all of it; CorruptIndexError unless it fits a segment that ends here."""
        self._check(end_offset - self.base_offset)
