"""A log dir as Ottla opens and closes it, and its logs as consumers see them."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.runtime.disk import KernelDisk
from ottla.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    NO_BROKER_EPOCH,
    read_clean_shutdown,
)
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.log import PartitionLog
from ottla.storage.log_dirs.log_dir import LogDir
from ottla.wire.records.batch import RecordBatch, batches
from ottla.wire.records.control import ControlType, control_type_of
from ottla.wire.records.record import records_of
from tests.interop.seen import SeenRecord, text_of

READ_BYTES = 1000
NOW_MS = 1_735_700_000_000


class OttlaFolder:
    """An open log dir; the end of the block closes it cleanly, except after an exception."""

    def __init__(
        self, directory: Path, config_by_topic: Mapping[str, TopicConfig], now_ms: int = NOW_MS
    ) -> None:
        disk = KernelDisk()
        self.now_ms = now_ms
        self._config_by_topic = config_by_topic
        self._epoch = read_clean_shutdown(disk, str(directory / CLEAN_SHUTDOWN_FILE))
        self._dir = LogDir(OpenFiles(disk), str(directory))
        self._dir.open(self._config_of, now_ms)
        assert self._dir.is_online, self._dir.failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    @property
    def was_clean(self) -> bool:
        """Whether the log dir has the marker of a clean shutdown."""
        return self._dir.was_clean

    @property
    def notes(self) -> list[str]:
        """The irregularities that were found at opening."""
        return self._dir.notes

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Where the logs end."""
        return {name: hosted.log.end_offset for name, hosted in self._dir.hosted.items()}

    def log(self, topic: str, index: int = 0) -> PartitionLog:
        """Return the log of an existing partition."""
        return self._dir.hosted[TopicPartition(topic, index)].log

    def create(self, topic: str, topic_id: bytes) -> None:
        """Make an empty log for the only partition of a topic."""
        partition = TopicPartition(topic, 0)
        self._dir.create(partition, topic_id, self._config_of(topic), self.now_ms)

    def close(self) -> None:
        """Stop properly."""
        self._dir.close(self.now_ms, NO_BROKER_EPOCH if self._epoch is None else self._epoch)
        assert self._dir.is_online, self._dir.failure

    def _config_of(self, topic: str) -> TopicConfig:
        return self._config_by_topic.get(topic, TopicConfig())


def batches_in(log: PartitionLog, end_offset: int | None = None) -> list[RecordBatch]:
    """Fetch everything, a little at a time, as a consumer would."""
    end_offset = log.end_offset if end_offset is None else end_offset
    found: list[RecordBatch] = []
    offset = log.log_start_offset
    while more := list(batches(memoryview(log.read(offset, end_offset, READ_BYTES).read()))):
        found += more
        offset = more[-1].end_offset
    return found


def uncommitted(log: PartitionLog) -> list[SeenRecord]:
    """Return the records that a read_uncommitted consumer sees."""
    return [seen for batch in batches_in(log) if not batch.is_control for seen in _seen_in(batch)]


def committed(log: PartitionLog) -> list[SeenRecord]:
    """Return the records that a read_committed consumer sees."""
    log.producers.acknowledge(log.end_offset)  # no other replica has to have the markers
    unstable = log.producers.first_unstable_offset
    stable = log.end_offset if unstable is None else unstable
    waiting = sorted(
        log.aborted_transactions(log.log_start_offset, stable), key=lambda t: t.first_offset
    )
    aborting: set[int] = set()
    found: list[SeenRecord] = []
    for batch in batches_in(log, stable):
        while waiting and waiting[0].first_offset <= batch.last_offset:
            aborting.add(waiting.pop(0).producer_id)
        if batch.is_control:
            if control_type_of(batch) is ControlType.ABORT:
                aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in aborting):
            found += _seen_in(batch)
    return found


def _seen_in(batch: RecordBatch) -> list[SeenRecord]:
    return [
        SeenRecord(
            record.offset,
            record.timestamp_ms,
            text_of(record.key),
            text_of(record.value),
            tuple((header.key, text_of(header.value)) for header in record.headers),
        )
        for record in records_of(batch)
    ]
