"""Builds partition logs for tests on a simulated disk, with small segments."""

from collections.abc import Callable, Iterator
from typing import Any

from ottla.environment.disk import Disk
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    CorruptCheckpointError,
    read_clean_shutdown,
    read_offsets,
    remove_durably,
    write_clean_shutdown,
    write_offsets,
)
from ottla.storage.files.open_files import OPEN_FILES_MAX, OpenFiles
from ottla.storage.log.log import Appended, PartitionLog
from ottla.storage.recovery.log_recovery import Findings, open_log
from ottla.wire.records.batch import NO_SEQUENCE, RecordBatch, batches
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.control import ControlType, end_txn_marker

FOLDER = "/logs"
PARTITION = TopicPartition("events", 0)
DIRECTORY = f"{FOLDER}/{PARTITION}"
NOW_MS = 1_000_000
READ_BYTES = 1 << 20


def tiny(**changes: Any) -> TopicConfig:
    """Settings for three or four batches per segment, and an index entry for every second batch."""
    return TopicConfig(**{"segment_bytes": 300, "index_interval_bytes": 100, **changes})


def batch(
    record_count: int = 1,
    timestamp_ms: int = NOW_MS,
    *,
    key: bytes = b"key",
    value: bytes = b"value",
    producer_id: int = -1,
    producer_epoch: int = 0,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> memoryview:
    """Make a batch as a producer sends it, with timestamps one millisecond apart."""
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_id >= 0 else -1,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    for number in range(record_count):
        builder.append(timestamp_ms + number, key, value)
    return memoryview(builder.build())


def stamped(data: memoryview, base_offset: int, leader_epoch: int = 0) -> memoryview:
    """Return the batch as it is in a leader's log, in memory of its own."""
    copy = memoryview(bytearray(data))
    RecordBatch(copy).restamp(base_offset, leader_epoch)
    return copy


def marker(
    kind: ControlType, producer_id: int, producer_epoch: int = 0, coordinator_epoch: int = 0
) -> memoryview:
    """Make the batch that ends a transaction."""
    return memoryview(end_txn_marker(kind, coordinator_epoch, producer_id, producer_epoch, NOW_MS))


def joined(*parts: memoryview) -> memoryview:
    """Put batches into one buffer, as a fetch response brings them."""
    return memoryview(bytearray(b"".join(parts)))


def fill(log: PartitionLog, count: int, *, leader_epoch: int = 0, **shape: Any) -> list[Appended]:
    """Append this many batches of the same shape."""
    return [log.append_as_leader(batch(**shape), leader_epoch, NOW_MS) for _ in range(count)]


def refusal(act: Callable[..., object], *args: object) -> ErrorCode | None:
    """Run it; return the ApiError that it raises, if any."""
    try:
        act(*args)
    except ApiError as error:
        return error.code
    return None


def batches_of(log: PartitionLog) -> Iterator[RecordBatch]:
    """Read the log from its start to its end as a consumer would, each batch checked by its CRC."""
    offset = log.log_start_offset
    while offset < log.end_offset:
        data = log.read(offset, log.end_offset, READ_BYTES).read()
        if not data:
            return
        found = list(batches(data))
        assert sum(b.size_bytes for b in found) == len(data), "a slice ends with a batch"
        for one in found:
            one.check_crc()
            yield one
        offset = found[-1].end_offset


def contents(log: PartitionLog) -> list[bytes]:
    """Return every batch in the log, byte for byte."""
    return [bytes(one.raw) for one in batches_of(log)]


def new_log(**settings: Any) -> PartitionLog:
    """Open a new log on a simulated disk of its own."""
    return LogFolder(SimulatedDisk(), tiny(**settings)).start()


class LogFolder:
    """One log in a log dir, kept as a broker does: checkpoints, and the clean shutdown marker."""

    log: PartitionLog
    findings: Findings

    def __init__(self, disk: Disk, config: TopicConfig | None = None, folder: str = FOLDER) -> None:
        self.disk: Any = disk  # for tests that inject disk faults
        self.config = tiny() if config is None else config
        self.folder = folder
        self.directory = f"{folder}/{PARTITION}"
        self.files_max = OPEN_FILES_MAX
        self.was_clean = False

    def start(self, now_ms: int = NOW_MS) -> PartitionLog:
        """Open the log, after removing the clean shutdown marker, if any."""
        self.disk.make_directory(self.folder)
        self.disk.sync_directory(self.folder.rpartition("/")[0] or "/")
        self.was_clean = self._take_mark()
        self.files = OpenFiles(self.disk, self.files_max)
        self.log, self.findings = open_log(
            self.files,
            self.directory,
            self.config,
            now_ms,
            is_clean=self.was_clean,
            recovery_point=self._checkpointed(RECOVERY_POINT_FILE),
            log_start_offset=self._checkpointed(LOG_START_OFFSET_FILE),
            on_recovery_point_lowered=self.write_recovery_point,
        )
        return self.log

    def flush(self, now_ms: int = NOW_MS) -> None:
        """Flush the log, and checkpoint its recovery point."""
        self.log.flush(now_ms)
        self.write_recovery_point(self.log.recovery_point)

    def delete_records(self, offset: int) -> None:
        """Set the log start offset, and checkpoint it."""
        self.log.advance_log_start(offset)
        write_offsets(self.disk, self._path(LOG_START_OFFSET_FILE), {PARTITION: offset})

    def stop(self, now_ms: int = NOW_MS) -> None:
        """Close the log, and write the clean shutdown marker."""
        self.log.close(now_ms)
        self.write_recovery_point(self.log.recovery_point)
        write_clean_shutdown(self.disk, self._path(CLEAN_SHUTDOWN_FILE), broker_epoch=1)

    def write_recovery_point(self, offset: int) -> None:
        """Write the checkpoint."""
        write_offsets(self.disk, self._path(RECOVERY_POINT_FILE), {PARTITION: offset})

    def _take_mark(self) -> bool:
        mark = self._path(CLEAN_SHUTDOWN_FILE)
        try:
            return read_clean_shutdown(self.disk, mark) is not None
        except CorruptCheckpointError:
            return False
        finally:
            remove_durably(self.disk, mark)

    def _checkpointed(self, name: str) -> int:
        try:
            return read_offsets(self.disk, self._path(name)).get(PARTITION, 0)
        except CorruptCheckpointError:
            return 0

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"
