"""The segment that compaction writes, beside its source segments until it replaces them."""

from collections.abc import Callable
from typing import Final

from ottla.environment.disk import Disk
from ottla.model.settings.topic_config import TopicConfig
from ottla.storage.compaction.segment_swap import CLEANED_SUFFIX, segment_called
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.indexes.aborted_index import AbortedTransaction
from ottla.storage.indexes.sparse_index import POSITION_MAX
from ottla.wire.records.batch import RecordBatch

_WRITTEN_BYTES: Final = 1 << 20
"""How much is collected before it is written."""


class OversizedSegmentError(Exception):
    """Batches that were compressed better than we can do not fit into one segment any more."""


class CleanedSegment:
    """A segment in the making. Files of an earlier attempt under its names are removed."""

    __slots__ = (
        "_directory",
        "_disk",
        "_pace",
        "_pending",
        "_pending_bytes",
        "_segment",
        "size_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: TopicConfig,
        pace: Callable[[int], None],
    ) -> None:
        files = OpenFiles(disk)
        self._disk = disk
        self._directory = directory
        self._pace = pace
        self._segment = segment_called(files, directory, base_offset, config, CLEANED_SUFFIX)
        self._pending: list[RecordBatch] = []
        self._pending_bytes = 0
        self.size_bytes = 0
        files.create(self._segment.path).truncate(0)
        for index in self._segment.indexes:
            index.reset()

    def append(self, batch: RecordBatch) -> None:
        """Add a batch."""
        if self.size_bytes + batch.size_bytes > POSITION_MAX:
            raise OversizedSegmentError(f"{self._segment.path} at offset {batch.base_offset}")
        self._pending.append(batch)
        self._pending_bytes += batch.size_bytes
        self.size_bytes += batch.size_bytes
        if self._pending_bytes >= _WRITTEN_BYTES:
            self._write()

    def append_aborted(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction; its marker comes next."""
        self._segment.aborted_index.append(transaction)

    def finish(self, modified_ms: int) -> None:
        """Make the files and their names durable, with the modification time of their sources."""
        self._write()
        self._segment.close_for_writing()
        self._segment.file.set_modified_ms(modified_ms)
        self._segment.file.sync()
        for index in self._segment.indexes:
            index.sync()
        self._disk.sync_directory(self._directory)

    def _write(self) -> None:
        if not self._pending:
            return
        raw = b"".join([batch.raw for batch in self._pending])
        self._segment.append(raw, self._pending)
        self._pace(len(raw))
        self._pending = []
        self._pending_bytes = 0
