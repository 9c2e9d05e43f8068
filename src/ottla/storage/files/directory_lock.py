"""One broker per log folder: who has it holds the lock on its `.lock` file, as Kafka does."""

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
    """Somebody else uses a log folder; the only argument is a sentence that says which."""


def lock_folder(disk: Disk, path: str) -> File:
    """Take a folder, made if it is missing, until the file is closed or the process ends.

    Raises FolderInUseError if somebody has it, and OSError if its disk cannot be used.
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
        with suppress(CorruptCheckpointError):  # what it says is for others to judge
            read_meta_properties(disk, posixpath.join(path, META_PROPERTIES_FILE))
    except OSError:
        lock.close()
        raise
    return lock
