"""Which transactions were aborted in a segment: Kafka's `.txnindex` file, for read_committed.

Entries of 34 bytes in the order of the markers that ended the transactions. A transaction may
begin in an earlier segment; its entry is where its marker is. Most segments see no transaction
abort, and have no such file.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from struct import Struct
from typing import NamedTuple

from ottla.environment.disk import Buffer, Disk
from ottla.model.identifiers import Offset, ProducerId
from ottla.storage.files.open_files import Mappings
from ottla.storage.indexes.sparse_index import CorruptIndexError, count_at_most

VERSION = 0
ENTRY = Struct(">hqqqq")
ENTRY_BYTES = ENTRY.size

_OFFSET = Struct(">q")
_LAST_OFFSET_AT = 18
_UNREAD = -1


class AbortedTransaction(NamedTuple):
    """An aborted transaction.

    The offsets run from its first record to its marker. The last stable offset is the log's after
    its end.
    """

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


class AbortedIndex:
    """The aborted transactions of one segment, sorted by their last offset.

    `append` writes immediately, and creates the file if needed. Reads are lazy: the first read gets
    the file size and the last entry. A search maps the file until `release`, as in SparseIndex.
    Reads raise CorruptIndexError for impossible content; `reset`, `rename`, `release` and `remove`
    never do. When the directory is renamed, assign the new `path`.
    """

    __slots__ = (
        "__weakref__",
        "_disk",
        "_entry_count",
        "_last_offset",
        "_mapped",
        "_mappings",
        "base_offset",
        "path",
    )

    _mapped: memoryview | None
    _entry_count: int
    _last_offset: Offset

    def __init__(
        self, disk: Disk, path: str, base_offset: Offset, mappings: Mappings | None = None
    ) -> None:
        self._disk = disk
        self._mappings = Mappings() if mappings is None else mappings
        self.path = path
        self.base_offset = base_offset
        self._forget()

    @property
    def entry_count(self) -> int:
        """How many transactions were aborted in this segment."""
        self._ensure_read()
        return self._entry_count

    @property
    def last_offset(self) -> Offset:
        """The offset of the last marker that aborted a transaction here, or -1."""
        self._ensure_read()
        return self._last_offset

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction that ended after all those before it."""
        self._ensure_read()
        assert transaction.last_offset > self._last_offset, f"{transaction} after its successor"
        assert transaction.last_offset >= self.base_offset, f"{transaction} in another segment"
        end = self._entry_count * ENTRY_BYTES
        with closing(self._disk.create_file(self.path)) as file:
            try:
                file.write_at(end, ENTRY.pack(VERSION, *transaction))
            except OSError:
                with suppress(OSError):
                    file.truncate(end)
                raise
        self._entry_count += 1
        self._last_offset = transaction.last_offset

    def overlapping(
        self, start_offset: Offset, end_offset: Offset
    ) -> tuple[list[AbortedTransaction], bool]:
        """Return the transactions with offsets in this range, and whether the list is complete.

        If not, the next segment's index may have more: a transaction that was open in the range may
        have ended after the last transaction in this index.
        """
        self._ensure_read()
        entries, count = self._entries(), self._entry_count
        first = count_at_most(
            entries, count, ENTRY_BYTES, _OFFSET, _LAST_OFFSET_AT, start_offset - 1
        )
        found: list[AbortedTransaction] = []
        for number in range(first, count):
            transaction = self._transaction(entries, number)
            if transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def entries(self) -> Iterator[AbortedTransaction]:
        """Return an iterator over all of them as they are now."""
        self._ensure_read()
        entries = bytes(self._entries())
        return (self._transaction(entries, number) for number in range(self._entry_count))

    def truncate_to(self, offset: Offset) -> None:
        """Drop the transactions with a marker at this offset or later, in the file too."""
        self._ensure_read()
        entries, count = self._entries(), self._entry_count
        kept = count_at_most(entries, count, ENTRY_BYTES, _OFFSET, _LAST_OFFSET_AT, offset - 1)
        if kept == count:
            return
        if kept == 0:
            self.remove()
            return
        last_offset = self._transaction(entries, kept - 1).last_offset
        self._mapped = None  # a mapping may go on showing truncated entries
        self._entry_count, self._last_offset = kept, last_offset
        with closing(self._disk.open_file(self.path)) as file:
            file.truncate(kept * ENTRY_BYTES)

    def check(self) -> None:
        """Read all of it; CorruptIndexError unless it may be the index of this segment."""
        size_bytes = 0
        with suppress(FileNotFoundError), closing(self._disk.open_file(self.path)) as file:
            size_bytes = file.size_bytes()
        if size_bytes % ENTRY_BYTES:
            detail = f"{size_bytes} bytes are not a number of whole entries"
            raise CorruptIndexError(self.path, detail)
        last_offset = self.base_offset - 1
        for number, transaction in enumerate(self.entries()):
            if transaction.last_offset <= last_offset:
                detail = f"entry {number} is {transaction}, and should end after {last_offset}"
                raise CorruptIndexError(self.path, detail)
            last_offset = transaction.last_offset

    def sync(self) -> None:
        """Make appended entries durable. Changes no state, so a thread may do it."""
        with suppress(FileNotFoundError), closing(self._disk.open_file(self.path)) as file:
            file.sync()

    def release(self) -> None:
        """Drop the mapping; the next search makes it again."""
        self._mapped = None

    def reset(self) -> None:
        """Drop every transaction; without one there is no file."""
        self.remove()

    def note_missing(self) -> None:
        """Remember that there is no file, so that later reads do not try to open it."""
        self._forget()
        self._entry_count = 0

    def rename(self, new_path: str) -> None:
        """Give the file, if there is one, another name. Durable with its directory."""
        with suppress(FileNotFoundError):
            self._disk.rename(self.path, new_path)
        self.path = new_path

    def remove(self) -> None:
        """Drop every transaction and the file, if there is one."""
        self._forget()
        with suppress(FileNotFoundError):
            self._disk.remove(self.path)

    def _ensure_read(self) -> None:
        if self._entry_count != _UNREAD:
            return
        count, last_offset = 0, -1
        with suppress(FileNotFoundError), closing(self._disk.open_file(self.path)) as file:
            count = file.size_bytes() // ENTRY_BYTES
            if count:
                last = file.read_at((count - 1) * ENTRY_BYTES, ENTRY_BYTES)
                last_offset = self._transaction(last, 0).last_offset
        self._entry_count, self._last_offset = count, Offset(last_offset)

    def _entries(self) -> memoryview:
        """Return at least the entries in the file, as one buffer."""
        needed_bytes = self._entry_count * ENTRY_BYTES
        if needed_bytes == 0:
            return memoryview(b"")
        mapped = self._mapped
        if mapped is None or len(mapped) < needed_bytes:
            self._mapped = mapped = self._disk.map_file(self.path)
            self._mappings.add(self)
            if len(mapped) < needed_bytes:
                detail = f"{len(mapped)} bytes, there have been {needed_bytes}"
                raise CorruptIndexError(self.path, detail)
        return mapped

    def _transaction(self, entries: Buffer, number: int) -> AbortedTransaction:
        version, *fields = ENTRY.unpack_from(entries, number * ENTRY_BYTES)
        transaction = AbortedTransaction(*fields)
        if version != VERSION or not 0 <= transaction.first_offset <= transaction.last_offset:
            raise CorruptIndexError(self.path, f"version {version}, {transaction}")
        return transaction

    def _forget(self) -> None:
        """Know nothing of the file, as at the beginning."""
        self._mapped = None
        self._entry_count = _UNREAD
        self._last_offset = Offset(-1)
