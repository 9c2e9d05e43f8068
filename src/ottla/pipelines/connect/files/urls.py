"""Local directories as URLs for Spark."""

from pathlib import Path


def local_url(path: Path) -> str:
    """Return a path as Spark takes it: nothing is escaped, as in `file:///out put/day=mon`."""
    return f"file://{path}"
