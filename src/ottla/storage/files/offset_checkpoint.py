"""A file of offsets in a log dir: collected on the loop, written on a thread.

Two threads may write it at the same time. Older offsets never replace newer ones: an offset that
was lowered does not come back.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from itertools import count

from ottla.environment.disk import Disk
from ottla.model.identifiers import TopicPartition
from ottla.storage.files.checkpoints import write_offsets

Write = Callable[[], None]
"""Writes a file, on any thread. After an `OSError` it is not written."""


class OffsetTable:
    """One checkpoint file. `guard` keeps threads apart that write; one thread needs none."""

    __slots__ = ("_disk", "_guard", "_numbers", "_path", "_written_number")

    def __init__(self, disk: Disk, path: str, guard: AbstractContextManager[object]) -> None:
        self._disk = disk
        self._path = path
        self._guard = guard
        self._numbers = count(1)
        self._written_number = 0

    def told(self, offset_by_partition: Mapping[TopicPartition, int]) -> Write:
        """Return the function that writes these offsets, unless newer ones were given by then."""
        number = next(self._numbers)
        offsets = dict(offset_by_partition)

        def write() -> None:
            with self._guard:
                if number > self._written_number:
                    write_offsets(self._disk, self._path, offsets)
                    self._written_number = number

        return write
