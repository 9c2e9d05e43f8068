"""A file that exists while a process is ready, for processes that wait for it."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write a file atomically: readers see the new content or the old content."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def remove(path: Path) -> None:
    """Remove the file, if it exists."""
    path.unlink(missing_ok=True)
