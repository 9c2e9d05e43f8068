"""Helpers of the compaction tests: a log that is written, compacted, and read back."""

from collections.abc import Sequence
from typing import Any

from ottla.environment.disk import Disk
from ottla.model.settings.topic_config import CleanupPolicy, TopicConfig
from ottla.storage.compaction.compaction_plan import plan
from ottla.storage.compaction.log_compaction import CleanedGroup, Compaction, prepare, replace
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.admission import Origin
from ottla.storage.log.log import PartitionLog
from ottla.storage.recovery.log_recovery import open_log
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.control import ControlType, end_txn_marker
from ottla.wire.records.record import Record, records_of

DIRECTORY = "/data/topic-0"
START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
DEDUPE_BYTES = 1 << 20

Pair = tuple[bytes | None, bytes | None]


def compacted(**settings: Any) -> TopicConfig:
    """Return settings under which every dirty segment is compacted at once."""
    wanted: dict[str, Any] = {
        "cleanup_policy": frozenset({CleanupPolicy.COMPACT}),
        "min_cleanable_dirty_ratio": 0.0,
        "index_interval_bytes": 200,
        "delete_retention_ms": DAY_MS,
    }
    return TopicConfig(**{**wanted, **settings})


def opened(disk: Disk, config: TopicConfig, recovery_point: int = 0) -> PartitionLog:
    return open_log(
        OpenFiles(disk),
        DIRECTORY,
        config,
        START_MS,
        is_clean=False,
        recovery_point=recovery_point,
    ).log


class Writer:
    """Writes to a log as producers and their coordinator do."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.sequence_by_producer: dict[int, int] = {}
        self.epoch_by_producer: dict[int, int] = {}

    def put(
        self,
        *pairs: Pair,
        codec: Compression = Compression.NONE,
        producer_id: int = -1,
        is_transactional: bool = False,
        timestamp_ms: int = START_MS,
    ) -> int:
        """Append one batch, and return the offset of its first record."""
        sequence = self.sequence_by_producer.get(producer_id, 0)
        has_id = producer_id >= 0
        builder = BatchBuilder(
            compression=codec,
            producer_id=producer_id,
            producer_epoch=self.epoch_by_producer.get(producer_id, 0) if has_id else -1,
            base_sequence=sequence if has_id else -1,
            is_transactional=is_transactional,
        )
        for number, (key, value) in enumerate(pairs):
            builder.append(timestamp_ms + number, key, value, [("header", key)])
        if has_id:
            self.sequence_by_producer[producer_id] = sequence + len(pairs)
        data = memoryview(builder.build())
        return self.log.append_as_leader(data, leader_epoch=3, now_ms=timestamp_ms).base_offset

    def end(
        self,
        producer_id: int,
        kind: ControlType = ControlType.COMMIT,
        now_ms: int = START_MS,
        *,
        is_epoch_bumped: bool = False,
    ) -> int:
        """Append an end transaction marker, in the producer's next epoch if `is_epoch_bumped`."""
        epoch = self.epoch_by_producer.get(producer_id, 0)
        if is_epoch_bumped:
            epoch += 1
            self.epoch_by_producer[producer_id] = epoch
            self.sequence_by_producer.pop(producer_id, None)
        marker = memoryview(end_txn_marker(kind, 0, producer_id, epoch, now_ms))
        appended = self.log.append_as_leader(marker, 3, now_ms, origin=Origin.COORDINATOR)
        return appended.base_offset

    def roll(self, now_ms: int = START_MS) -> None:
        self.log.roll(now_ms)


def last_stable_offset(log: PartitionLog) -> int:
    log.producers.acknowledge(log.end_offset)
    unstable = log.producers.first_unstable_offset
    return log.end_offset if unstable is None else unstable


def compact(
    disk: Disk,
    log: PartitionLog,
    first_dirty_offset: int = 0,
    now_ms: int = START_MS,
    dedupe_buffer_bytes: int = DEDUPE_BYTES,
) -> int:
    """Compact once, if anything is dirty; return the new first dirty offset."""
    planned = plan(log, first_dirty_offset, last_stable_offset(log), now_ms)
    if planned is None:
        return first_dirty_offset
    compaction = Compaction(disk, log, planned, now_ms, dedupe_buffer_bytes=dedupe_buffer_bytes)
    while (group := compaction.clean_next()) is not None:
        take_over(log, compaction, group, now_ms)
    return compaction.end_offset


def take_over(
    log: PartitionLog, compaction: Compaction, group: CleanedGroup, now_ms: int = START_MS
) -> None:
    """Swap a cleaned segment in, by the four steps of a cleaner in sequence."""
    try:
        prepare(log, group)
        compaction.decide(group)
        replace(log, group, now_ms)
        compaction.make_durable()
    except OSError as error:
        log.take_offline(error)
        raise


def batches_of(log: PartitionLog) -> list[RecordBatch]:
    found = [batch for segment in log.segments for batch in segment.batches(0)]
    for batch in found:
        batch.check_crc()
    return found


def data_batches(log: PartitionLog) -> list[RecordBatch]:
    return [batch for batch in batches_of(log) if not batch.is_control]


def records_in(batches: Sequence[RecordBatch]) -> list[Record]:
    return [record for batch in batches for record in records_of(batch)]


def offsets_of(log: PartitionLog) -> list[int]:
    """Return the offsets of all records, markers included."""
    return [record.offset for record in records_in(batches_of(log))]


def committed(log: PartitionLog) -> list[Record]:
    """Return the records of a read_committed consumer, filtered as clients do."""
    stable = last_stable_offset(log)
    aborted = log.aborted_transactions(log.log_start_offset, stable)
    found: list[Record] = []
    for batch in data_batches(log):
        is_aborted = batch.is_transactional and any(
            each.producer_id == batch.producer_id
            and each.first_offset <= batch.base_offset < each.last_offset
            for each in aborted
        )
        if not is_aborted and batch.base_offset < stable:
            found += records_of(batch)
    return found


def state_of(log: PartitionLog) -> dict[bytes, bytes]:
    """Return the last value of each key, without deleted keys."""
    state: dict[bytes, bytes] = {}
    for record in committed(log):
        assert record.key is not None
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state


def files_of(disk: Disk) -> dict[str, bytes]:
    """Return the files of all segments, without snapshots and files that await deletion."""
    found = {}
    for name in disk.list_directory(DIRECTORY):
        if name[:20].isdigit() and not name.endswith((".deleted", ".snapshot")):
            file = disk.open_file(f"{DIRECTORY}/{name}")
            found[name] = file.read_at(0, file.size_bytes())
    return found
