"""Making a log durable: handed out by the log, run where blocking does no harm, brought back."""

from collections.abc import Iterable
from contextlib import suppress

from ottla.environment.disk import Disk
from ottla.storage.segment import Segment


class Flush:
    """The files to sync, and the offset up to which the log is durable once that is done.

    A sync that fails is never tried again, here or later: the kernel may have dropped the pages
    and would report success. The failure is kept for the log, which then goes offline.
    """

    __slots__ = ("_directory", "_disk", "_files", "_indexes", "cut_count", "end_offset", "failure")

    def __init__(
        self,
        disk: Disk,
        directory: str,
        end_offset: int,
        cut_count: int,
        segments: Iterable[Segment],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._files = [segment.file for segment in segments]
        self._indexes = [index for segment in segments for index in segment.indexes]
        self.end_offset = end_offset
        self.cut_count = cut_count
        self.failure: OSError | None = None

    def run(self) -> None:
        """Sync every file, and the directory that names them. Raises nothing."""
        try:
            for file in self._files:
                file.sync()
            for index in self._indexes:
                with suppress(FileNotFoundError):  # not made yet, or retention was faster
                    index.sync()
            self._disk.sync_directory(self._directory)
        except OSError as error:
            self.failure = error
