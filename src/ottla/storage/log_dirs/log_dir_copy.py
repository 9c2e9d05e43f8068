"""Moves a replica from one log dir to another while it is read and written.

    on the loop    begin(…) the next piece: a CopyStep, or None when there is none
    in a thread    step.run(): read it from the source, append it to the target
    on the loop    … until little is left. Then the replica must not be flushed until the end:
    in a thread    catch up, and make the copy durable
    on the loop    swap(): copy the last bit, make the copy the replica and delete the old one
    in a thread    finish(…): make that durable; then the replica may be flushed again

The copy is a log of its own, in a directory with the suffix "-future". Until the swap the replica
is unchanged. The swap is two renames in two directories; a power cut may preserve either one. So
the next start (`finish_moves`) may find one log, or two of which the longer is right, or only a
complete copy. None of them has lost durable records: at the swap the copy is durable as far as the
old log was.
"""

from collections.abc import Iterable
from contextlib import suppress
from itertools import zip_longest
from typing import Final

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset, TopicPartition
from ottla.storage.files.checkpoints import Write
from ottla.storage.files.log_slice import LogSlice
from ottla.storage.log.log import PartitionLog
from ottla.storage.log_dirs.log_dir import LogDir
from ottla.wire.records.batch import batch_at

COPY_BYTES: Final = 1 << 20
"""The limit of one step, unless a single batch is larger."""
LAST_BYTES_MAX: Final = 256 << 10
"""The limit of the swap's last piece, because it blocks the loop."""


class CopyStep:
    """Some batches to be copied, by one thread."""

    __slots__ = ("_copy", "_end_offset", "_offset", "_records", "_restarts")

    def __init__(
        self,
        copy: PartitionLog,
        records: LogSlice,
        offset: Offset,
        end_offset: Offset,
        *,
        restarts: bool,
    ) -> None:
        self._copy = copy
        self._records = records
        self._offset = offset
        self._end_offset = end_offset
        self._restarts = restarts

    @property
    def size_bytes(self) -> int:
        """How much there is to copy."""
        return len(self._records)

    def run(self, now_ms: int) -> None:
        """Copy them; ApiError or OSError if either disk does not let us."""
        data = memoryview(self._records.read())
        if self._restarts:
            base_offset = batch_at(data).base_offset if data else self._end_offset
            self._copy.restart_at(base_offset, now_ms)
        if not data:  # compaction, or DeleteRecords, has left nothing up to the end
            self._copy.end_offset = self._end_offset
            self._copy.roll(now_ms)
        elif self._copy.append_as_follower(data, now_ms) is None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"no batch at offset {self._offset}")


class LogDirCopy:
    """One replica on its way; its copy is among the target's futures."""

    def __init__(self, partition: TopicPartition, source: LogDir, target: LogDir) -> None:
        self.partition = partition
        self.source = source
        self.target = target
        self.log = source.hosted[partition].log
        """The log that is used."""
        self.copy = target.futures[partition].log
        """The log that is being filled."""
        self._cut_count = self.log.cut_count
        # Records that are compacted during the copy may be copied uncompacted.
        is_new = self.copy.end_offset == self.copy.segments.base_offset
        self._clean_to = source.first_dirty_offsets.get(partition) if is_new else None

    @property
    def is_under_way(self) -> bool:
        """Whether the replica still exists, the copy was not dropped, and they were not swapped."""
        hosted = self.source.hosted.get(self.partition)
        future = self.target.futures.get(self.partition)
        return (
            hosted is not None
            and hosted.log is self.log
            and future is not None
            and future.log is self.copy
            and not self.log.is_offline
            and not self.copy.is_offline
        )

    @property
    def left_bytes(self) -> int:
        """About how much has still to be copied."""
        log, offset = self.log, max(self.copy.end_offset, self.log.log_start_offset)
        if offset >= log.end_offset:
            return 0
        return sum(segment.size_bytes for segment in log.segments.since(offset)[1:]) + len(
            log.read(offset, log.end_offset, log.segments.size_bytes)
        )

    def begin(self, bytes_max: int = COPY_BYTES) -> CopyStep | None:
        """Return the next piece to copy; None if the copy has everything."""
        log, copy = self.log, self.copy
        is_cut = log.cut_count != self._cut_count
        if copy.end_offset == log.end_offset and not is_cut:
            return None
        self._cut_count = log.cut_count
        # Retention may delete records during the copy: the copy skips them.
        is_behind = copy.end_offset < log.log_start_offset
        restarts = is_cut or is_behind or copy.end_offset == copy.segments.base_offset
        offset = log.log_start_offset if restarts else copy.end_offset
        # At most one segment per step, to limit its size.
        size_bytes = min(bytes_max, log.config.segment_bytes)
        records = log.read(offset, log.end_offset, size_bytes)
        return CopyStep(copy, records, offset, log.end_offset, restarts=restarts)

    def checkpoint(self) -> list[Write]:
        """Set the copy's log start in its log dir; return the writes of the checkpoint."""
        if self.copy.log_start_offset < self.log.log_start_offset <= self.copy.end_offset:
            self.copy.advance_log_start(self.log.log_start_offset)
        return self.target.begin_checkpoint()

    def can_swap(self) -> bool:
        """Return whether little is left to copy, and the copy is as durable as the log."""
        return (
            self.left_bytes <= LAST_BYTES_MAX
            and self.copy.recovery_point >= self.log.recovery_point
        )

    def swap(self, now_ms: int, mark: bytes) -> str:
        """Make the copy the replica; return the directory that `remove_deleted` has to remove.

        Nothing is durable before `finish`. An `OSError` of the target changes nothing, and takes
        the target offline; an `OSError` of the source takes the source offline, which is not needed
        any more.
        """
        while (step := self.begin(LAST_BYTES_MAX)) is not None:
            step.run(now_ms)
        log, copy = self.log, self.copy
        if log.log_start_offset > copy.log_start_offset:
            copy.advance_log_start(log.log_start_offset)
        copy.config = log.config
        try:
            self.target.adopt_future(self.partition)
        except OSError as error:
            self.target.fail(error)
            raise
        # The log's producer state covers more than its batches: retention may have deleted some.
        snapshots, copy.producers = copy.producers.snapshots, log.producers
        copy.producers.snapshots = snapshots
        try:
            return self.source.begin_delete(self.partition, mark)
        except OSError as error:
            self.source.fail(error)
            return ""

    def finish(self) -> list[Write]:
        """Return the writes that make the swap durable, after the swap: the target first."""
        writes = [*self.target.finish_deletes(), *self.target.begin_checkpoint()]
        if self._clean_to is not None:
            writes.append(self.target.note_clean(self.partition, self._clean_to))
        return [*writes, *self.source.finish_deletes()]


def finish_moves(folders: Iterable[LogDir], mark: bytes) -> None:
    """Complete moves that a crash has interrupted, once all log dirs have been opened.

    Of two logs of one partition the shorter is dropped. A copy without a log is the partition,
    unless the log may be in an offline log dir. Other copies are truncated to the end of their log:
    it may have lost records that they have.
    """
    known = list(folders)
    online = [log_dir for log_dir in known if log_dir.is_online]
    for partition in sorted({partition for log_dir in online for partition in log_dir.hosted}):
        _keep_longest(
            partition, [log_dir for log_dir in online if partition in log_dir.hosted], mark
        )
    for log_dir, partition in [(f, partition) for f in online for partition in f.futures]:
        try:
            _finish_copy(partition, log_dir, known, mark)
        except OSError as error:
            log_dir.fail(error)


def _keep_longest(partition: TopicPartition, folders: list[LogDir], mark: bytes) -> None:
    kept = max(folders, key=lambda log_dir: log_dir.hosted[partition].log.end_offset)
    for log_dir in folders:
        if log_dir is kept:
            continue
        log_dir.notes.append(f"{partition} is in {kept.path} as well, and dropped here")
        try:
            log_dir.remove_deleted(log_dir.delete(partition, mark))
        except OSError as error:
            log_dir.fail(error)


def _finish_copy(
    partition: TopicPartition, log_dir: LogDir, folders: list[LogDir], mark: bytes
) -> None:
    log = next((f.hosted[partition].log for f in folders if partition in f.hosted), None)
    others = [f for f in folders if f is not log_dir and partition in f.futures]
    if others:  # its destination was changed, and the crash has brought both copies back
        log_dir.remove_deleted(log_dir.drop_future(partition, mark))
    elif log is not None:
        copy = log_dir.futures[partition].log
        with suppress(ApiError):  # it is offline then
            copy.truncate_to(Offset(_agreed_end(copy, log)))
    elif all(f.is_online and partition not in f.unopened for f in folders):
        log_dir.adopt_future(partition)
        log_dir.notes.append(f"{partition} has been moved here")
        for write in log_dir.finish_deletes():
            write()


def _agreed_end(copy: PartitionLog, log: PartitionLog) -> int:
    """Return the end of the common part: the log may have been truncated, and have grown again.

    Two records at one offset are the same if they have the same leader epoch.
    """
    start = max(copy.log_start_offset, log.log_start_offset)
    if copy.epochs.epoch_for(start) != log.epochs.epoch_for(start):
        return start
    later = [
        [entry for entry in one.epochs.entries if entry.start_offset > start] for one in (copy, log)
    ]
    differing = next((pair for pair in zip_longest(*later) if pair[0] != pair[1]), ())
    ends = [entry.start_offset for entry in differing if entry is not None]
    return min(copy.end_offset, log.end_offset, *ends)
