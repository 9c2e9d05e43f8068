"""The snapshots in the folder of the metadata log: `….checkpoint`, and `.part` while written."""

import posixpath
from typing import Final

from ottla.environment.disk import Disk, File
from ottla.raft.snapshots import (
    PARTIAL_SUFFIX,
    SUFFIX,
    SnapshotId,
    SnapshotStart,
    snapshot_data_of,
    snapshot_id_of,
    snapshot_start_of,
)
from ottla.storage.files.checkpoints import write_atomically
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import RecordBatch, batches

DELETED_SUFFIX: Final = ".checkpoint.deleted"
"""Kafka renames a snapshot to this before it deletes it."""
_PART: Final = PARTIAL_SUFFIX.removeprefix(SUFFIX)


class DamagedSnapshotError(Exception):
    """A snapshot cannot be read; the detail names the file."""


class SnapshotFiles:
    """The snapshots of one folder. Every failure of the disk is an OSError."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._part: tuple[SnapshotId, File] | None = None

    def open(self) -> list[SnapshotId]:
        """Delete the leftovers of an earlier life, and return the snapshots, by rising offset."""
        for name in self._disk.list_directory(self._directory):
            if name.endswith((PARTIAL_SUFFIX, DELETED_SUFFIX)):
                self._disk.remove(posixpath.join(self._directory, name))
        return self.ids()

    def ids(self) -> list[SnapshotId]:
        """Return the complete snapshots, by rising offset."""
        found = map(snapshot_id_of, self._disk.list_directory(self._directory))
        return sorted(one for one in found if one is not None)

    def start_of(self, snapshot_id: SnapshotId) -> SnapshotStart:
        """Check a whole snapshot, and return its control records.

        DamagedSnapshotError if a batch is damaged, or an end is missing.
        """
        return self._start_of(self._path(snapshot_id))

    def _start_of(self, path: str) -> SnapshotStart:
        content = self._content(path)
        try:
            for batch in batches(content):
                batch.check_crc()
            snapshot_data_of(content)
            return snapshot_start_of(content)
        except ProtocolError as error:
            raise DamagedSnapshotError(f"{path} cannot be read: {error.detail}") from error

    def data_of(self, snapshot_id: SnapshotId) -> list[RecordBatch]:
        """Return the data batches of a snapshot; DamagedSnapshotError as in `start_of`."""
        path = self._path(snapshot_id)
        try:
            return snapshot_data_of(self._content(path))
        except ProtocolError as error:
            raise DamagedSnapshotError(f"{path} cannot be read: {error.detail}") from error

    def piece(self, snapshot_id: SnapshotId, position: int, bytes_max: int) -> tuple[bytes, int]:
        """Return bytes of a snapshot from a position on, and the size of its file."""
        file = self._disk.open_file(self._path(snapshot_id))
        return file.read_at(position, bytes_max), file.size_bytes()

    def size_bytes(self) -> int:
        """Return the size of all complete snapshots."""
        return sum(self._disk.open_file(self._path(one)).size_bytes() for one in self.ids())

    def save(self, snapshot_id: SnapshotId, content: bytes) -> None:
        """Write a whole snapshot durably. Any thread may call this."""
        write_atomically(self._disk, self._path(snapshot_id), content, suffix=_PART)

    def write_piece(self, snapshot_id: SnapshotId, position: int, content: bytes) -> None:
        """Write a piece of a snapshot that is being fetched; position 0 begins it anew."""
        path = self._path(snapshot_id) + _PART
        if self._part is None or position == 0:
            file = self._disk.create_file(path)
            file.truncate(0)
            self._part = snapshot_id, file
        assert self._part[0] == snapshot_id, "a snapshot begins with its position 0"
        self._part[1].write_at(position, content)

    def install(self, snapshot_id: SnapshotId) -> SnapshotStart:
        """Make a fetched snapshot durable under its name, and return its control records.

        DamagedSnapshotError, and the snapshot has no name, if its content is damaged.
        """
        assert self._part is not None, "no piece was written"
        file, path = self._part[1], self._path(snapshot_id)
        self._part = None
        start = self._start_of(path + _PART)
        file.sync()
        self._disk.rename(path + _PART, path)
        self._disk.sync_directory(self._directory)
        return start

    def remove(self, snapshot_id: SnapshotId) -> None:
        """Remove a snapshot."""
        self._disk.remove(self._path(snapshot_id))

    def remove_before(self, snapshot_id: SnapshotId) -> None:
        """Remove the snapshots that are older than this."""
        for one in self.ids():
            if one < snapshot_id:
                self._disk.remove(self._path(one))

    def close(self) -> None:
        """Forget a snapshot that is being fetched."""
        self._part = None

    def _content(self, path: str) -> bytes:
        file = self._disk.open_file(path)
        return file.read_at(0, file.size_bytes())

    def _path(self, snapshot_id: SnapshotId) -> str:
        return posixpath.join(self._directory, snapshot_id.file_name)
