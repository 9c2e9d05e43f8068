"""The metadata log of a replica on its disk: a partition's log in Kafka's files.

The machine of the quorum gives offsets and epochs; this log only keeps the batches. Damage of
records that were durable is never repaired by a cut: the other replicas count on them.
"""

import posixpath
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ottla.broker.quorum.formatting import METADATA_PARTITION
from ottla.environment.disk import Disk
from ottla.model.identifiers import FIRST_OFFSET, Offset
from ottla.model.settings.topic_config import NO_LIMIT, TopicConfig
from ottla.storage.files.checkpoints import (
    RECOVERY_POINT_FILE,
    CorruptCheckpointError,
    read_offsets,
    write_offsets,
)
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.flush import Flush
from ottla.storage.log.retention import apply_retention
from ottla.storage.recovery.log_recovery import Findings, open_log
from ottla.wire.records.batch import RecordBatch, batches

RECORDS_PER_CHECKPOINT: Final = 1000
READ_BYTES: Final = 1 << 20
SEGMENT_BYTES_MIN: Final = 1 << 20
"""No smaller segments because of a small retention."""


class DamagedLogError(Exception):
    """The metadata log is damaged; the detail names the place."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The settings `metadata.log.*` and `metadata.max.retention.*`, with Kafka's defaults."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    retention_bytes: int = 100 << 20
    """-1 is no limit, as for the time."""
    retention_ms: int = 604_800_000

    @property
    def used_segment_bytes(self) -> int:
        """The size of a segment: at most a quarter of the retention, which deletes whole ones."""
        if self.retention_bytes < 0:
            return self.segment_bytes
        return min(self.segment_bytes, max(self.retention_bytes // 4, SEGMENT_BYTES_MIN))

    def is_exceeded(self, size_bytes: int, age_ms: int) -> bool:
        """Whether the records before a snapshot of this age may go."""
        is_large = 0 <= self.retention_bytes < size_bytes
        return is_large or 0 <= self.retention_ms < age_ms


class QuorumLog:
    """Appends, cuts, syncs and reads. ApiError for failures of the disk (see `PartitionLog`)."""

    def __init__(self, disk: Disk, directory: str, settings: LogSettings, now_ms: int) -> None:
        """Open the log, or create it, and sync it; DamagedLogError if durable records are lost."""
        self._disk = disk
        self._directory = directory
        self._guard = threading.Lock()
        self._cuts = 0
        self._checkpointed, self.notes = self._read_checkpoint()
        promised = self._checkpointed
        self._log, findings = open_log(
            OpenFiles(disk),
            directory,
            TopicConfig(
                cleanup_policy=frozenset(),
                segment_bytes=settings.used_segment_bytes,
                segment_ms=settings.segment_ms,
                file_delete_delay_ms=0,
            ),
            now_ms,
            is_clean=False,
            recovery_point=promised,
            on_recovery_point_lowered=self._lower_checkpoint,
        )
        self.notes += findings.notes
        self._check_whole(findings, promised)
        # Also records that a dead process left in the page cache: they count from now on.
        self._log.flush(now_ms)
        if self._checkpointed != self._log.recovery_point:
            self.checkpoint()()

    def _check_whole(self, findings: Findings, promised: Offset) -> None:
        for damage in findings.damage:
            raise DamagedLogError(
                f"{self._directory} is damaged from offset {damage.offset} to {damage.end_offset}"
            )
        if self.end_offset < promised:
            raise DamagedLogError(
                f"{self._directory} ends at offset {self.end_offset}, and had been durable to"
                f" {promised}"
            )

    # -- questions ------------------------------------------------------------------------------

    @property
    def start_offset(self) -> Offset:
        """The offset of the first record."""
        return self._log.log_start_offset

    @property
    def end_offset(self) -> Offset:
        """The offset of the next record."""
        return self._log.end_offset

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """Each epoch with its first offset."""
        return [(one.epoch, one.start_offset) for one in self._log.epochs.entries]

    @property
    def size_bytes(self) -> int:
        """The size of all segments."""
        return sum(segment.size_bytes for segment in self._log.segments)

    @property
    def is_offline(self) -> bool:
        """Whether the disk has failed, so that only a restart can help."""
        return self._log.is_offline

    def read_bytes(self, offset: int, bytes_max: int) -> bytes:
        """Return whole batches from the batch with this offset on, at least one."""
        return self._log.read(Offset(offset), Offset(NO_LIMIT), bytes_max).read()

    def read(self, start_offset: int, end_offset: int) -> Iterator[RecordBatch]:
        """Read the batches between two offsets, checked; DamagedLogError for a damaged batch."""
        offset = start_offset
        while offset < end_offset:
            for batch in batches(self.read_bytes(offset, READ_BYTES)):
                batch.check_crc()
                if batch.base_offset >= end_offset:
                    return
                yield batch
                offset = batch.end_offset

    # -- changes --------------------------------------------------------------------------------

    def append(self, batch: bytes, now_ms: int) -> None:
        """Append a batch, which has its offset and its epoch. ApiError, and nothing is appended."""
        self._log.append_as_follower(memoryview(batch), now_ms)

    def truncate(self, end_offset: int) -> None:
        """Cut the log durably: the batches from this offset on go."""
        self._log.truncate_to(Offset(end_offset))

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Replace the log by an empty log that begins at an offset."""
        self._log.restart_at(Offset(offset), now_ms)

    def delete_before(self, offset: int, now_ms: int) -> None:
        """Move the start of the log to an offset, and delete whole segments before it."""
        self._log.advance_log_start(Offset(offset))
        apply_retention(self._log, now_ms, self._log.end_offset)
        self._log.remove_deleted(now_ms)

    # -- durability -----------------------------------------------------------------------------

    def begin_sync(self) -> Flush:
        """Return the due sync, to be run on a thread."""
        return self._log.begin_flush()

    def end_sync(self, flush: Flush, now_ms: int) -> None:
        """Record the result of a sync. ApiError if it failed: the log is offline then."""
        self._log.end_flush(flush, now_ms)

    @property
    def needs_checkpoint(self) -> bool:
        """Whether much has become durable since the last checkpoint."""
        return self._log.recovery_point - self._checkpointed >= RECORDS_PER_CHECKPOINT

    def checkpoint(self) -> Callable[[], None]:
        """Return the function that records the recovery point, for a thread.

        Damage before that point is never cut off. After a cut of the log the function does nothing.
        """
        point, cuts = self._log.recovery_point, self._cuts

        def write() -> None:
            with self._guard:
                if cuts == self._cuts:
                    self._write_checkpoint(point)

        return write

    def close(self, now_ms: int) -> None:
        """Make everything durable."""
        if not self.is_offline:
            self._log.close(now_ms)
            self.checkpoint()()

    def _lower_checkpoint(self, offset: Offset) -> None:
        with self._guard:
            self._cuts += 1
            if offset < self._checkpointed:
                self._write_checkpoint(offset)

    def _write_checkpoint(self, offset: Offset) -> None:
        write_offsets(self._disk, self._checkpoint_path, {METADATA_PARTITION: offset})
        self._checkpointed = offset

    @property
    def _checkpoint_path(self) -> str:
        # Not the file of the same name for the other logs, which is written without this log.
        return posixpath.join(self._directory, RECOVERY_POINT_FILE)

    def _read_checkpoint(self) -> tuple[Offset, list[str]]:
        try:
            return read_offsets(self._disk, self._checkpoint_path).get(
                METADATA_PARTITION, FIRST_OFFSET
            ), []
        except CorruptCheckpointError as error:
            return FIRST_OFFSET, [f"{error}: the metadata log is recovered from its start"]
