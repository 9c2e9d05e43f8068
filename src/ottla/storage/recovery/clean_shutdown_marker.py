"""Marker files for a clean shutdown, which survive an interrupted start.

    .kafka_cleanshutdown       every log was closed
    .ottla_opening             every log was closed, and a start has begun to open them
    orders-0/.ottla_unopened   the same for one log, which a full disk kept from being opened

A marker is removed before the first append to a log that it covers. An interrupted start may leave
indexes that are not durable, so the next start scans every segment. But if all logs were closed
before, missing offsets between segments are no data loss.
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
    """Return how the log dir was left, and rename the clean shutdown marker for the start."""
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
    """Remove the marker, before any append."""
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
        """Write the marker, if the disk has space."""
        try:
            with closing(self._disk.create_file(self._path)):
                self._disk.sync_directory(self._directory)
        except OSError as error:
            if not is_refusal(error):
                raise

    def remove(self) -> None:
        """Remove the marker, before any append."""
        remove_durably(self._disk, self._path)
