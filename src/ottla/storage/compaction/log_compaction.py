"""Keeps the last value of each key: compacts a part of a log beside its other work.

    on the loop    plan(log, …), and a Compaction of the plan
    in a thread    clean_next(): read a group of segments, write the remains beside them
    on the loop    prepare(log, group): check that the log has not changed
    in a thread    decide(group): from here on a crash leaves the new segment
    on the loop    replace(log, group, …): put the new segment in their place
    in a thread    make_durable(): the new names are durable; then the next group
    on the loop    after the last group, record end_offset as the first dirty one

The thread reads only closed segments, which are never written, through its own open files. If the
log loses a segment meanwhile, to retention or to a truncation, the compaction is abandoned. This
is safe at any moment: groups are replaced from the start of the log on, and the log is valid after
each of them.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import chain, pairwise, zip_longest
from typing import Final, NamedTuple

from ottla.environment.disk import Disk
from ottla.model.identifiers import Offset
from ottla.model.settings.topic_config import TopicConfig
from ottla.storage.compaction import segment_swap
from ottla.storage.compaction.batch_cleaner import (
    BatchCleaner,
    CleaningCounts,
    TransactionTracker,
    placeholder,
    read_aborted,
)
from ottla.storage.compaction.compaction_plan import CompactionPlan
from ottla.storage.compaction.offset_map import DEDUPE_BUFFER_BYTES, OffsetMap, offset_map
from ottla.storage.compaction.segment_swap import CleanedSegment
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.indexes.aborted_index import AbortedTransaction
from ottla.storage.indexes.sparse_index import POSITION_MAX, RELATIVE_OFFSET_MAX
from ottla.storage.log.log import PartitionLog
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_batches import CorruptSegmentError
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.record import uncompressed_records

PACED_BYTES: Final = 1 << 20
"""How much is read between two calls of `pace`."""

_ALL_PLACED = -1


class Source(NamedTuple):
    """A closed segment as it was when the compaction began."""

    segment: Segment
    """The log's own, which the thread leaves alone."""
    base_offset: Offset
    end_offset: Offset
    size_bytes: int


class SourceReader:
    """Reads closed segments through its own open files; FileNotFoundError for a deleted segment."""

    def __init__(
        self, disk: Disk, directory: str, config: TopicConfig, pace: Callable[[int], None]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._pace = pace

    def batches(self, source: Source) -> Iterator[RecordBatch]:
        """Iterate over a segment; CorruptSegmentError at a damaged batch."""
        unpaced_bytes = 0
        segment = self._opened(source)
        for position, batch in segment.batches_at(0):
            if not batch.has_valid_crc():
                raise CorruptSegmentError(segment.path, position, f"the CRC of {batch} is wrong")
            yield batch
            unpaced_bytes += batch.size_bytes
            if unpaced_bytes >= PACED_BYTES:
                self._pace(unpaced_bytes)
                unpaced_bytes = 0
        self._pace(unpaced_bytes)

    def grouped(self, sources: list[Source]) -> Iterator[list[Source]]:
        """Put neighbours together that make one segment, however little compaction takes away."""
        config = self._config
        limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
        group: list[Source] = []
        totals: tuple[int, ...] = (0, 0, 0)
        for source in sources:
            sizes = self._sizes(source)
            sums = tuple(total + size for total, size in zip(totals, sizes, strict=True))
            fits = all(total <= limit for total, limit in zip(sums, limits, strict=True))
            if group and not (fits and _is_near(group[0], source)):
                yield group
                group, sums = [], sizes
            group.append(source)
            totals = sums
        if group:
            yield group

    def modified_ms(self, source: Source) -> int:
        """Return when a segment was last written to."""
        return self._opened(source).file.modified_ms()

    def _sizes(self, source: Source) -> tuple[int, ...]:
        offset_index, time_index, _ = self._opened(source).indexes
        return source.size_bytes, *map(self._file_bytes, (offset_index.path, time_index.path))

    def _opened(self, source: Source) -> Segment:
        files = OpenFiles(self._disk)
        segment = Segment(files, self._directory, source.base_offset, self._config, now_ms=0)
        segment.size_bytes = source.size_bytes
        return segment

    def _file_bytes(self, path: str) -> int:
        with suppress(FileNotFoundError), closing(self._disk.open_file(path)) as file:
            return file.size_bytes()
        return 0


def _is_near(first: Source, source: Source) -> bool:
    """Return whether the offsets of a segment fit relative to another segment's base."""
    return (
        source.size_bytes == 0 or source.end_offset - 1 - first.base_offset <= RELATIVE_OFFSET_MAX
    )


class AbandonedCompactionError(Exception):
    """The log has changed since the compaction began; start a new compaction."""


class CleanedGroup(NamedTuple):
    """Neighbours in a log, for which there is a cleaned segment now."""

    sources: tuple[Source, ...]
    cut_count: int
    """The number of truncations of the log when the compaction began."""

    @property
    def base_offset(self) -> Offset:
        """Where the cleaned segment begins."""
        return self.sources[0].base_offset


class Compaction:
    """One compaction of one log. The constructor reads everything that the thread needs to know.

    `pace` is called with a number of bytes for about every megabyte that was read or written, and
    may wait there, or raise to end the compaction.
    """

    def __init__(
        self,
        disk: Disk,
        log: PartitionLog,
        plan: CompactionPlan,
        now_ms: int,
        *,
        pace: Callable[[int], None] = lambda _: None,
        dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES,
    ) -> None:
        row = list(log.segments)
        self.counts = CleaningCounts()
        self._disk = disk
        self._directory = log.directory
        self._config = log.config
        self._plan = plan
        self._now_ms = now_ms
        self._pace = pace
        self._reader = SourceReader(disk, log.directory, log.config, pace)
        self._dedupe_buffer_bytes = dedupe_buffer_bytes
        self._sources = [
            Source(segment, segment.base_offset, following.base_offset, segment.size_bytes)
            for segment, following in pairwise(row)
        ]
        self._aborted_paths = [segment.aborted_index.path for segment in row[:-1]]
        self._aborted_in_active = list(row[-1].aborted_index.entries())
        self._last_by_producer = {last.producer_id: last for last in log.producers.producers()}
        self._end_offset = plan.first_dirty_offset
        self._cut_count = log.cut_count
        self._groups: Iterator[CleanedGroup] | None = None

    @property
    def end_offset(self) -> Offset:
        """Up to where the log is clean once every group is taken over."""
        return self._end_offset

    def clean_next(self) -> CleanedGroup | None:
        """Clean the next group of segments; it must be replaced before the group after it.

        None when all are clean. CorruptSegmentError and CorruptIndexError report damage in the
        sources. They, OversizedSegmentError, AbandonedCompactionError, an `OSError` and the
        exceptions of `pace` end the compaction, and leave nothing of the group.
        """
        if self._groups is None:
            self._groups = self._clean_groups()
        try:
            return next(self._groups, None)
        except FileNotFoundError as error:
            raise AbandonedCompactionError(str(error)) from error

    def decide(self, group: CleanedGroup) -> None:
        """Decide, durably, to replace a prepared group.

        Until it has been replaced the log must lose none of its segments. After an `OSError` the
        outcome depends on the disk's state at the next opening: the log goes offline.
        """
        segment_swap.decide(self._disk, self._directory, group.base_offset)

    def make_durable(self) -> None:
        """Make the replacement of a group durable."""
        self._disk.sync_directory(self._directory)

    # -- which keys are dirty -------------------------------------------------------------------

    def _map_keys(self) -> OffsetMap:
        """Record the last offset of each dirty key; if there are too many, less is cleaned."""
        first_dirty_offset = self._plan.first_dirty_offset
        span = self._plan.end_offset - first_dirty_offset
        keys = offset_map(self._dedupe_buffer_bytes, span)
        dirty = [s for s in self._sources if first_dirty_offset < s.end_offset]
        tracker = TransactionTracker(self._aborted_since(len(self._sources) - len(dirty)))
        for source in dirty:
            if source.base_offset >= self._plan.end_offset:
                break
            for batch in self._reader.batches(source):
                unplaced_offset = _add_keys(keys, batch, first_dirty_offset, tracker)
                if unplaced_offset != _ALL_PLACED:
                    self._end_offset = Offset(unplaced_offset)
                    return keys
        self._end_offset = self._plan.end_offset
        return keys

    def _aborted_since(self, number: int) -> list[AbortedTransaction]:
        """Return the aborted transactions in the indexes of this segment and later ones."""
        found = list(self._aborted_in_active)
        for path in self._aborted_paths[number:]:
            found += read_aborted(self._disk, path)
        return found

    # -- cleaning -------------------------------------------------------------------------------

    def _clean_groups(self) -> Iterator[CleanedGroup]:
        cleaner = BatchCleaner(
            self._map_keys(),
            self._end_offset,
            self._last_by_producer,
            self._now_ms,
            self._config.delete_retention_ms,
        )
        self.counts = cleaner.counts
        tracker = TransactionTracker(self._aborted_since(0))
        sources = [source for source in self._sources if source.base_offset < self._end_offset]
        for group in self._reader.grouped(sources):
            base_offset = group[0].base_offset
            try:
                is_changed = self._clean_group(group, cleaner, tracker)
            except BaseException:
                with suppress(OSError):
                    segment_swap.discard(self._disk, self._directory, base_offset)
                raise
            if is_changed:
                yield CleanedGroup(tuple(group), self._cut_count)
            else:
                segment_swap.discard(self._disk, self._directory, base_offset)

    def _clean_group(
        self, group: list[Source], cleaner: BatchCleaner, tracker: TransactionTracker
    ) -> bool:
        """Write the remains of some segments; return whether they differ from the sources."""
        base_offset = group[0].base_offset
        cleaned = CleanedSegment(self._disk, self._directory, base_offset, self._config, self._pace)
        unread_bytes = sum(source.size_bytes for source in group)
        is_changed = len(group) > 1
        lost: RecordBatch | None = None
        for batch in chain.from_iterable(map(self._reader.batches, group)):
            is_changed |= lost is not None
            lost = None
            room_bytes = POSITION_MAX - cleaned.size_bytes - unread_bytes
            left = _left_of(batch, cleaner, tracker, cleaned, room_bytes)
            unread_bytes -= batch.size_bytes
            if left is None:
                lost = batch
            else:
                is_changed |= left is not batch
                cleaned.append(left)
        if lost is not None:
            # Recovery reads the end offset to find the segments that this segment replaces.
            last = placeholder(lost)
            is_changed |= last.raw != lost.raw
            cleaned.append(last)
        if is_changed:
            cleaned.finish(self._reader.modified_ms(group[-1]))
        return is_changed


def _add_keys(
    keys: OffsetMap, batch: RecordBatch, start_offset: Offset, tracker: TransactionTracker
) -> int:
    if batch.is_control:
        tracker.see_marker(batch)
        return _ALL_PLACED
    if tracker.see_batch(batch) or batch.last_offset < start_offset:
        return _ALL_PLACED
    try:
        return keys.add_keys(batch, uncompressed_records(batch), start_offset)
    except ProtocolError:
        return _ALL_PLACED  # unreadable, and kept as it is


def _left_of(
    batch: RecordBatch,
    cleaner: BatchCleaner,
    tracker: TransactionTracker,
    cleaned: CleanedSegment,
    room_bytes: int,
) -> RecordBatch | None:
    if not batch.is_control:
        is_aborted = tracker.see_batch(batch)
        return cleaner.cleaned_batch(batch, room_bytes, is_aborted=is_aborted)
    seen = tracker.see_marker(batch)
    if seen.aborted is not None:
        cleaned.append_aborted(seen.aborted)
    return cleaner.cleaned_marker(batch, seen, room_bytes)


def prepare(log: PartitionLog, group: CleanedGroup) -> None:
    """Let nothing stand in the way of a decision for this group.

    AbandonedCompactionError if the log has changed there, or is offline. An `OSError` takes it
    offline.
    """
    _check_unchanged(log, group)
    try:
        # A snapshot at this offset may list an open transaction whose marker was compacted away.
        log.producers.snapshots.remove_before(Offset(group.sources[-1].base_offset + 1))
    except OSError as error:
        log.take_offline(error)
        raise


def replace(log: PartitionLog, group: CleanedGroup, now_ms: int) -> None:
    """Let the log go on with the cleaned segment that was decided for.

    AbandonedCompactionError if the log has changed there after all, or is offline. An `OSError`
    takes it offline.
    """
    _check_unchanged(log, group)
    old = [source.segment for source in group.sources]
    try:
        for segment in old:
            log.retire(segment, now_ms)
        segment_swap.finish(log.files.disk, log.directory, group.base_offset)
        created_ms = old[-1].created_ms
        new = Segment.open(log.files, log.directory, group.base_offset, log.config, created_ms)
    except OSError as error:
        log.take_offline(error)
        raise
    log.segments.replace(old, [new])


def _check_unchanged(log: PartitionLog, group: CleanedGroup) -> None:
    if log.is_offline:
        raise AbandonedCompactionError(f"{log.directory} is offline")
    if not _is_as_it_was(log, group):
        segment_swap.discard(log.files.disk, log.directory, group.base_offset)
        raise AbandonedCompactionError(f"{log.directory} has changed from {group.base_offset} on")


def _is_as_it_was(log: PartitionLog, group: CleanedGroup) -> bool:
    row = log.segments.since(group.base_offset)
    is_uncut = group.cut_count == log.cut_count
    return is_uncut and all(
        segment is source.segment and not segment.damage
        for segment, source in zip_longest(row[: len(group.sources)], group.sources)
    )
