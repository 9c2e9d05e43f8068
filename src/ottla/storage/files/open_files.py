"""Limits of open files and of mapped index files, over all logs.

The open files are an LRU cache. Eviction only removes the cache's reference: a file that a reader
still sends from, or that a thread syncs, stays open until its last reference is gone. Threads may
use the cache concurrently, without a lock: at worst, two of them open the same file.

The kernel refuses mappings beyond `vm.max_map_count`, often 65,530, and every index that was ever
searched would keep one until its log is closed. Beyond the limit the oldest mapping is dropped, and
recreated when its index is searched. The order is FIFO, not LRU: an LRU order would cost every
search an update, while mapping a file again costs a few microseconds once in many searches.
"""

import errno
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol
from weakref import WeakSet, ref

from ottla.environment.disk import Disk, File

MAPPINGS_MAX: Final = 16_384
"""A quarter of the usual `vm.max_map_count`: allocators, libraries and threads need some, too."""

OPEN_FILES_MAX: Final = 2048


class Mapped(Protocol):
    """The owner of a memory mapping, which can drop it and map the file again."""

    def release(self) -> None:
        """Drop the mapping."""
        ...


class Mappings:
    """Limits the number of mappings: drops the oldest first. Holds weak references only."""

    __slots__ = ("_count_max", "_mapped")

    def __init__(self, count_max: int = MAPPINGS_MAX) -> None:
        self._count_max = count_max
        self._mapped: deque[ref[Mapped]] = deque()

    def add(self, mapped: Mapped) -> None:
        """Record a mapping that was made a moment ago."""
        while len(self._mapped) >= self._count_max:
            oldest = self._mapped.popleft()()
            if oldest is not None:  # it may have been dropped and made again since: then once more
                oldest.release()
        self._mapped.append(ref(mapped))

    def __len__(self) -> int:
        return len(self._mapped)


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
