"""Making a log durable: handed out by the log, run where blocking does no harm, brought back."""

import errno
import posixpath
from collections.abc import Iterable
from contextlib import suppress

from ottla.environment.disk import Disk
from ottla.model.identifiers import Offset
from ottla.storage.files.checkpoints import write_atomically
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.segments.segment import Segment


class Flush:
    """The files to sync, and the offset up to which the log is durable once that is done.

    A sync that fails is never tried again, here or later: the kernel may have dropped the pages
    and would report success. The failure is kept for the log, which then goes offline. That the
    leader epochs cannot be written, or that there is no descriptor for a file, loses nothing: it is
    a refusal, and the next flush tries again.
    """

    __slots__ = (
        "_disk",
        "_epochs_path",
        "_files",
        "_indexes",
        "cut_count",
        "end_offset",
        "epochs",
        "failure",
        "refusal",
    )

    def __init__(
        self,
        disk: Disk,
        epochs: LeaderEpochs,
        end_offset: Offset,
        cut_count: int,
        segments: Iterable[Segment],
    ) -> None:
        self._disk = disk
        self._epochs_path = epochs.path
        self._files = [segment.file for segment in segments]
        self._indexes = [index for segment in segments for index in segment.indexes]
        self.end_offset = end_offset
        self.cut_count = cut_count
        self.epochs = epochs.unwritten
        """The content of the leader epoch file after the flush, if it has to be written."""
        self.failure: OSError | None = None
        self.refusal: OSError | None = None

    def run(self) -> None:
        """Sync every file, and the directory that names them. Raises nothing."""
        try:
            for file in self._files:
                file.sync()
            for index in self._indexes:
                with suppress(FileNotFoundError):  # not created yet, or deleted by retention
                    index.sync()
            self._disk.sync_directory(posixpath.dirname(self._epochs_path))
        except OSError as error:
            # No descriptor for an index or the directory: that was not synced, and nothing is lost.
            is_unopened = error.errno in {errno.EMFILE, errno.ENFILE}
            self.failure, self.refusal = (None, error) if is_unopened else (error, None)
            return
        try:
            if self.epochs is not None:
                write_atomically(self._disk, self._epochs_path, self.epochs, suffix=".flushed.tmp")
        except OSError as error:
            self.refusal = error
