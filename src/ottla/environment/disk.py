"""A disk: files written at a position, and directories.

Two things become durable separately, as on every POSIX system:

* the **content** of a file, by `File.sync`;
* its **name**, by `Disk.sync_directory` of the directory that holds it.

Until then a power cut may take all of it, a part of it, or none. A file may then hold any mixture
of old and new sectors, with zeros where the file grew and the data did not arrive. A directory
keeps a prefix of the changes made to it. A process that dies loses nothing: its writes are in the
page cache, and the next process reads them.

Paths are plain strings joined with "/". Every failure is an `OSError`.
"""

from typing import Protocol

Buffer = bytes | bytearray | memoryview
"""Writable data; a memoryview must have items of one byte."""


class File(Protocol):
    """An open file.

    It closes by `close`, or when the last reference to it goes. The latter is the safe way where
    another thread may still be reading or syncing: the descriptor stays valid during the call.
    Every method of a closed file but `close` raises `OSError`.
    """

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of it, or raise `OSError`; then some of it may be there: cut it off again.

        Writing past the end leaves zeros between. Seen by every reader at once, durable by `sync`.
        """
        ...

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Return these bytes: fewer only where the file ends, none past its end."""
        ...

    def size_bytes(self) -> int:
        """Return the position after the last byte."""
        ...

    def modified_ms(self) -> int:
        """Return when it was last written to or cut, in milliseconds since 1970."""
        ...

    def set_modified_ms(self, time_ms: int) -> None:
        """Say that it was modified then. No sync makes that durable by itself."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Cut the file, or let it grow with zeros, to this size; durable by `sync`.

        Until then a power cut may bring back the old tail, even behind data written since.
        """
        ...

    def sync(self) -> None:
        """Return when everything written so far, and the size, are durable.

        After a failure the state of all writes since the last success is unknown, and a second try
        may succeed without them: the kernel has marked the lost pages clean. So never try again;
        stop trusting the file.
        """
        ...

    def close(self) -> None:
        """Close it; it may be closed already. Makes nothing durable."""
        ...

    def fileno(self) -> int:
        """Return the descriptor, for sendfile and advice; a simulated file raises `OSError`."""
        ...


class Disk(Protocol):
    """Directories of files. Names and renames are durable by `sync_directory`."""

    def open_file(self, path: str) -> File:
        """Open a file for reading and writing; `FileNotFoundError` if there is none."""
        ...

    def create_file(self, path: str) -> File:
        """Open a file for reading and writing: made, empty, if missing, and kept if there."""
        ...

    def lock_file(self, path: str) -> File:
        """Open a file, created if missing, with an exclusive lock for as long as it is open.

        `BlockingIOError` if it is locked: by another process, or by another opening in this
        process. The lock ends with the process, however the process ends, and does not affect
        `open`.
        """
        ...

    def map_file(self, path: str) -> memoryview:
        """Return the whole file as it is now, read-only; an empty file is an empty view.

        Later writes may or may not show in it. The file must not be truncated while the view is in
        use: touching a mapped page beyond the end kills the process.
        """
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory has this path; `OSError` if that cannot be read."""
        ...

    def is_directory(self, path: str) -> bool:
        """Return whether a directory has this path; `OSError` if that cannot be read."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in it, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory and its missing parents; no error if it exists.

        Each new directory is durable once its own parent has been synced.
        """
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory within its directory, and replace an existing one.

        Atomic: at every moment, and after a power cut, the directory has the old state or the new
        state.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file; its data stays readable through open files."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove a directory, which must be empty."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the creations, renames and removals in a directory are durable.

        The contents of its files, the directories below it, and its own name in its parent are not
        covered.
        """
        ...

    def free_bytes(self, path: str) -> int:
        """Return how many bytes can still be written to the disk that holds this path."""
        ...

    def total_bytes(self, path: str) -> int:
        """Return how many bytes the disk that holds this path can hold at all."""
        ...
