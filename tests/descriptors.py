"""The open files of this process."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def is_open(path: Path) -> bool:
    """Return whether this process has a descriptor of a file."""
    return any(link.resolve() == path for link in Path("/proc/self/fd").iterdir())


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """Prevent the process from opening more descriptors."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.dup(0)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
