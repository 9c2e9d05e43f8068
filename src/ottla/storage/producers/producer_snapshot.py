"""Kafka's producer snapshots: the producer state of a log at one end offset.

The offset is in the name: twenty digits and `.snapshot`. The file holds

    version int16 = 1 | CRC-32C uint32 of the rest | count int32 | entries

    entry := producer id int64, producer epoch int16, last sequence int32, last offset int64,
             offset delta int32, timestamp int64, coordinator epoch int32,
             first offset of the open transaction int64

A producer without a known batch has -1 as last sequence and last offset, and 0 as offset delta.
Without an open transaction, the first offset is -1.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from struct import Struct
from typing import NamedTuple

from ottla.environment.disk import Buffer, Disk
from ottla.model.identifiers import Offset, ProducerId
from ottla.wire.records.crc32c import crc32c

VERSION = 1
SUFFIX = ".snapshot"

_HEAD = Struct(">hIi")
_CHECKED_FROM = 6
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_NAME = re.compile(r"([0-9]{20})\.snapshot")


class CorruptSnapshotError(Exception):
    """Not a complete producer snapshot. The log has the same information."""


class ProducerEntry(NamedTuple):
    """One producer, as a snapshot keeps it: of its batches only the last."""

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: Offset


class FoundSnapshot(NamedTuple):
    """The newest snapshot that can be used, or the beginning of the log and no entries."""

    offset: Offset
    entries: list[ProducerEntry]
    damaged: list[CorruptSnapshotError]
    """The faults of newer snapshots."""


class ProducerSnapshots:
    """The snapshots of one log, in its directory. Keeps nothing in memory."""

    __slots__ = ("_disk", "directory")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory

    def offsets(self) -> list[Offset]:
        """List the existing snapshots, ascending."""
        names = map(_NAME.fullmatch, self._disk.list_directory(self.directory))
        return [Offset(int(name[1])) for name in names if name]

    def write(self, offset: Offset, entries: Iterable[ProducerEntry], *, sync: bool) -> None:
        """Write the snapshot at this offset, and replace an existing one.

        Unsynced, or after a failure, a part of it may exist: the CRC detects that.
        """
        with closing(self._disk.create_file(self.path(offset))) as file:
            file.truncate(0)
            file.write_at(0, encode_snapshot(entries))
            if sync:
                file.sync()
                self._disk.sync_directory(self.directory)

    def find_newest(self, start_offset: Offset, end_offset: Offset) -> FoundSnapshot:
        """Read the newest snapshot of a log with these bounds.

        Snapshots outside the bounds describe other records: they are removed, and damaged ones,
        too.
        """
        offsets = self.offsets()
        wanted = [offset for offset in offsets if start_offset < offset <= end_offset]
        if len(wanted) < len(offsets):
            self._remove_durably(lambda offset: offset not in wanted)
        damaged: list[CorruptSnapshotError] = []
        found = FoundSnapshot(start_offset, [], damaged)
        for offset in reversed(wanted):
            with closing(self._disk.open_file(self.path(offset))) as file:
                content = file.read_at(0, file.size_bytes())
            try:
                found = FoundSnapshot(offset, decode_snapshot(content, offset), damaged)
                break
            except CorruptSnapshotError as error:
                damaged.append(error)
        if damaged:
            # A read may fail although the disk has the right bytes: see `_remove_durably`.
            self._remove_durably(lambda offset: offset > found.offset)
        return found

    def remove_before(self, offset: Offset) -> None:
        """Remove the snapshots that only segments before this offset needed."""
        self._remove(lambda snapshot: snapshot < offset)

    def remove_strays(self, base_offsets: Collection[Offset]) -> None:
        """Keep only the snapshots where segments begin, and the newest if it is later.

        The newest comes from a clean shutdown, and spares the next start the reading of a segment.
        """
        offsets = self.offsets()
        kept = {*base_offsets, max([*offsets, *base_offsets])}
        if not kept.issuperset(offsets):
            self._remove(lambda snapshot: snapshot not in kept)

    def remove_all(self) -> None:
        """Remove every snapshot: the log restarts."""
        self._remove_durably(lambda _: True)

    def path(self, offset: Offset) -> str:
        """Name the file of the snapshot that covers everything before this offset."""
        return posixpath.join(self.directory, f"{offset:020d}{SUFFIX}")

    def _remove_durably(self, is_unwanted: Callable[[Offset], bool]) -> None:
        """Remove snapshots durably: a power cut must not bring them back into another history."""
        if self._remove(is_unwanted):
            self._disk.sync_directory(self.directory)

    def _remove(self, is_unwanted: Callable[[Offset], bool]) -> bool:
        unwanted = [offset for offset in self.offsets() if is_unwanted(offset)]
        for offset in unwanted:
            self._disk.remove(self.path(offset))
        return bool(unwanted)


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Write the content of a snapshot."""
    rows = [_ENTRY.pack(*entry) for entry in entries]
    checked = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(VERSION, crc32c(checked), len(rows)) + checked[_COUNT.size :]


def decode_snapshot(content: Buffer, offset: Offset) -> list[ProducerEntry]:
    """Read the snapshot at this offset; CorruptSnapshotError unless all of it is right.

    Entries that speak of batches at or after the offset are not right either.
    """
    view = memoryview(content)
    if len(view) < _HEAD.size:
        raise CorruptSnapshotError(f"snapshot {offset} has only {len(view)} bytes")
    version, checksum, count = _HEAD.unpack_from(view)
    if version != VERSION:
        raise CorruptSnapshotError(f"snapshot {offset} has unknown version {version}")
    if crc32c(view[_CHECKED_FROM:]) != checksum:
        raise CorruptSnapshotError(f"snapshot {offset} does not have the CRC of its bytes")
    if len(view) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"snapshot {offset}: {count} entries in {len(view)} bytes")
    entries = [ProducerEntry._make(row) for row in _ENTRY.iter_unpack(view[_HEAD.size :])]
    _check_entries(entries, offset)
    return entries


def _check_entries(entries: list[ProducerEntry], offset: Offset) -> None:
    opened = [entry.transaction_first_offset for entry in entries]
    opened = [first_offset for first_offset in opened if first_offset >= 0]
    if len({entry.producer_id for entry in entries}) < len(entries):
        raise CorruptSnapshotError(f"snapshot {offset} has a producer twice")
    if len(set(opened)) < len(opened):
        raise CorruptSnapshotError(f"snapshot {offset} has two transactions at one offset")
    for entry in entries:
        if max(entry.last_offset, entry.transaction_first_offset) >= offset:
            raise CorruptSnapshotError(f"snapshot {offset} is ahead of itself: {entry}")
