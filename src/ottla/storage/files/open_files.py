"""An LRU cache of the open files of many logs, with a maximum size.

Eviction only removes the cache's reference. A file that a reader still sends from, or that a thread
syncs, stays open until its last reference is gone.

Threads may use the cache concurrently, without a lock: at worst, two of them open the same file.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from weakref import WeakSet

from ottla.environment.disk import Disk, File
from ottla.storage.files.mappings import Mappings

OPEN_FILES_MAX: Final = 2048


class OpenFiles:
    """Opens files on demand, and drops the least recently used ones."""

    __slots__ = ("_count_max", "_file_by_path", "_in_use", "disk", "mappings")

    def __init__(self, disk: Disk, count_max: int = OPEN_FILES_MAX) -> None:
        self.disk = disk
        self.mappings = Mappings()
        """The mapped indexes of the same logs."""
        self._count_max = count_max
        self._file_by_path: dict[str, File] = {}
        self._in_use: WeakSet[File] = WeakSet()
        """All files that are still open, including evicted ones."""

    @property
    def has_spare(self) -> bool:
        """Whether as many files may be in use elsewhere as are kept open here, and one more."""
        return len(self._in_use) < 2 * self._count_max

    def get(self, path: str) -> File:
        """Return the file, opened now if it is not yet; `FileNotFoundError` if there is none."""
        file = self._file_by_path.pop(path, None)
        if file is None:
            file = self._opened(path, self.disk.open_file)
            self._make_room()
        self._file_by_path[path] = file  # the dict is in the order of use
        return file

    def create(self, path: str) -> File:
        """Create the file if it is missing, and return it."""
        self.forget(path)
        self._make_room()
        file = self._file_by_path[path] = self._opened(path, self.disk.create_file)
        return file

    def _opened(self, path: str, open_it: Callable[[str], File]) -> File:
        """Open a file; if no descriptor is left, evict all other files and retry."""
        try:
            file = open_it(path)
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE} or not self._file_by_path:
                raise
            self._file_by_path.clear()
            file = open_it(path)
        self._in_use.add(file)
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
