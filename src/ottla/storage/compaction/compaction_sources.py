"""The segments that a compaction reads, in a thread, with nothing of the log's own in hand."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Final, NamedTuple

from ottla.environment.disk import Disk
from ottla.model.settings.topic_config import TopicConfig
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.indexes.sparse_index import RELATIVE_OFFSET_MAX
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.segment_batches import CorruptSegmentError
from ottla.wire.records.batch import RecordBatch

PACED_BYTES: Final = 1 << 20
"""How much is read between two calls of `pace`."""


class Source(NamedTuple):
    """A closed segment as it was when the compaction began."""

    segment: Segment
    """The log's own, which the thread leaves alone."""
    base_offset: int
    end_offset: int
    size_bytes: int


class SourceReader:
    """Reads closed segments through its own open files; FileNotFoundError if one was deleted."""

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
