"""The kernel's view of this process and this boot: open files, memory, limits."""

import os
import resource
import sys
from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_DESCRIPTORS: Final = "/proc/self/fd"
_MEMORY: Final = "/proc/self/statm"
_MEMORY_BYTES_MAX: Final = 200


def boot_id() -> str | None:
    """Return an id that changes at every start of the machine; None if it is unknown."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def descriptors_max() -> int:
    """Return the soft limit, which the kernel enforces."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def raise_descriptors_max() -> None:
    """Raise the soft limit to the hard one, as the JVM does; for processes of our own.

    The soft limit is often 1,024, for the sake of programs that call `select`. We do not.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_descriptor_count() -> int:
    """Return how many file descriptors are open; 0 where there is no /proc."""
    try:
        with os.scandir(_DESCRIPTORS) as found:
            return sum(1 for _ in found) - 1  # the listing has one open itself
    except OSError:
        return 0


def resident_bytes() -> int:
    """Return how much memory is in use; 0 where there is no /proc."""
    try:
        descriptor = os.open(_MEMORY, os.O_RDONLY)
    except OSError:
        return 0
    try:
        pages = int(os.read(descriptor, _MEMORY_BYTES_MAX).split()[1])
    finally:
        os.close(descriptor)
    return pages * os.sysconf("SC_PAGE_SIZE")
