"""Replaces segments by a cleaned segment: old or new, never both.

    written    0042.log.cleaned   synced, beside segments that are still read
    decided    0042.log.swap      renamed: first the indexes, and last the batches
    cleared    0042.log.deleted, 0077.log.deleted: the replaced segments
    finished   0042.log           renamed: first the batches, and last the indexes

The swap is decided when no file of its base offset is called `.cleaned` any more. So after a crash
a remaining `.cleaned` file means that the new files are dropped, and `.swap` files alone mean that
the swap is completed. A cleaned segment ends where the replaced ones ended; its end tells which
segments it replaces.
"""

import posixpath
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ottla.environment.disk import Disk
from ottla.model.identifiers import Offset
from ottla.model.settings.topic_config import TopicConfig
from ottla.storage.files.damage import damage_path
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.indexes.aborted_index import AbortedTransaction
from ottla.storage.indexes.sparse_index import POSITION_MAX, CorruptIndexError
from ottla.storage.segments.segment import INDEX_SUFFIXES, LOG_SUFFIX, Segment, segment_name
from ottla.storage.segments.segment_batches import CorruptSegmentError
from ottla.wire.records.batch import RecordBatch

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

_PARTS: Final = (LOG_SUFFIX, *INDEX_SUFFIXES)
_FILE: Final = re.compile(r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex)(\.cleaned|\.swap)?")

_WRITTEN_BYTES: Final = 1 << 20
"""How much is collected before it is written."""


def segment_called(
    files: OpenFiles, directory: str, base_offset: Offset, config: TopicConfig, suffix: str
) -> Segment:
    """Return a segment whose file names have this suffix, without any I/O."""
    segment = Segment(files, directory, base_offset, config, now_ms=0)
    segment.path += suffix
    for index in segment.indexes:
        index.path += suffix
    return segment


# -- the steps ------------------------------------------------------------------------------------


def discard(disk: Disk, directory: str, base_offset: Offset) -> None:
    """Remove files of an undecided compaction."""
    # Remove the last .cleaned file last: else a crash would leave an apparent decision.
    for suffix in (SWAP_SUFFIX, CLEANED_SUFFIX):
        for part in _PARTS:
            with suppress(FileNotFoundError):
                disk.remove(_path(directory, base_offset, part, suffix))


def decide(disk: Disk, directory: str, base_offset: Offset) -> None:
    """Commit the swap, durably: from here on only the new segment counts."""
    for part in reversed(_PARTS):
        _rename(disk, directory, base_offset, part, CLEANED_SUFFIX, SWAP_SUFFIX)
    disk.sync_directory(directory)


def finish(disk: Disk, directory: str, base_offset: Offset) -> None:
    """Give the new files their names, once nothing else has them. Sync the directory then."""
    for part in _PARTS:
        _rename(disk, directory, base_offset, part, SWAP_SUFFIX, "")


# -- after a crash --------------------------------------------------------------------------------


def finish_swaps(disk: Disk, directory: str) -> list[str]:
    """Complete or roll back a swap that a crash interrupted; return the remaining file names.

    Runs before any other access to the files of a log. Can itself be interrupted and run again.
    """
    names = disk.list_directory(directory)
    found = [match for name in names if (match := _FILE.fullmatch(name))]
    undecided = {Offset(int(match[1])) for match in found if match[3] == CLEANED_SUFFIX}
    decided = {Offset(int(match[1])) for match in found if match[3] == SWAP_SUFFIX} - undecided
    for base_offset in sorted(undecided):
        discard(disk, directory, base_offset)
    for base_offset in sorted(decided):
        if disk.exists(_path(directory, base_offset, LOG_SUFFIX, SWAP_SUFFIX)):
            end_offset = _end_offset(disk, directory, base_offset)
            # Its positions refer to the old segment, which was replaced because of this damage.
            with suppress(FileNotFoundError):
                disk.remove(damage_path(_path(directory, base_offset, LOG_SUFFIX, "")))
            replaced = [m[0] for m in found if base_offset <= int(m[1]) < end_offset and not m[3]]
            for name in replaced:
                disk.remove(posixpath.join(directory, name))
        finish(disk, directory, base_offset)
        disk.sync_directory(directory)
    return disk.list_directory(directory) if undecided or decided else names


def _end_offset(disk: Disk, directory: str, base_offset: Offset) -> Offset:
    """Return the offset up to which a decided segment replaces others: at least its namesake."""
    files = OpenFiles(disk)
    segment = segment_called(files, directory, base_offset, TopicConfig(), SWAP_SUFFIX)
    segment.size_bytes = segment.file.size_bytes()
    try:
        end_offset = segment.end_offset()
    except CorruptSegmentError:
        # It was synced, and its end is lost all the same: recovery will report that. The segments
        # that it replaced are then known from its index, except for the last stretch.
        end_offset = _indexed_end(segment)
    return Offset(max(end_offset, base_offset + 1))


def _indexed_end(segment: Segment) -> Offset:
    with suppress(CorruptIndexError):
        return Offset(segment.offset_index.last_offset + 1)
    return segment.base_offset


def _path(directory: str, base_offset: Offset, part: str, suffix: str) -> str:
    return posixpath.join(directory, segment_name(base_offset) + part + suffix)


def _rename(
    disk: Disk, directory: str, base_offset: Offset, part: str, old_suffix: str, new_suffix: str
) -> None:
    old_path = _path(directory, base_offset, part, old_suffix)
    with suppress(FileNotFoundError):  # most segments have no .txnindex
        disk.rename(old_path, _path(directory, base_offset, part, new_suffix))


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
        base_offset: Offset,
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
