"""Rewrites a damaged segment, with the batches of an intact replica in place of lost ones.

    on the loop    Repair(log, segment, pace)
    in a thread    take(damage, data): batches of the other replica, in their order
    in a thread    finish(): copy the sound rest behind the last damage, and sync
    on the loop    take_over(log, now_ms): the new segment replaces the damaged one

The damaged segment is read and served until its replacement is complete: its sound records
are never discarded for a copy that may turn out to be damaged. The new segment replaces it as in
compaction (`segment_swap.py`), so that a crash leaves one of the two.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.model.identifiers import Offset
from ottla.storage.compaction import segment_swap
from ottla.storage.compaction.segment_swap import CleanedSegment
from ottla.storage.files.damage import Damage, DamageKind
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.log import PartitionLog
from ottla.storage.recovery.scrubbing import Target, is_in, opened_copy
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_batches import CorruptSegmentError
from ottla.wire.records.batch import RecordBatch, batches

if TYPE_CHECKING:
    from ottla.model.identifiers import LeaderEpoch


class RepairError(Exception):
    """A segment cannot be rewritten like this; the damaged one stays."""

    def __init__(self, detail: str, suspect_path: str | None = None) -> None:
        super().__init__(detail)
        self.suspect_path = suspect_path
        """The segment, if more of it is damaged than is recorded."""


class UnfitBatchError(RepairError):
    """The batches of the other replica are damaged as well, or do not match."""


class Repair:
    """One segment that is rewritten. The constructor copies all state that the thread needs."""

    def __init__(self, log: PartitionLog, segment: Segment, pace: Callable[[int], None]) -> None:
        assert segment is not log.segments.active, "nothing is appended while it is written anew"
        if any(damage.kind is DamageKind.OLD_FORMAT for damage in segment.damage):
            raise RepairError(f"{segment.path} holds messages of before Kafka 0.11")
        self._target = Target.of(log, segment)
        self._disk = log.files.disk
        self._aborted = {one.last_offset: one for one in segment.aborted_index.entries()}
        self._sound = _sound_batches(opened_copy(OpenFiles(self._disk), self._target))
        self._next: tuple[int, RecordBatch] | None = None
        self._end_offset = segment.base_offset
        self._written: CleanedSegment | None = None
        self._pace = pace
        self._epochs: dict[LeaderEpoch, int] = {}
        """The first offset of each leader epoch in the lost range."""

    @property
    def damage(self) -> tuple[Damage, ...]:
        """All that has to be given, one after the other."""
        return self._target.damage

    def take(self, damage: Damage, data: memoryview) -> int:
        """Copy the range before the damage, append batches for it; return the next offset.

        An incomplete batch at the end is ignored. Raises UnfitBatchError if a batch does not fit
        there, and RepairError if more of this replica is damaged than is recorded.
        """
        self._copy_until(damage.position)
        self._end_offset = max(self._end_offset, damage.offset)
        for batch in batches(data):
            if batch.base_offset >= damage.end_offset:
                return damage.end_offset
            if not self._end_offset <= batch.base_offset <= batch.last_offset < damage.end_offset:
                raise UnfitBatchError(
                    f"{batch} does not fit between {damage} from {self._end_offset}"
                )
            if not batch.has_valid_crc():
                raise UnfitBatchError(f"the CRC of {batch} is wrong on the other replica")
            self._epochs.setdefault(batch.partition_leader_epoch, batch.base_offset)
            self._append(RecordBatch(memoryview(bytes(batch.raw))))
        return self._end_offset

    def finish(self) -> None:
        """Copy the sound rest behind the last damage, and make the new segment durable."""
        self._copy_until(self._target.size_bytes)
        modified_ms = self._target.segment.file.modified_ms()
        self._writing().finish(modified_ms)

    def discard(self) -> None:
        """Discard the new segment."""
        if self._written is not None:
            with suppress(OSError):
                segment_swap.discard(
                    self._disk, self._target.directory, self._target.segment.base_offset
                )

    def take_over(self, log: PartitionLog, now_ms: int) -> None:
        """Let the log go on with the new segment; RepairError if the log has changed there.

        An `OSError` takes the log offline: neither segment is sure to be there.
        """
        old, directory = self._target.segment, self._target.directory
        is_same = is_in(log, old) and log.cut_count == self._target.cut_count
        if not is_same or log.directory != directory or old.damage != self._target.damage:
            raise RepairError(f"{old.path} has changed meanwhile")
        row, base_offset = log.segments, old.base_offset
        try:
            segment_swap.decide(self._disk, directory, base_offset)
            log.retire(old, now_ms)
            segment_swap.finish(self._disk, directory, base_offset)
            self._disk.sync_directory(directory)
            new = Segment.open(log.files, directory, base_offset, log.config, old.created_ms)
        except OSError as error:
            log.take_offline(error)
            raise
        row.replace([old], [new])
        if any(damage.kind is DamageKind.AT_OPENING for damage in old.damage):
            self._replay(log, base_offset)

    def _replay(self, log: PartitionLog, base_offset: Offset) -> None:
        """Rebuild the state that recovery could not read from the damaged segment.

        This blocks, but a recovery scans only the log behind the recovery point, and no more than
        it has just scanned.
        """
        for epoch, start_offset in self._epochs.items():
            log.epochs.restore(epoch, Offset(start_offset))
        segments = log.segments.since(base_offset)
        for segment in segments:  # after a crash from here on, the next start rebuilds them
            segment.indexes.unname()
            segment.aborted_index.reset()
        log.reload_producers(rebuilt_from=base_offset)
        for segment in segments:
            segment.keep_rebuilt()

    # -- writing --------------------------------------------------------------------------------

    def _writing(self) -> CleanedSegment:
        if self._written is None:
            target = self._target
            base_offset = target.segment.base_offset
            self._written = CleanedSegment(
                self._disk, target.directory, base_offset, target.config, self._pace
            )
        return self._written

    def _copy_until(self, position: int) -> None:
        if self._next is None:
            self._next = next(self._sound, None)
        while self._next is not None and self._next[0] < position:
            self._append(self._next[1])
            self._next = next(self._sound, None)

    def _append(self, batch: RecordBatch) -> None:
        aborted = self._aborted.get(batch.last_offset) if batch.is_control else None
        if aborted is not None:
            self._writing().append_aborted(aborted)
        self._writing().append(batch)
        self._end_offset = batch.end_offset


def repairs(log: PartitionLog, now_ms: int, pace: Callable[[int], None]) -> Iterator[Repair]:
    """Yield a repair for each damaged segment; closes a damaged active segment first."""
    for segment in log.segments.damaged_from(log.log_start_offset):
        if segment is log.segments.active:
            log.roll(now_ms)
        yield Repair(log, segment, pace)


def _sound_batches(copy: Segment) -> Iterator[tuple[int, RecordBatch]]:
    try:
        for position, batch in copy.batches_at(0):
            if not batch.has_valid_crc():
                raise RepairError(f"{copy.path}: the CRC of {batch} is wrong", copy.path)
            yield position, batch
    except CorruptSegmentError as error:
        raise RepairError(str(error), copy.path) from error
