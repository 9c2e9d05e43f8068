"""The metadata log of a single broker: a partition's log, always synced.

One decision is one batch, and so atomic. Durable records are never truncated at a start: if the log
is damaged there, or records are missing, the broker does not start. The missing topics might still
have data.
"""

import posixpath
from collections.abc import Iterable, Iterator
from typing import Final

from ottla.environment.disk import Disk
from ottla.metadata.metadata_version import NEWEST_METADATA_VERSION
from ottla.metadata.record_frames import encode_record, metadata_records_of
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import FIRST_OFFSET, LeaderEpoch, Offset, TopicPartition
from ottla.model.settings.topic_config import NO_LIMIT, TopicConfig
from ottla.model.topic_names import CLUSTER_METADATA_TOPIC
from ottla.storage.files.checkpoints import (
    RECOVERY_POINT_FILE,
    CorruptCheckpointError,
    read_offsets,
    write_offsets,
)
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.admission import Origin
from ottla.storage.log.flush import Flush
from ottla.storage.log.log import PartitionLog
from ottla.storage.recovery.log_recovery import Findings, open_log
from ottla.wire.records.batch import RecordBatch, batches
from ottla.wire.records.builder import BatchBuilder

METADATA_PARTITION: Final = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
DECISION_BYTES_MAX: Final = 8 << 20
"""The limit of one decision. Ten thousand partitions need a tenth of it."""
RECORDS_PER_CHECKPOINT: Final = 1000
LEADER_EPOCH: Final = LeaderEpoch(0)
"""The only controller's epoch: it never has a successor."""
_READ_BYTES: Final = 1 << 20
_CONFIG: Final = TopicConfig(
    cleanup_policy=frozenset(),
    max_message_bytes=DECISION_BYTES_MAX,
    segment_bytes=64 << 20,
    segment_ms=NO_LIMIT,
)


class DamagedMetadataError(Exception):
    """The metadata log is damaged; the detail names the place."""


class MetadataLog:
    """Appends and reads metadata records. Raises ApiError for failures of the disk."""

    def __init__(self, disk: Disk, folder: str, now_ms: int) -> None:
        """Open the log in a log dir; create it if it is missing."""
        self._disk = disk
        self._directory = posixpath.join(folder, str(METADATA_PARTITION))
        self._checkpointed, self.notes = self._read_checkpoint()
        self._log, findings = open_log(
            OpenFiles(disk),
            self._directory,
            _CONFIG,
            now_ms,
            is_clean=False,  # there is little to go through, and much to lose
            recovery_point=self._checkpointed,
        )
        self.notes += findings.notes
        _check_whole(self._directory, self._log, findings, self._checkpointed)

    @property
    def end_offset(self) -> Offset:
        """The offset of the next record."""
        return self._log.end_offset

    @property
    def durable_offset(self) -> Offset:
        """The offset up to which all records are synced."""
        return self._log.recovery_point

    @property
    def is_offline(self) -> bool:
        """Whether the disk has failed, so that only a restart can help."""
        return self._log.is_offline

    def append(
        self,
        records: Iterable[MetadataRecord],
        now_ms: int,
        metadata_version: int = NEWEST_METADATA_VERSION,
    ) -> None:
        """Append one decision's records in the format of a level, to be made durable by a flush.

        Raises ApiError, and has appended nothing, if they are too many or the disk refuses.
        """
        builder = BatchBuilder()
        for record in records:
            builder.append(now_ms, None, encode_record(record, metadata_version))
            if builder.size_bytes > DECISION_BYTES_MAX:
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION,
                    f"the request would write more than {DECISION_BYTES_MAX} bytes of metadata",
                )
        batch = memoryview(builder.build())
        self._log.append_as_leader(batch, LEADER_EPOCH, now_ms, origin=Origin.COORDINATOR)

    def read(self) -> Iterator[MetadataRecord]:
        """Read all records; DamagedMetadataError for bytes that are not records."""
        for batch in self._batches():
            try:
                records = metadata_records_of(batch)
            except ApiError as error:
                raise self._damaged(f"the batch at offset {batch.base_offset}", error) from error
            yield from records

    def _batches(self) -> Iterator[RecordBatch]:
        offset = FIRST_OFFSET
        while offset < self._log.end_offset:
            try:
                found = list(batches(self._log.read(offset, Offset(NO_LIMIT), _READ_BYTES).read()))
            except ApiError as error:
                raise self._damaged(f"the record batch at offset {offset}", error) from error
            assert found, f"no batch at {offset}, and the end is {self._log.end_offset}"
            yield from found
            offset = found[-1].end_offset

    def _damaged(self, subject: str, error: ApiError) -> DamagedMetadataError:
        return DamagedMetadataError(f"{self._directory}: {subject} cannot be read: {error.detail}")

    # -- durability -----------------------------------------------------------------------------

    def begin_flush(self) -> Flush:
        """Return the due sync, to be run in a thread."""
        return self._log.begin_flush()

    def end_flush(self, flush: Flush, now_ms: int) -> None:
        """Record the result of a flush; on failure the log is offline, and ApiError is raised."""
        self._log.end_flush(flush, now_ms)

    def flush(self, now_ms: int) -> None:
        """Make everything durable, and record the recovery point, before returning."""
        if self._log.recovery_point < self._log.end_offset:
            self._log.flush(now_ms)
        if self._checkpointed < self._log.recovery_point:
            self.write_checkpoint()

    @property
    def needs_checkpoint(self) -> bool:
        """Whether much has become durable since the last checkpoint."""
        return self._log.recovery_point - self._checkpointed >= RECORDS_PER_CHECKPOINT

    def write_checkpoint(self) -> None:
        """Record the recovery point: damage before it is never truncated."""
        point = self._log.recovery_point
        write_offsets(self._disk, self._checkpoint_path, {METADATA_PARTITION: point})
        self._checkpointed = point

    def close(self, now_ms: int) -> None:
        """Make everything durable."""
        self._log.close(now_ms)
        self.write_checkpoint()

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


def _check_whole(directory: str, log: PartitionLog, findings: Findings, promised: int) -> None:
    for damage in findings.damage:
        raise DamagedMetadataError(
            f"{directory} is damaged from offset {damage.offset} to {damage.end_offset}"
        )
    if log.end_offset < promised:
        raise DamagedMetadataError(
            f"{directory} ends at offset {log.end_offset}, and had been durable to {promised}"
        )
    if log.log_start_offset > 0:
        raise DamagedMetadataError(
            f"{directory} begins at offset {log.log_start_offset}, and the records before it are"
            " missing"
        )
