"""Limits the number of mapped index files.

The kernel refuses mappings beyond `vm.max_map_count`, often 65,530, and every index that was ever
searched would keep one until its log is closed. Beyond the limit the oldest mapping is dropped, and
recreated when its index is searched. The order is FIFO, not LRU: an LRU order would cost every
search an update, while mapping a file again costs a few microseconds once in many searches.
"""

from collections import deque
from typing import Final, Protocol
from weakref import ref

MAPPINGS_MAX: Final = 16_384
"""A quarter of the usual `vm.max_map_count`: allocators, libraries and threads need some, too."""


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
