"""Detects that the ends of logs may be missing: an unclean stop, then a restart of the machine."""

import posixpath
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ottla.environment.disk import Disk
from ottla.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    CorruptCheckpointError,
    read_clean_shutdown,
    read_text,
    write_atomically,
)

BOOT_ID_FILE: Final = ".ottla_boot_id"
_BYTES_MAX: Final = 1024


class LostTail:
    """Detects whether the ends of the logs may be missing since the broker last ran.

    Unsynced writes survive the death of the broker, but not of its machine. So a broker has lost
    nothing if it was stopped cleanly, or if the machine has not restarted since. For that the log
    dirs hold the id of the machine's start. It is written only when the cluster knows of earlier
    losses: a broker that is killed before reports them again.

    Read the marks before the logs are opened.
    """

    def __init__(self, disk: Disk, folders: Sequence[str], boot_id: str | None) -> None:
        self._disk = disk
        self._folders = folders
        self._boot_id = boot_id

    def may_be_lost(self) -> bool:
        """Return whether one of the log dirs may have lost records."""
        return any(
            not self._was_clean(log_dir) and not self._is_same_boot(log_dir)
            for log_dir in self._folders
        )

    def note_known(self) -> None:
        """Record on the disks, if possible, that the cluster knows of the loss."""
        if self._boot_id is not None:
            for log_dir in self._folders:
                with suppress(OSError):
                    path = posixpath.join(log_dir, BOOT_ID_FILE)
                    write_atomically(self._disk, path, self._boot_id.encode())

    def _was_clean(self, log_dir: str) -> bool:
        path = posixpath.join(log_dir, CLEAN_SHUTDOWN_FILE)
        try:
            return read_clean_shutdown(self._disk, path) is not None
        except (CorruptCheckpointError, OSError):
            return False

    def _is_same_boot(self, log_dir: str) -> bool:
        path = posixpath.join(log_dir, BOOT_ID_FILE)
        try:
            noted = read_text(self._disk, path, _BYTES_MAX)
        except (CorruptCheckpointError, OSError):
            return False
        return noted is not None and noted == self._boot_id
