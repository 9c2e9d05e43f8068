"""Small files that are replaced atomically and survive a power failure; URLs of local paths."""

import json
import os
from pathlib import Path


def local_url(path: Path) -> str:
    """Return a path as Spark takes it: nothing is escaped, as in `file:///out put/day=mon`."""
    return f"file://{path}"


def write_json(path: Path, value: object) -> None:
    """Replace a small file, durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    with new.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
