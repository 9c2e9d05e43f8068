"""What a folder says of its last stop, and goes on saying while its logs are being opened.

    .kafka_cleanshutdown       every log was closed
    .ottla_opening             every log was closed, and they are being opened since
    orders-0/.ottla_unopened   the same of one log, which a full disk did not let us open

Each is gone before anything is appended that it would speak of. An opening that is interrupted may
leave indexes that are not durable, so the next one goes through everything. But offsets that are
missing between segments have not been lost where all was closed before.
"""

import posixpath
from contextlib import closing
from typing import Final, NamedTuple

from ottla.environment.disk import Disk
from ottla.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CorruptCheckpointError,
    read_clean_shutdown,
    remove_durably,
)
from ottla.storage.log.offline_on_error import is_refusal

OPENING_FILE: Final = ".ottla_opening"
UNOPENED_FILE: Final = ".ottla_unopened"


class LastStop(NamedTuple):
    """Whether all was closed and not touched since, and whether nothing was appended since."""

    is_clean: bool
    keeps_gaps: bool


def begin_opening(disk: Disk, folder: str, notes: list[str]) -> LastStop:
    """Say how the folder was left; the next crash does not find the mark of a clean stop."""
    clean, opening = (posixpath.join(folder, name) for name in (CLEAN_SHUTDOWN_FILE, OPENING_FILE))
    try:
        is_clean = read_clean_shutdown(disk, clean) is not None
    except CorruptCheckpointError as error:
        notes.append(f"{error}: taken for an unclean stop")
        is_clean = False
        disk.remove(clean)
    if is_clean:
        disk.rename(clean, opening)
    disk.sync_directory(folder)
    return LastStop(is_clean, keeps_gaps=disk.exists(opening))


def end_opening(disk: Disk, folder: str) -> None:
    """Take the mark away, before anything is appended."""
    path = posixpath.join(folder, OPENING_FILE)
    if disk.exists(path):
        remove_durably(disk, path)


class UnopenedMark:
    """Says of one log that it was closed, and could not be opened since."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = posixpath.join(directory, UNOPENED_FILE)

    @property
    def is_there(self) -> bool:
        """Whether the log says so."""
        return self._disk.exists(self._path)

    def put(self) -> None:
        """Let it say so, if the disk has the room for that."""
        try:
            with closing(self._disk.create_file(self._path)):
                self._disk.sync_directory(self._directory)
        except OSError as error:
            if not is_refusal(error):
                raise

    def remove(self) -> None:
        """Take the mark away, before anything is appended."""
        remove_durably(self._disk, self._path)
