"""One broker per log dir: it holds the lock on the `.lock` file, as in Kafka."""

import posixpath
from contextlib import suppress

from ottla.environment.disk import Disk, File
from ottla.storage.files.checkpoints import (
    META_PROPERTIES_FILE,
    CorruptCheckpointError,
    read_meta_properties,
)
from ottla.storage.files.directory_names import LOCK_FILE


class FolderInUseError(OSError):
    """Another process uses a log dir; the only argument is a sentence that names it."""


def lock_folder(disk: Disk, path: str) -> File:
    """Lock a log dir, created if missing, until the file is closed or the process ends.

    Raises FolderInUseError if it is locked, and OSError if its disk cannot be used.
    """
    if not disk.exists(path):
        disk.make_directory(path)
        disk.sync_directory(posixpath.dirname(path) or ".")
    try:
        lock = disk.lock_file(posixpath.join(path, LOCK_FILE))
    except BlockingIOError:
        raise FolderInUseError(
            f"{path} is in use: another broker has it open, stop that one or take another folder"
        ) from None
    try:
        with suppress(CorruptCheckpointError):  # its content is validated elsewhere
            read_meta_properties(disk, posixpath.join(path, META_PROPERTIES_FILE))
    except OSError:
        lock.close()
        raise
    return lock
