"""Small text files, replaced as a whole: readers see the old content or the new content.

A broker's own files go through `ottla.storage.files.checkpoints`, which takes the disk as an
argument.
"""

import os
from pathlib import Path


def write_atomically(path: Path, text: str, *, is_durable: bool = False) -> None:
    """Replace a file, and create its directory if it is missing.

    A durable write survives a power failure once this returns.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    partial.write_text(text, encoding="utf-8")
    if is_durable:
        sync(partial)
    partial.replace(path)
    if is_durable:
        sync(path.parent)


def remove(path: Path) -> None:
    """Remove a file, if it exists."""
    path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
