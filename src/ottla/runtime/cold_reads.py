"""Reads cold data in a thread: a range outside the page cache must not stall the event loop.

The loop calls `needs_thread` before it sends a part of a file. Cold parts go through `fetch` on a
thread; when that returns they are in the page cache, and the loop sends them as usual. Cold pages
are dropped once they are sent, so that a consumer of old data does not evict recent data that other
consumers read.
"""

from typing import Final

from ottla.environment.disk import File
from ottla.runtime.page_cache import advise_done, advise_sequential, is_cached, read_cached

STEP_BYTES: Final = 1 << 20
"""The size of one read, and the limit of memory besides the page cache."""


def needs_thread(file: File, position: int, size_bytes: int) -> bool:
    """Return, without waiting for the disk, whether sending this would wait for it."""
    try:
        return not is_cached(file, position, size_bytes)
    except OSError:  # a file that the kernel does not have, as in a simulation
        return False


def read_hot(file: File, position: int, size_bytes: int) -> bytearray | None:
    """Return these bytes, or None if that would wait for the disk or is not supported."""
    try:
        return read_cached(file, position, size_bytes)
    except OSError:
        return None


def fetch(file: File, position: int, size_bytes: int) -> None:
    """Read a part of a file into the page cache. Blocks: call it on a thread."""
    advise_sequential(file, position, size_bytes)
    end = position + size_bytes
    while position < end:
        got = len(file.read_at(position, min(STEP_BYTES, end - position)))
        if got == 0:
            return
        position += got


def give_back(file: File, position: int, size_bytes: int) -> None:
    """Let the kernel drop a formerly cold part after it was sent."""
    advise_done(file, position, size_bytes)
