"""Renames the directory of an open log."""

import posixpath

from ottla.storage.log.log import PartitionLog


def relocate(log: PartitionLog, directory: str) -> None:
    """Update the paths of a log and of all its files after a rename of its directory."""
    for segment in log.segments:
        old = segment.path
        segment.path = _below(directory, old)
        log.files.rename(old, segment.path)
        for index in segment.indexes:
            index.path = _below(directory, index.path)
    log.epochs.path = _below(directory, log.epochs.path)
    log.producers.snapshots.directory = directory
    log.directory = directory


def _below(directory: str, path: str) -> str:
    return posixpath.join(directory, posixpath.basename(path))
