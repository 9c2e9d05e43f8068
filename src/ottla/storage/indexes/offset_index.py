"""Maps offsets to positions in a segment: Kafka's `.index` file.

Entries have eight bytes, about one per `index.interval.bytes`: the last offset of a batch, relative
to the base offset of the segment, and the position of the batch in the log file.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ottla.model.identifiers import Offset
from ottla.storage.indexes.sparse_index import POSITION_MAX, SparseIndex


class OffsetPosition(NamedTuple):
    """A batch in a segment: its last offset, and where it begins."""

    offset: Offset
    position: int


class OffsetIndex(SparseIndex):
    """The offset index of one segment; SparseIndex says when it reads and writes its file."""

    __slots__ = ()

    ENTRY = Struct(">ii")
    ENTRY_BYTES = ENTRY.size
    KEY = Struct(">i")

    @property
    def last_offset(self) -> Offset:
        """The offset of the last entry, or the base offset if there is none."""
        self._ensure_read()
        return Offset(self.base_offset + max(self._last_key, 0))

    def append(self, offset: Offset, position: int) -> None:
        """Add the batch that ends with this offset and begins at this position.

        Both have to be greater than the last entry's, and can_append(offset). A full index leaves
        the entry out: searching then starts further back, and the log rolls before its next batch.
        """
        assert self.can_append(offset), f"offset {offset} in a segment from {self.base_offset}"
        if self.is_full:
            return
        relative = offset - self.base_offset
        assert relative > self._last_key, f"offset {offset} after {self.last_offset}"
        assert self._last_value < position <= POSITION_MAX, f"position {position}"
        self._add(relative, position)

    def lookup(self, offset: Offset) -> OffsetPosition:
        """Return the last entry up to this offset, or the base offset at position 0."""
        found = self._floor(offset - self.base_offset)
        if found is None:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(Offset(self.base_offset + found[0]), found[1])

    def offset_from(self, position: int) -> Offset | None:
        """Return the offset of the first entry at or after this position, if there is one.

        Everything before the position has lower offsets: so this bounds a slice without reading it.
        """
        number = self._count_at_most(self.VALUE, self.KEY.size, position - 1)
        if number == self._entry_count:
            return None
        return Offset(self.base_offset + self._entry(number)[0])

    def position_up_to(self, position: int) -> int:
        """Return the position of the last entry at or before this position; 0 without an entry."""
        number = self._count_at_most(self.VALUE, self.KEY.size, position)
        return self._entry(number - 1)[1] if number else 0

    def entries(self) -> Iterator[OffsetPosition]:
        """Iterate over the entries as they are at the first step."""
        for relative, position in self._pairs():
            yield OffsetPosition(Offset(self.base_offset + relative), position)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries from this offset on, in the file too."""
        self._keep(self._count_at_most(self.KEY, 0, offset - self.base_offset - 1))

    def check(self, log_size_bytes: int) -> None:
        """Read all of it; CorruptIndexError unless it may be the index of a log of this size."""
        self._check(log_size_bytes)
