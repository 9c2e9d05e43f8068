"""One partition on one disk: a list of segments that is written at its end.

     log start                              recovery point        end
    |  …0042.log  |  …0977.log  |  …1903.log  |  …2850.log    |
    |<------------ durable ---------------->|<- page cache ->|

The visible end, and the limit of retention, are arguments. A log belongs to one thread; blocking
work is returned as an object (`begin_flush`, `compaction`), run on a thread, and brought back.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import LeaderEpoch, Offset
from ottla.model.settings.topic_config import TimestampType, TopicConfig
from ottla.storage.files.log_slice import NOTHING, LogSlice
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.indexes.aborted_index import AbortedTransaction
from ottla.storage.indexes.sparse_index import RELATIVE_OFFSET_MAX
from ottla.storage.indexes.time_index import NO_TIMESTAMP_MS, TimestampOffset
from ottla.storage.log.admission import Origin, Validated, admit
from ottla.storage.log.flush import Flush
from ottla.storage.log.leader_epochs import ANY_EPOCH, LeaderEpochs
from ottla.storage.log.offline_on_error import OfflineOnErrors, on_disk
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.producers.transaction_terms import ANY_TRANSACTION, TransactionTerms
from ottla.storage.segments.segment import DELETED_SUFFIX, Segment
from ottla.storage.segments.segment_list import (
    SegmentList,
    aborted_between,
    first_record_since,
    greatest_record,
)
from ottla.wire.records.batch import RecordBatch, batches


class Appended(NamedTuple):
    """The offsets of appended batches. For a duplicate, the offset of the original."""

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int = NO_TIMESTAMP_MS
    is_duplicate: bool = False


class LogState(NamedTuple):
    """The parts of an opened log, from which a log is constructed."""

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    log_start_offset: Offset
    end_offset: Offset
    recovery_point: Offset
    is_durable: bool = False
    """Whether the whole log is durable."""


class PartitionLog(OfflineOnErrors):
    """The log of one partition; raises nothing but ApiError. `storage.recovery` opens it."""

    def __init__(
        self,
        files: OpenFiles,
        directory: str,
        config: TopicConfig,
        state: LogState,
        on_recovery_point_lowered: Callable[[Offset], None] = lambda _: None,
    ) -> None:
        super().__init__(directory)
        self.config = config
        self.epochs = state.epochs
        self.producers = state.producers
        self.log_start_offset = state.log_start_offset
        self.end_offset = state.end_offset
        self.recovery_point = state.recovery_point
        self.files = files
        self.segments = SegmentList(state.segments)
        self._on_recovery_point_lowered = on_recovery_point_lowered
        self._last_flush_ms = state.segments[-1].created_ms
        self.cut_count = 0
        self._durable_as = (state.end_offset, list(state.segments)) if state.is_durable else None
        self._deleted: list[tuple[int, Segment]] = []

    # -- appending ------------------------------------------------------------------------------

    @on_disk
    def append_as_leader(
        self,
        data: memoryview | Validated,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        *,
        origin: Origin = Origin.CLIENT,
        terms: TransactionTerms = ANY_TRANSACTION,
    ) -> Appended:
        """Admit one batch, give it its offsets, and append it. `data` must be writable."""
        batch = admit(data, self.config, now_ms, origin=origin)
        known = self.producers.check(batch, from_client=origin is Origin.CLIENT, terms=terms)
        if known is not None:
            time_ms = self._append_time_ms(known.timestamp_ms)
            return Appended(known.base_offset, known.last_offset, time_ms, is_duplicate=True)
        batch.restamp(self.end_offset, leader_epoch)
        self._append(batch.raw, [batch], now_ms)
        time_ms = self._append_time_ms(batch.max_timestamp_ms)
        return Appended(batch.base_offset, batch.last_offset, time_ms)

    @on_disk
    def append_as_follower(
        self, data: memoryview, now_ms: int, epoch_max: int = ANY_EPOCH
    ) -> Appended | None:
        """Append the leader's batches unchanged; ignore an incomplete batch at the end.

        Every batch is checked, and must continue the log. Batches of a later epoch, or too far from
        the first batch of its segment, are ignored, too. None if no batch remains.
        """
        found: list[RecordBatch] = []
        size_bytes, end_offset = 0, self.end_offset
        for batch in batches(data):
            batch.check_crc()
            if batch.base_offset < end_offset or batch.last_offset_delta < 0:
                detail = f"{batch} in a log that ends at {end_offset}"
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, detail)
            is_far = found and batch.last_offset - found[0].base_offset > RELATIVE_OFFSET_MAX
            if is_far or batch.partition_leader_epoch > epoch_max:
                break
            found.append(batch)
            size_bytes, end_offset = size_bytes + batch.size_bytes, batch.end_offset
        if not found:
            return None
        self._append(data[:size_bytes], found, now_ms)
        return Appended(found[0].base_offset, found[-1].last_offset)

    def _append(self, raw: memoryview, found: list[RecordBatch], now_ms: int) -> None:
        segment = self._segment_for(len(raw), found, now_ms)
        position = segment.size_bytes
        segment.append(raw, found)
        try:
            for batch in found:
                if 0 <= batch.partition_leader_epoch != self.epochs.latest_epoch:
                    self.epochs.note(batch.partition_leader_epoch, batch.base_offset)
                if batch.has_producer_id:
                    self._apply_to_producers(batch, segment)
        except (OSError, ApiError):
            self._take_back(segment, position)
            raise
        self.end_offset = found[-1].end_offset

    def _take_back(self, segment: Segment, position: int) -> None:
        """Truncate bytes in the segment's file that its state does not cover."""
        with self._irrevocably():
            segment.truncate(position, self.end_offset)
            self.reload_producers()
        with suppress(OSError):  # an epoch without records does no harm
            self.epochs.truncate_from_end(self.end_offset)

    def _segment_for(self, size_bytes: int, found: list[RecordBatch], now_ms: int) -> Segment:
        """Return the active segment, rolled if these batches do not go into it any more."""
        active, last = self.segments.active, found[-1]
        waited_ms = active.waited_ms(now_ms, last.max_timestamp_ms) if active.size_bytes else 0
        has_room = active.has_room_for(size_bytes, last.last_offset, self.config.segment_bytes)
        if has_room and waited_ms <= self.config.roll_ms:
            return active
        # A segment begins at the end of the previous one, so that a lost tail is detected later.
        # Exception: a gap too wide for the relative offsets of an index.
        is_near = last.last_offset - self.end_offset <= RELATIVE_OFFSET_MAX
        return self.roll(now_ms, self.end_offset if is_near else found[0].base_offset)

    def _apply_to_producers(self, batch: RecordBatch, segment: Segment) -> None:
        completed = self.producers.apply(batch)
        if (
            completed is not None
            and completed.is_aborted
            and completed.last_offset > segment.aborted_index.last_offset
        ):
            stable = self.producers.last_stable_offset_before(completed)
            segment.aborted_index.append(AbortedTransaction(*completed[:3], stable))

    def _append_time_ms(self, timestamp_ms: int) -> int:
        is_ours = self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        return timestamp_ms if is_ours else NO_TIMESTAMP_MS

    @on_disk
    def roll(self, now_ms: int, base_offset: Offset | None = None) -> Segment:
        """Close the active segment, unless it is empty, and begin the next."""
        active = self.segments.active
        base_offset = self.end_offset if base_offset is None else base_offset
        if active.size_bytes == 0 and active.base_offset == base_offset:
            return active
        active.close_for_writing()
        active.release()
        self.producers.take_snapshot(base_offset, sync=False)
        segment = Segment.create(self.files, self.directory, base_offset, self.config, now_ms)
        self.segments.append(segment)
        if active.size_bytes == 0:
            self.segments.replace([active, segment], [segment])
            active.remove()
        return segment

    # -- reading --------------------------------------------------------------------------------

    @on_disk
    def read(
        self, offset: Offset, end_offset: Offset, bytes_max: int, *, whole_batch: bool = True
    ) -> LogSlice:
        """Return a slice from the batch with this offset, up to end_offset or bytes_max.

        The first batch is complete even if it exceeds bytes_max, unless whole_batch is false: then
        a batch that exceeds it, or whose file cannot be opened, is omitted. No long later batch is
        cut.
        """
        self._check_in_range(offset)
        row, end_offset = self.segments, min(end_offset, self.end_offset)
        may_read = offset < end_offset and (whole_batch or self.files.has_spare)
        found = row.find(offset) if may_read else None
        if found is None or found[1].base_offset >= end_offset:
            return NOTHING
        segment, place = found
        limit = row.end_position(segment, place, end_offset, self.end_offset) - place.position
        size_bytes = min(limit, bytes_max)
        if size_bytes < place.size_bytes:
            size_bytes = min(limit, place.size_bytes) if whole_batch else 0
        elif size_bytes < limit:
            return row.cut(segment, place, size_bytes, self.config.index_interval_bytes)
        return LogSlice(segment.file, place.position, size_bytes)

    @on_disk
    def aborted_transactions(
        self, offset: Offset, end_offset: Offset, size_bytes: int | None = None
    ) -> list[AbortedTransaction]:
        """Return the aborted ones with records in this range, or in so many bytes of it."""
        return aborted_between(self.segments, offset, end_offset, size_bytes, self._mend_indexes)

    def _mend_indexes(self, segment: Segment) -> None:
        segment.rebuild_indexes()
        segment.aborted_index.reset()
        self.reload_producers(rebuilt_from=segment.base_offset)
        segment.keep_rebuilt()

    def _check_in_range(self, offset: Offset) -> None:
        if not self.log_start_offset <= offset <= self.end_offset:
            detail = f"offset {offset} is not in {self.log_start_offset} to {self.end_offset}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, detail)

    @on_disk
    def offset_for_timestamp(self, timestamp_ms: int, end_offset: Offset) -> TimestampOffset | None:
        """Return the first record that is no older than this, with its own timestamp."""
        return first_record_since(self.segments, timestamp_ms, self.log_start_offset, end_offset)

    @on_disk
    def greatest_timestamp(self) -> TimestampOffset | None:
        """Return the greatest timestamp in the log, and the first record that has it."""
        return greatest_record(self.segments, self.log_start_offset, self.end_offset)

    # -- durability -----------------------------------------------------------------------------

    def needs_flush(self, now_ms: int, *, more: int = 0) -> bool:
        """Return whether flush.messages or flush.ms requires a flush now, or with more records."""
        unflushed = self.end_offset - self.recovery_point + more
        is_late = now_ms - self._last_flush_ms >= self.config.flush_ms
        return unflushed > 0 and (is_late or unflushed >= self.config.flush_messages)

    @on_disk
    def begin_flush(self, *, is_closed_only: bool = False) -> Flush:
        """Return the due syncs, of all or of closed segments, for a thread; then `end_flush`."""
        # Where the log is durable up to the end of a segment, that may have been closed since.
        unflushed = self.segments.since(Offset(self.recovery_point - 1))
        end_offset = self.end_offset
        if is_closed_only:
            unflushed, end_offset = unflushed[:-1], unflushed[-1].base_offset
        for segment in unflushed:
            segment.offset_index.persist()
            segment.time_index.persist()
        return Flush(self.files.disk, self.epochs, end_offset, self.cut_count, unflushed)

    @on_disk
    def end_flush(self, flush: Flush, now_ms: int) -> None:
        """Record a flush; if it failed, the log is offline for good."""
        if flush.failure is not None:
            self.take_offline(flush.failure)
        self._check_online()
        if flush.refusal is not None:
            raise flush.refusal
        is_uncut = flush.cut_count == self.cut_count  # else there may be other batches by now
        if is_uncut:
            self.recovery_point = max(self.recovery_point, flush.end_offset)
        self.epochs.written(flush.epochs, is_certain=is_uncut)
        self._last_flush_ms = now_ms

    def flush(self, now_ms: int) -> None:
        """Make everything durable before returning."""
        flush = self.begin_flush()
        flush.run()
        self.end_flush(flush, now_ms)

    @on_disk
    def close(self, now_ms: int) -> None:
        """Make everything durable, so that the next opening reads next to nothing."""
        if self.cut_count or self._durable_as != (self.end_offset, list(self.segments)):
            self.segments.active.close_for_writing()
            if self.end_offset > self.log_start_offset:  # not trusted for an empty log
                self.producers.take_snapshot(self.end_offset)
            self.flush(now_ms)
        for segment in self.segments:
            segment.release()
            self.files.forget(segment.path)

    # -- cutting and letting go -----------------------------------------------------------------

    @on_disk
    def truncate_to(self, offset: Offset) -> None:
        """Truncate the batches that reach this offset or lie behind it, durably."""
        if offset >= self.end_offset:
            self.epochs.truncate_from_end(self.end_offset)  # an epoch without records
            return
        if offset < max(self.log_start_offset, self.segments.base_offset):
            self.restart_at(Offset(max(offset, 0)), self.segments.active.created_ms)
            return
        _, cut_offset = self.segments.since(offset)[0].boundary(offset)
        if cut_offset < self.log_start_offset:  # which is inside a batch that has to go
            self.restart_at(self.log_start_offset, self.segments.active.created_ms)
            return
        self._lower_recovery_point(cut_offset)
        self.epochs.truncate_from_end(cut_offset)
        self.cut_count += 1
        with self._irrevocably():
            self._cut(cut_offset)

    def _cut(self, offset: Offset) -> None:
        while len(self.segments) > 1 and self.segments.active.base_offset >= offset:
            self.segments.take_last().remove()
        # Before any truncation, after which a deleted segment might reappear behind the end.
        self.files.disk.sync_directory(self.directory)
        active = self.segments.active
        position, self.end_offset = active.boundary(offset)
        active.truncate(position, offset)
        self.reload_producers()

    @on_disk
    def restart_at(self, offset: Offset, now_ms: int = 0) -> None:
        """Drop everything, and go on as an empty log that begins at this offset."""
        self._lower_recovery_point(min(offset, self.log_start_offset))
        self.epochs.clear()
        self.cut_count += 1
        with self._irrevocably():
            for segment in reversed(list(self.segments)):
                segment.remove()
            segment = Segment.create(self.files, self.directory, offset, self.config, now_ms)
            self.files.disk.sync_directory(self.directory)
            self.producers.clear()
        self.segments = SegmentList([segment])
        self.log_start_offset = self.end_offset = self.recovery_point = offset

    def _lower_recovery_point(self, offset: Offset) -> None:
        # On disk first: recovery would take the torn end of the next write for damage.
        if offset < self.recovery_point:
            self._on_recovery_point_lowered(offset)
            self.recovery_point = offset

    def reload_producers(self, rebuilt_from: Offset | None = None) -> None:
        """Compute the producers' state from the newest snapshot and the batches behind it.

        Segments from `rebuilt_from` on have lost their aborted index: no later snapshot is used.
        """
        start_offset, end_offset = self.log_start_offset, self.end_offset
        replay_from = self.producers.reload(start_offset, end_offset, rebuilt_from).replay_from
        for segment in self.segments.since(replay_from):
            if rebuilt_from is not None and segment.base_offset > replay_from:
                self.producers.take_snapshot(segment.base_offset, sync=False)
            segment.note_replay()
            place = segment.find(replay_from)
            for batch in segment.producers_batches(place.position) if place else ():
                if batch.has_producer_id:
                    self._apply_to_producers(batch, segment)

    @on_disk
    def advance_log_start(self, offset: Offset) -> None:
        """Move the log start here: DeleteRecords. Whole segments go with the next retention."""
        self._check_in_range(offset)
        # The epochs stay as long as the batches do: a crash may take the new start back.
        self.log_start_offset = max(self.log_start_offset, offset)

    @on_disk
    def delete_segments(self, count: int, now_ms: int) -> None:
        """Delete the first segments: renamed now, removed when file.delete.delay.ms has passed."""
        base_offset = self.segments.base_offset_of(count)
        self.log_start_offset = max(self.log_start_offset, base_offset)
        for _ in range(count):
            self.retire(self.segments.take_first(), now_ms)
        self.epochs.truncate_from_start(base_offset)
        self.producers.snapshots.remove_before(base_offset)

    def retire(self, segment: Segment, now_ms: int) -> None:
        """Rename a segment that is not in the log any more; it is removed later."""
        self._deleted.append((now_ms + self.config.file_delete_delay_ms, segment))
        segment.rename(DELETED_SUFFIX)

    @on_disk
    def remove_deleted(self, now_ms: int) -> None:
        """Remove the files of deleted segments after their delay."""
        while self._deleted and self._deleted[0][0] <= now_ms:
            self._deleted.pop(0)[1].remove()
