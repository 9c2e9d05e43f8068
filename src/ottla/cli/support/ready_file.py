"""A file that is there while something is ready, for whoever waits for it."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that whoever sees it sees all of it."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def remove(path: Path) -> None:
    """Take the file away, if it is there."""
    path.unlink(missing_ok=True)
