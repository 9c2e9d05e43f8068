"""The disk on Linux. The contract is `ottla.environment.disk`.

Only the owner can read the files and directories, because records may be confidential.
"""

import errno
import fcntl
import mmap
import os
import posixpath
import stat
import struct
from contextlib import suppress
from pathlib import Path

from ottla.environment.disk import Buffer

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC
_WHOLE_FILE = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
"""The kernel's `struct flock` of a lock on the whole file."""


class KernelFile:
    """A file descriptor. Owns it: closes it, at the latest in garbage collection."""

    __slots__ = ("__weakref__", "_descriptor")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all bytes, or raise `OSError`."""
        written = os.pwrite(self._descriptor, data, position)
        if written != len(data):
            self._write_rest(position, memoryview(data), written)

    def _write_rest(self, position: int, data: memoryview, written: int) -> None:
        # The kernel stops early at 2 GiB, and on a full disk: the next call raises the reason.
        while written < len(data):
            more = os.pwrite(self._descriptor, data[written:], position + written)
            if more == 0:
                raise OSError(errno.EIO, "the kernel takes no more bytes and does not say why")
            written += more

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Return these bytes, fewer only where the file ends."""
        data = os.pread(self._descriptor, size_bytes, position)
        if len(data) == size_bytes:
            return data
        return self._read_rest(position, size_bytes, data)

    def _read_rest(self, position: int, size_bytes: int, data: bytes) -> bytes:
        pieces = bytearray(data)
        while data and len(pieces) < size_bytes:
            data = os.pread(self._descriptor, size_bytes - len(pieces), position + len(pieces))
            pieces += data
        return bytes(pieces)

    def size_bytes(self) -> int:
        """Return the position after the last byte."""
        return os.fstat(self._descriptor).st_size

    def modified_ms(self) -> int:
        """Return the time of the last write or truncation."""
        return os.fstat(self.fileno()).st_mtime_ns // 1_000_000

    def set_modified_ms(self, time_ms: int) -> None:
        """Set the times of modification and access."""
        os.utime(self.fileno(), ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to this size, or extend it with zeros."""
        os.ftruncate(self._descriptor, size_bytes)

    def sync(self) -> None:
        """Return when everything written so far, and the size, are durable.

        fdatasync suffices and saves a journal commit: it leaves out only metadata that reading does
        not need, such as the modification time, and does write the size.
        """
        os.fdatasync(self.fileno())  # fileno() raises OSError for a closed file

    def close(self) -> None:
        """Close the descriptor; idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def fileno(self) -> int:
        """Return the descriptor; `OSError` if it is closed."""
        if self._descriptor < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._descriptor

    def __del__(self) -> None:
        self.close()


class KernelDisk:
    """The directories of this machine."""

    __slots__ = ()

    def open_file(self, path: str) -> KernelFile:
        """Open an existing file."""
        return KernelFile(os.open(path, _OPEN_FLAGS))

    def create_file(self, path: str) -> KernelFile:
        """Open a file, and create it if missing."""
        return KernelFile(os.open(path, _OPEN_FLAGS | os.O_CREAT, FILE_MODE))

    def lock_file(self, path: str) -> KernelFile:
        """Lock a file by its open file description: two openings in one process conflict, too.

        Kafka uses Java's locks, which belong to the process. The kernel makes the two kinds
        conflict with each other.
        """
        file = self.create_file(path)
        fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, _WHOLE_FILE)
        return file

    def map_file(self, path: str) -> memoryview:
        """Map the whole file; the mapping ends with its last view."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size == 0:  # mmap refuses an empty file
                return memoryview(b"")
            return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(descriptor)

    def exists(self, path: str) -> bool:
        """Return whether the path exists; `OSError` if the disk cannot be read."""
        return _mode(path) is not None

    def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory."""
        mode = _mode(path)
        return mode is not None and stat.S_ISDIR(mode)

    def list_directory(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries)

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents, all accessible to the owner only."""
        directory = Path(path)
        # In the common case the parent exists and the directory does not.
        with suppress(FileExistsError, FileNotFoundError, NotADirectoryError):
            directory.mkdir(DIRECTORY_MODE)
            return
        # Not parents=True, which creates the parents with the mode of the umask.
        for parent in [*reversed(directory.parents), directory]:
            if not parent.is_dir():
                parent.mkdir(DIRECTORY_MODE, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory within its directory, and replace an existing one."""
        assert posixpath.dirname(old) == posixpath.dirname(new), f"{old} to {new}"
        Path(old).replace(new)

    def remove(self, path: str) -> None:
        """Remove a file."""
        Path(path).unlink()

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        Path(path).rmdir()

    def sync_directory(self, path: str) -> None:
        """Return when the names in it are durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        """Return the free bytes, without the reserve for root."""
        statistics = os.statvfs(path)
        return statistics.f_bavail * statistics.f_frsize

    def total_bytes(self, path: str) -> int:
        """Return the size of the filesystem."""
        statistics = os.statvfs(path)
        return statistics.f_blocks * statistics.f_frsize


def _mode(path: str) -> int | None:
    """Return the file type at a path; None if nothing exists there."""
    try:
        return Path(path).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
