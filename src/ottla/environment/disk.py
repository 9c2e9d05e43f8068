"""A disk: files written at a position, and directories.

Two things have to be made durable separately, as on every POSIX system:

* what is **in** a file, by `File.sync`;
* **that it is there** under its name, by `Disk.sync_directory` of the directory that holds it.

Until then a power cut may take all of it, a part of it, or none. A part of a file is any mixture
of old and new sectors, with zeros where the file grew and the data did not arrive. Of a directory
it is the first few of the changes made to it. A process that dies takes nothing along: what has
been written is in the page cache, and the next process reads it.

Paths are plain strings joined with "/". Whatever goes wrong is an `OSError`.
"""

from typing import Protocol

Buffer = bytes | bytearray | memoryview
"""What can be written; a memoryview must be one of single bytes."""


class File(Protocol):
    """An open file.

    It closes by `close` or when nobody refers to it any more. The latter is the safe way where
    another thread may still be reading or syncing: it cannot pull the file away under a call.
    A closed file answers everything but `close` with `OSError`.
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

        Until then a power cut may bring back what was cut off, even behind what was written since.
        """
        ...

    def sync(self) -> None:
        """Return when everything written so far, and the size, are durable.

        Where this fails nothing is known about what was written since the last success, and a
        second try may succeed without it: the kernel has marked the lost pages clean. So never
        try again; stop trusting the file.
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
        """Open a file, made if missing, that nobody else can lock as long as this one is open.

        `BlockingIOError` if somebody has it: another process, or another opening in this one. The
        lock goes with the process, however that ends, and says nothing to who does not ask for it.
        """
        ...

    def map_file(self, path: str) -> memoryview:
        """Return the whole file as it is now, read-only; an empty one is an empty view.

        Later writes may or may not show in it. Nobody may cut the file while the view is in use:
        touching a mapped page that is gone kills the process.
        """
        ...

    def exists(self, path: str) -> bool:
        """Tell whether a file or directory has this path; an unreadable one is an `OSError`."""
        ...

    def is_directory(self, path: str) -> bool:
        """Tell whether a directory has this path; an unreadable one is an `OSError`."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in it, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Make it and the parents it lacks; fine if it is there.

        Each one that was made is durable once its own parent has been synced.
        """
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory within its directory, replacing what has the new name.

        Atomic: at every moment, and after a power cut, there is the old state or the new one.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file; who has it open keeps it until closing it."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove a directory, which must be empty."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the creations, renames and removals in it are durable.

        Says nothing about what is in its files, in the directories below it, or about its own
        name, which is its parent's.
        """
        ...

    def free_bytes(self, path: str) -> int:
        """Return how many bytes can still be written to the disk that holds this path."""
        ...

    def total_bytes(self, path: str) -> int:
        """Return how many bytes the disk that holds this path can hold at all."""
        ...
