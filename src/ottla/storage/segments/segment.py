"""One file of batches, and the indexes beside it.

    00000000000000000042.log         batches back to back, from offset 42 on
    00000000000000000042.index       sparse: offset to position
    00000000000000000042.timeindex   sparse: timestamp to offset
    00000000000000000042.txnindex    the transactions aborted in here, if there are any
    00000000000000000042.damage      its damaged ranges, if there are any

Only the last segment of a log is written. Offsets may have gaps after compaction.
"""

import errno
import posixpath
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from ottla.environment.disk import Buffer
from ottla.model.identifiers import Offset
from ottla.model.settings.topic_config import TopicConfig
from ottla.storage.files.checkpoints import INT64_MAX
from ottla.storage.files.damage import Damage, DamageKind, damage_path, replaced_kind, write_damage
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.indexes.aborted_index import AbortedIndex
from ottla.storage.indexes.offset_index import OffsetIndex, OffsetPosition
from ottla.storage.indexes.sparse_index import CorruptIndexError
from ottla.storage.indexes.time_index import NO_TIMESTAMP_MS, TimeIndex, TimestampOffset
from ottla.storage.segments.batch_scan import BatchScan
from ottla.storage.segments.segment_batches import BatchPlace, CorruptSegmentError, SegmentBatches
from ottla.wire.records.batch import HEADER_BYTES, RecordBatch

OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
ABORTED_INDEX_SUFFIX: Final = ".txnindex"
INDEX_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_INDEX_SUFFIX)
TEMPORARY_SUFFIX: Final = ".tmp"

LOG_SUFFIX: Final = ".log"
DELETED_SUFFIX: Final = ".deleted"

_NOT_READ: Final = -2
_FAR_OFFSET: Final = Offset(1 << 62)

_Answer = TypeVar("_Answer")


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


def segment_name(base_offset: Offset) -> str:
    """Return the common prefix of a segment's file names."""
    return f"{base_offset:020d}"


class Segment(SegmentBatches):
    """One segment of a log. Failed reads raise CorruptSegmentError or `OSError`."""

    __slots__ = (
        "_config",
        "_first_timestamp_ms",
        "_greatest",
        "_is_persist_due",
        "_unindexed_bytes",
        "aborted_index",
        "base_offset",
        "created_ms",
        "offset_index",
        "time_index",
    )

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        base_offset: Offset,
        config: TopicConfig,
        now_ms: int,
    ) -> None:
        stem = f"{directory}/{segment_name(base_offset)}"
        disk = files.disk
        offset_entries = config.segment_index_bytes // OffsetIndex.ENTRY_BYTES
        time_entries = config.segment_index_bytes // TimeIndex.ENTRY_BYTES
        super().__init__(files, stem + LOG_SUFFIX)
        self._config = config
        self.base_offset = base_offset
        self.created_ms = now_ms
        self.offset_index = OffsetIndex(
            disk, stem + OFFSET_INDEX_SUFFIX, base_offset, offset_entries, files.mappings
        )
        self.time_index = TimeIndex(
            disk, stem + TIME_INDEX_SUFFIX, base_offset, time_entries, files.mappings
        )
        aborted_path = stem + ABORTED_INDEX_SUFFIX
        self.aborted_index = AbortedIndex(disk, aborted_path, base_offset, files.mappings)
        self._first_timestamp_ms = _NOT_READ
        self._greatest: TimestampOffset | None = None
        self._unindexed_bytes = 0
        self._is_persist_due = False

    @classmethod
    def create(
        cls, files: OpenFiles, directory: str, base_offset: Offset, config: TopicConfig, now_ms: int
    ) -> "Segment":
        """Create a new segment; existing files with its names are replaced."""
        segment = cls(files, directory, base_offset, config, now_ms)
        try:
            file = files.create(segment.path)
            if file.size_bytes():  # ext4 flushes a file on close if it was truncated to 0
                file.truncate(0)
            for index in segment.indexes:
                index.reset()
        except OSError:
            # An unknown empty file would hide a later segment with the same base offset.
            with suppress(OSError):
                segment.remove()
            raise
        return segment

    @classmethod
    def open(
        cls, files: OpenFiles, directory: str, base_offset: Offset, config: TopicConfig, now_ms: int
    ) -> "Segment":
        """Open an existing segment. Reads only the size of its file."""
        segment = cls(files, directory, base_offset, config, now_ms)
        segment.size_bytes = files.get(segment.path).size_bytes()
        return segment

    @property
    def indexes(self) -> SegmentIndexes:
        """All three indexes."""
        return SegmentIndexes(self.offset_index, self.time_index, self.aborted_index)

    # -- writing --------------------------------------------------------------------------------

    def has_room_for(self, size_bytes: int, last_offset: Offset, segment_bytes: int) -> bool:
        """Return whether batches of this size, up to this offset, go into a segment so large."""
        return self.offset_index.can_append(last_offset) and (
            self.size_bytes == 0
            or (
                self.size_bytes + size_bytes <= segment_bytes
                and not self.offset_index.is_full
                and not self.time_index.is_full
            )
        )

    def waited_ms(self, now_ms: int, timestamp_ms: int) -> int:
        """Return how old the segment is: in its records' time, or if they have none, in ours."""
        first_ms = self.first_timestamp_ms
        return timestamp_ms - first_ms if first_ms >= 0 else now_ms - self.created_ms

    def append(self, raw: Buffer, batches: list[RecordBatch]) -> None:
        """Append these batches, of which raw is all bytes: all of them, or OSError and none."""
        if self._is_persist_due:
            self._persist()
        file = self.file
        position = self.size_bytes
        try:
            file.write_at(position, raw)
        except OSError:
            try:
                file.truncate(position)
            except OSError as error:  # even if that needs room: half a batch is in the file
                raise OSError(errno.EIO, f"half a batch cannot be cut off: {error}") from error
            raise
        self.size_bytes = position + len(raw)
        for batch in batches:
            self._index(batch, position)
            self._newest.add(position, batch)
            position += len(batch.raw)

    def _index(self, batch: RecordBatch, position: int) -> None:
        """Record a batch that is in the file."""
        greatest = self._greatest or self.greatest_timestamp
        last_offset = Offset(batch.base_offset + batch.last_offset_delta)
        if batch.max_timestamp_ms > greatest.timestamp_ms:
            self._greatest = greatest = TimestampOffset(batch.max_timestamp_ms, last_offset)
        if position == 0:
            self._first_timestamp_ms = batch.max_timestamp_ms
        if self._unindexed_bytes > self._config.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(*greatest)
            self._unindexed_bytes = 0
            self._is_persist_due = self.offset_index.wants_persist or self.time_index.wants_persist
        self._unindexed_bytes += len(batch.raw)

    def _persist(self) -> None:
        """Write out the indexes that have grown; OSError, and it is tried again next time."""
        for index in (self.offset_index, self.time_index):
            if index.wants_persist:
                index.persist()
        self._is_persist_due = False

    def close_for_writing(self) -> None:
        """Put the greatest timestamp into the index and both indexes into their files."""
        if self.size_bytes:
            self.time_index.append(*self.greatest_timestamp, is_closing=True)
        self.offset_index.persist()
        self.time_index.persist()

    # -- asking ---------------------------------------------------------------------------------

    @property
    def greatest_timestamp(self) -> TimestampOffset:
        """The greatest timestamp in the segment, and the last offset of the batch that has it."""
        if self._greatest is None:
            self._greatest = self._ask(lambda: self._verified(self.time_index.last_entry))
        return self._greatest

    @property
    def first_timestamp_ms(self) -> int:
        """The greatest timestamp of the first batch, which determines the segment's age."""
        if self._first_timestamp_ms == _NOT_READ:
            header = self.file.read_at(0, HEADER_BYTES)
            is_empty = self.size_bytes == 0 or len(header) < HEADER_BYTES
            self._first_timestamp_ms = NO_TIMESTAMP_MS if is_empty else _max_timestamp_ms(header)
        return self._first_timestamp_ms

    def last_older(self, timestamp_ms: int) -> TimestampOffset:
        """Return an offset up to which all is older than this: near the end of that, not at it."""
        return self._ask(lambda: self._verified(self.time_index.lookup(timestamp_ms - 1)))

    def _verified(self, entry: TimestampOffset) -> TimestampOffset:
        """Return an entry of the time index; CorruptIndexError if its batch says otherwise.

        Retention deletes by these timestamps, and nothing else protects them.
        """
        if entry.timestamp_ms < 0:
            return entry
        with suppress(CorruptSegmentError):
            place = self.find(entry.offset)
            header = self.file.read_at(place.position, HEADER_BYTES) if place else b""
            if _max_timestamp_ms(header) != entry.timestamp_ms:
                raise CorruptIndexError(self.time_index.path, f"there is no batch for {entry}")
        return entry

    def find(self, offset: Offset) -> BatchPlace | None:
        """Return the first batch that reaches this offset; None if the segment ends before it."""
        return self._newest.find(offset) or self._ask(lambda: self._find(offset))

    def _find(self, offset: Offset) -> BatchPlace | None:
        entry = self.offset_index.lookup(offset)
        places = self.places(entry.position)
        if entry.position and (first := self._entered(entry, places)).last_offset >= offset:
            return first
        for place in places:
            if place.last_offset >= offset:
                return place
        return None

    def end_offset(self) -> Offset:
        """Return the offset after the last batch, from the last index entry on."""
        ends: list[int] = [damage.end_offset for damage in self.damage]
        ends += self._ask(lambda: [p.last_offset + 1 for p in self._places_near(_FAR_OFFSET)])
        return Offset(max(ends, default=self.base_offset))

    def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        """Query the indexes; if an index is corrupt, rebuild both and query again."""
        try:
            return question()
        except CorruptIndexError:
            self.rebuild_indexes()
            self.keep_rebuilt()
            return question()

    def _places_near(self, offset: Offset) -> Iterator[BatchPlace]:
        """Yield the batches from the last index entry before an offset on."""
        entry = self.offset_index.lookup(offset)
        places = self.places(entry.position)
        if entry.position:
            yield self._entered(entry, places)
        yield from places

    def _entered(self, entry: OffsetPosition, places: Iterator[BatchPlace]) -> BatchPlace:
        """Return the batch at an index entry; CorruptIndexError if its offset differs."""
        with suppress(CorruptSegmentError):
            first = next(places, None)
            if (
                first is not None
                and first.position == entry.position
                and self.base_offset <= first.base_offset <= entry.offset
            ):
                return first
        raise CorruptIndexError(self.offset_index.path, f"there is no batch for {entry}")

    # -- upkeep ---------------------------------------------------------------------------------

    def fence_off(self, damage: Damage) -> None:
        """Exclude a range of the file from all reads, now or after a restart."""
        self._set_damage(tuple(sorted((*self.damage, damage))))

    def note_replay(self) -> None:
        """Record that producers were replayed without the lost range of the segment."""
        kinds = DamageKind.IN_USE, DamageKind.AT_OPENING
        if any(damage.kind is kinds[0] for damage in self.damage):
            self._set_damage(replaced_kind(self.damage, *kinds))

    def _set_damage(self, damage: tuple[Damage, ...]) -> None:
        write_damage(self._files.disk, damage_path(self.path), damage)
        self.damage = damage
        self._newest.forget()

    def boundary(self, offset: Offset) -> tuple[int, Offset]:
        """Return the end of the complete batches before an offset: position and end offset."""
        return self._ask(lambda: self._boundary(offset))

    def _boundary(self, offset: Offset) -> tuple[int, Offset]:
        whole = [damage for damage in self.damage if damage.end_offset <= offset]
        position = min([d.position for d in self.damage[len(whole) :]], default=self.size_bytes)
        end_offset = max([d.end_offset for d in whole], default=self.base_offset)
        for place in self._places_near(Offset(offset - 1)):
            if place.last_offset >= offset:
                return min(position, place.position), end_offset
            end_offset = Offset(max(end_offset, place.last_offset + 1))
        return position, end_offset

    def truncate(self, position: int, end_offset: Offset) -> None:
        """Cut everything from a position on, durably; nothing left reaches this offset."""
        self.cut(position)
        self.aborted_index.truncate_to(end_offset)
        self._ask(lambda: self._cut_indexes(end_offset))

    def cut(self, position: int) -> None:
        """Cut the batches from a position on, durably, and leave the indexes as they are."""
        file = self.file
        self._newest.forget()
        file.truncate(position)
        file.sync()
        self.size_bytes = position
        if any(damage.position >= position for damage in self.damage):
            self._set_damage(tuple(d for d in self.damage if d.position < position))
        self._unindexed_bytes = 0
        if position == 0:
            self._first_timestamp_ms = _NOT_READ

    def _cut_indexes(self, end_offset: Offset) -> None:
        """Cut the indexes, and find the greatest timestamp behind their last entries again."""
        self.offset_index.truncate_to(end_offset)
        self.time_index.truncate_to(end_offset)
        greatest = self.time_index.last_entry
        place = next(self._places_near(_FAR_OFFSET), None)
        for batch in self.batches(place.position) if place else ():
            if batch.max_timestamp_ms > greatest.timestamp_ms:
                greatest = TimestampOffset(batch.max_timestamp_ms, batch.last_offset)
        self._greatest = greatest

    def scan(self, reach_max: int = INT64_MAX) -> BatchScan:
        """Begin to go over all batches, none of which may reach beyond an offset."""
        return BatchScan(self.base_offset, self._config.index_interval_bytes, reach_max)

    def take_indexes(self, scan: BatchScan) -> None:
        """Fill the empty offset and time indexes with the entries of a full scan."""
        self.offset_index.fill(scan.offset_entries)
        self.time_index.fill(scan.time_entries)
        self._greatest = TimestampOffset(scan.greatest_ms, Offset(scan.greatest_offset))
        self._first_timestamp_ms = _NOT_READ
        self._unindexed_bytes = scan.unindexed_bytes
        self._is_persist_due = self.offset_index.wants_persist or self.time_index.wants_persist

    def rebuild_indexes(self) -> None:
        """Rebuild the offset and the time index from the batches, in memory."""
        # Check all batches before dropping an index that may be correct.
        end_offset = self.base_offset
        for place in self.places(0):
            if place.base_offset < end_offset or not self.offset_index.can_append(
                place.last_offset
            ):
                raise self._corrupt(place.position, f"{place} after offset {end_offset}")
            end_offset = Offset(place.last_offset + 1)
        self.indexes.unname()
        for index in (self.offset_index, self.time_index):
            index.reset()
        self._greatest = TimestampOffset(NO_TIMESTAMP_MS, self.base_offset)
        self._first_timestamp_ms = _NOT_READ
        self._unindexed_bytes = 0
        for position, batch in self.batches_at(0):
            self._index(batch, position)

    def keep_rebuilt(self, *, sync: bool = True, is_active: bool = False) -> None:
        """Replace the indexes by rebuilt ones; with sync, each replacement is atomic and durable.

        The indexes of an active segment stay in memory, unsynced, as during writes.
        """
        if sync:
            self.aborted_index.sync()
        if sync or not is_active:
            self.close_for_writing()
        elif self._is_persist_due:
            self._persist()
        self.indexes.name(sync=sync)
        if sync:
            self._files.disk.sync_directory(posixpath.dirname(self.path))

    def rename(self, suffix: str) -> None:
        """Put a suffix behind the names of all files; the segment is not used any more."""
        self._files.forget(self.path)
        self._files.disk.rename(self.path, self.path + suffix)
        self._remove_damage()
        self.path += suffix
        self.indexes.move(suffix)

    def remove(self) -> None:
        """Remove all files, the batches first: indexes without them are swept up at a start."""
        self._files.forget(self.path)
        with suppress(FileNotFoundError):
            self._files.disk.remove(self.path)
        self.indexes.remove()
        self._remove_damage()

    def _remove_damage(self) -> None:
        if self.damage:
            with suppress(FileNotFoundError):
                self._files.disk.remove(damage_path(self.path))

    def release(self) -> None:
        """Give up the mapped indexes; they are mapped again when they are searched."""
        self.indexes.release()


def _max_timestamp_ms(header: bytes) -> int:
    return int.from_bytes(header[35:43], "big", signed=True)
