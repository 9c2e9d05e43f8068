"""The open files of many logs, of which only so many are open at once.

A file that is in use elsewhere, by a reader to whom the kernel still sends it or by a thread that
syncs it, stays open as long as that: here it is only forgotten, and it closes when nobody refers
to it any more.

Threads may use it at the same time, and without a lock: at worst one opens a file that another has
open, too.
"""

from contextlib import suppress
from typing import Final

from ottla.environment.disk import Disk, File

OPEN_FILES_MAX: Final = 2048


class OpenFiles:
    """Opens files when they are asked for, and forgets those that were not asked for longest."""

    __slots__ = ("_count_max", "_file_by_path", "disk")

    def __init__(self, disk: Disk, count_max: int = OPEN_FILES_MAX) -> None:
        self.disk = disk
        self._count_max = count_max
        self._file_by_path: dict[str, File] = {}

    def get(self, path: str) -> File:
        """Return the file, opened now if it is not yet; `FileNotFoundError` if there is none."""
        file = self._file_by_path.pop(path, None)
        if file is None:
            file = self.disk.open_file(path)
            self._make_room()
        self._file_by_path[path] = file  # the dict is in the order of use
        return file

    def create(self, path: str) -> File:
        """Make the file if it is missing, and return it."""
        self.forget(path)
        self._make_room()
        file = self._file_by_path[path] = self.disk.create_file(path)
        return file

    def forget(self, path: str) -> None:
        """Give the file up: it goes, or gets another name."""
        self._file_by_path.pop(path, None)

    def rename(self, old: str, new: str) -> None:
        """Know a file that is open by its new name."""
        file = self._file_by_path.pop(old, None)
        if file is not None:
            self._file_by_path[new] = file

    def _make_room(self) -> None:
        while len(self._file_by_path) >= self._count_max:
            with suppress(RuntimeError, StopIteration):  # another thread was faster
                self._file_by_path.pop(next(iter(self._file_by_path)), None)

    def __len__(self) -> int:
        return len(self._file_by_path)
