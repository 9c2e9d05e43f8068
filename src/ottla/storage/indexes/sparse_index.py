"""The common part of offset and time indexes: a sorted file of pairs of equal width.

    in the file    | 0 | 1 | 2 | … | n-1 |             as persist() left it; mapped for searches
    in memory                            | n | n+1 |   the tail, which persist() will write

Nothing here is ever the only copy. After a crash the tail is gone, or the file is damaged, and the
log fills the index again; so a write is not synced before the log asks for it, and no checksum is
kept. An index holds no open file, but its mapping lasts until release(), or until there are too
many (`Mappings`).
"""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing, suppress
from struct import Struct
from typing import ClassVar

from ottla.environment.disk import Buffer, Disk, File
from ottla.model.identifiers import Offset
from ottla.storage.files.open_files import Mappings

RELATIVE_OFFSET_MAX = 2**31 - 1
"""Offsets are kept relative to the segment's base, in four bytes with a sign."""
POSITION_MAX = 2**31 - 1
TAIL_BYTES_MAX = 1024
"""A longer tail is due to be persisted: ten thousand active segments must fit into memory."""

_UNREAD = -1
_MISSING = -1


class CorruptIndexError(Exception):
    """An index file has impossible content: reset it, and fill it again from the log."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path}: {detail}")


class SparseIndex:
    """Pairs of a key and a value, both non-negative and strictly increasing, in one file.

    The constructor reads nothing. The first query reads the size of the file and its last entry,
    the first search maps it. Methods that read the file raise CorruptIndexError for impossible
    content; reset, rename, release and remove always work. A missing file is an empty index. When
    the directory has moved, assign the new `path`.
    """

    __slots__ = (
        "__weakref__",
        "_disk",
        "_entry_count",
        "_file_bytes",
        "_last_key",
        "_last_value",
        "_mapped",
        "_mappings",
        "_stored_count",
        "_tail",
        "base_offset",
        "entries_max",
        "path",
    )

    ENTRY: ClassVar[Struct]
    ENTRY_BYTES: ClassVar[int]
    KEY: ClassVar[Struct]
    VALUE: ClassVar[Struct] = Struct(">i")
    KEPT_FREE: ClassVar[int] = 0
    """How many places `append` leaves for entries that a closed segment needs."""

    _mapped: memoryview | None
    _tail: bytearray | None
    _stored_count: int
    _entry_count: int
    _file_bytes: int
    _last_key: int
    _last_value: int

    def __init__(
        self,
        disk: Disk,
        path: str,
        base_offset: Offset,
        entries_max: int,
        mappings: Mappings | None = None,
    ) -> None:
        self._disk = disk
        self._mappings = Mappings() if mappings is None else mappings
        self.path = path
        self.base_offset = base_offset
        self.entries_max = entries_max
        self._forget()

    # -- asking ---------------------------------------------------------------------------------

    @property
    def entry_count(self) -> int:
        """How many entries there are, in the file and in memory."""
        self._ensure_read()
        return self._entry_count

    @property
    def is_full(self) -> bool:
        """Whether append drops its entry: the segment has to be rolled first."""
        if self._stored_count == _UNREAD:  # checked here, too, because every append gets here
            self._ensure_read()
        return self._entry_count >= self.entries_max - self.KEPT_FREE

    @property
    def padding_bytes(self) -> int:
        """How much the file holds behind the last entry: Kafka fills an active index up."""
        self._ensure_read()
        return max(self._file_bytes - self._stored_count * self.ENTRY_BYTES, 0)

    @property
    def wants_persist(self) -> bool:
        """Whether the tail is long enough to be written out.

        Check before writing to the log, while a failing persist() does no harm yet.
        """
        return self._tail is not None and len(self._tail) > TAIL_BYTES_MAX

    def can_append(self, offset: Offset) -> bool:
        """Return whether the offset is near enough to the base to be kept in four bytes."""
        return 0 <= offset - self.base_offset <= RELATIVE_OFFSET_MAX

    # -- the file -------------------------------------------------------------------------------

    def persist(self) -> None:
        """Write the new entries to the file; create it if missing."""
        self._ensure_read()
        stored_bytes = self._stored_count * self.ENTRY_BYTES
        if self._tail is None and self._file_bytes == stored_bytes:
            return
        with closing(self._disk.create_file(self.path)) as file:
            self._cut(file, stored_bytes)
            if self._tail is not None:
                # Counted before the write: if it fails half-way the next call truncates it.
                self._file_bytes = stored_bytes + len(self._tail)
                file.write_at(stored_bytes, self._tail)
        self._file_bytes = self._entry_count * self.ENTRY_BYTES
        self._stored_count = self._entry_count
        self._tail = None

    def sync(self) -> None:
        """Make the persisted entries durable. Changes no state, so a thread may do it."""
        with closing(self._disk.open_file(self.path)) as file:
            file.sync()

    def release(self) -> None:
        """Drop the mapping; the next search makes it again."""
        self._mapped = None

    def reset(self) -> None:
        """Drop every entry and the file, if there is one, without looking at it."""
        # Do not truncate: ext4 flushes a file at once if it is truncated to 0 and refilled.
        self.remove()
        self._stored_count = 0

    def note_missing(self) -> None:
        """Remember that there is no file, so that later reads do not try to open it."""
        self._forget()
        self._stored_count = 0

    @property
    def _is_missing(self) -> bool:
        return self._stored_count != _UNREAD and self._file_bytes == _MISSING

    def fill(self, entries: bytearray) -> None:
        """Fill an empty index with entries, except those `append` would skip."""
        assert self.entry_count == 0, f"{self.path} has {self.entry_count} entries"
        count = min(len(entries) // self.ENTRY_BYTES, self.entries_max - self.KEPT_FREE)
        if count > 0:
            self._tail = entries[: count * self.ENTRY_BYTES]
            self._entry_count = self._stored_count + count
            self._last_key, self._last_value = self._entry(count - 1)

    def rename(self, new_path: str) -> None:
        """Give the file, if there is one yet, another name. Durable with its directory."""
        if not self._is_missing:
            with suppress(FileNotFoundError):
                self._disk.rename(self.path, new_path)
        self.path = new_path

    def remove(self) -> None:
        """Drop every entry and the file, if there is one."""
        if not self._is_missing:
            with suppress(FileNotFoundError):
                self._disk.remove(self.path)
        self._forget()

    # -- for the two indexes --------------------------------------------------------------------

    def _add(self, key: int, value: int) -> None:
        """Add an entry to the tail. The caller has checked the order."""
        if self._tail is None:
            self._tail = bytearray()
        self._tail += self.ENTRY.pack(key, value)
        self._entry_count += 1
        self._last_key = key
        self._last_value = value

    def _floor(self, key: int) -> tuple[int, int] | None:
        """Return the last entry with at most this key, if any."""
        self._ensure_read()
        if key >= self._last_key and self._entry_count:
            return self._last_key, self._last_value
        count = self._count_at_most(self.KEY, 0, key)
        return self._entry(count - 1) if count else None

    def _count_at_most(self, field: Struct, at: int, limit: int) -> int:
        """Return how many entries have this field, which is sorted, at most at the limit."""
        self._ensure_read()
        tail, stored, size = self._tail, self._stored_count, self.ENTRY_BYTES
        if tail is not None and field.unpack_from(tail, at)[0] <= limit:
            return stored + count_at_most(tail, self._entry_count - stored, size, field, at, limit)
        if stored == 0:
            return 0
        return count_at_most(self._stored(), stored, size, field, at, limit)

    def _entry(self, number: int) -> tuple[int, int]:
        """Return the entry with this number, or say that no index has such an entry."""
        size = self.ENTRY_BYTES
        if self._tail is not None and number >= self._stored_count:
            pair = self.ENTRY.unpack_from(self._tail, (number - self._stored_count) * size)
        else:
            pair = self.ENTRY.unpack_from(self._stored(), number * size)
        key, value = pair
        if key < 0 or value < 0:
            raise CorruptIndexError(self.path, f"entry {number} is {pair}: negative")
        return key, value

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Return an iterator over all present entries, valid or not."""
        self._ensure_read()
        # A copy, because a concurrent truncation would remove mapped pages.
        raw = bytearray()
        if self._stored_count:
            raw += self._stored()[: self._stored_count * self.ENTRY_BYTES]
        raw += self._tail or b""
        return self.ENTRY.iter_unpack(raw)

    def _keep(self, count: int) -> None:
        """Drop all but the first entries, in the file too."""
        if count == self._entry_count:
            return
        last = self._entry(count - 1) if count else (-1, -1)
        if self._tail is not None and count > self._stored_count:
            del self._tail[(count - self._stored_count) * self.ENTRY_BYTES :]
        else:
            self._tail = None
            self._stored_count = count
        self._entry_count = count
        self._last_key, self._last_value = last
        stored_bytes = self._stored_count * self.ENTRY_BYTES
        if self._file_bytes > stored_bytes:
            with closing(self._disk.open_file(self.path)) as file:
                self._cut(file, stored_bytes)

    def _check(self, value_end: int) -> None:
        """Raise CorruptIndexError unless all is in order and every value is below the end."""
        self._ensure_read()
        if max(self._file_bytes, 0) % self.ENTRY_BYTES:
            detail = f"{self._file_bytes} bytes are not a number of whole entries"
            raise CorruptIndexError(self.path, detail)
        last = (-1, -1)
        for number, pair in enumerate(self._pairs()):
            if pair[0] <= last[0] or pair[1] <= last[1]:
                detail = f"entry {number} is {pair}, after {last}"
                raise CorruptIndexError(self.path, detail)
            last = pair
        if last[1] >= value_end:
            raise CorruptIndexError(self.path, f"the last entry is {last}, the log ends before it")

    # -- inside ---------------------------------------------------------------------------------

    def _ensure_read(self) -> None:
        if self._stored_count != _UNREAD:
            return
        size = self.ENTRY_BYTES
        count, file_bytes = 0, _MISSING
        with suppress(FileNotFoundError), closing(self._disk.open_file(self.path)) as file:
            file_bytes = file.size_bytes()
            count = file_bytes // size
            last = file.read_at((count - 1) * size, size) if count else b""
            if count > 1 and not any(last):
                count = _count_before_padding(file, count, size)
                last = file.read_at((count - 1) * size, size) if count else b""
            if count:
                self._last_key, self._last_value = self._checked_last(last)
        self._file_bytes = file_bytes
        self._stored_count = self._entry_count = count

    def _checked_last(self, raw: bytes) -> tuple[int, int]:
        key, value = self.ENTRY.unpack(raw)
        if key < 0 or value < 0:
            raise CorruptIndexError(self.path, f"the last entry is {(key, value)}: negative")
        return key, value

    def _stored(self) -> memoryview:
        """Return at least the entries in the file, as one buffer."""
        needed_bytes = self._stored_count * self.ENTRY_BYTES
        mapped = self._mapped
        if mapped is None or len(mapped) < needed_bytes:
            self._mapped = mapped = self._disk.map_file(self.path)
            self._mappings.add(self)
            if len(mapped) < needed_bytes:
                detail = f"{len(mapped)} bytes, there have been {needed_bytes}"
                raise CorruptIndexError(self.path, detail)
        return mapped

    def _cut(self, file: File, size_bytes: int) -> None:
        """Truncate the file to this size: dropped entries, padding, half an entry."""
        if self._file_bytes > size_bytes:
            self._mapped = None  # a mapping may go on showing truncated entries
            file.truncate(size_bytes)
        self._file_bytes = min(self._file_bytes, size_bytes)

    def _forget(self) -> None:
        """Know nothing of the file, as at the beginning."""
        self._mapped = self._tail = None
        self._stored_count = _UNREAD
        self._entry_count = 0
        self._file_bytes = _MISSING
        self._last_key = self._last_value = -1


def count_at_most(
    entries: Buffer, count: int, entry_bytes: int, field: Struct, at: int, limit: int
) -> int:
    """Return how many of the first `count` entries have this field, which is sorted, <= limit."""
    unpack_from = field.unpack_from
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if unpack_from(entries, middle * entry_bytes + at)[0] <= limit:
            low = middle + 1
        else:
            high = middle
    return low


def _count_before_padding(file: File, count: int, entry_bytes: int) -> int:
    """Return how many entries precede the zeros with which Kafka pads an active index.

    Only the first entry of an index can be all zeros. In a padded file it counts as padding, too: a
    lookup then finds no entry, and starts at the base offset as well.
    """
    zeros = bytes(entry_bytes)
    return bisect_left(
        range(count), True, key=lambda at: file.read_at(at * entry_bytes, entry_bytes) == zeros
    )
