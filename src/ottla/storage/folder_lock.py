"""One broker per log folder: who has it holds the lock on its `.lock` file, as Kafka does."""

import posixpath
from collections.abc import Iterable
from contextlib import ExitStack, closing

from ottla.environment.disk import Disk, File
from ottla.storage.folder_names import LOCK_FILE


class FolderInUseError(OSError):
    """Somebody else uses a log folder; the only argument is a sentence that says which."""


def lock_folders(disk: Disk, paths: Iterable[str]) -> ExitStack:
    """Take these folders, made if they are missing, until the stack is closed or the process ends.

    Raises FolderInUseError, and has taken none, if somebody has one of them.
    """
    with ExitStack() as locks:
        for path in paths:
            locks.enter_context(closing(_lock(disk, path)))
        return locks.pop_all()


def _lock(disk: Disk, path: str) -> File:
    if not disk.exists(path):
        disk.make_directory(path)
        disk.sync_directory(posixpath.dirname(path) or ".")
    try:
        return disk.lock_file(posixpath.join(path, LOCK_FILE))
    except BlockingIOError:
        raise FolderInUseError(
            f"{path} is in use: another broker has it open, stop that one or take another folder"
        ) from None
