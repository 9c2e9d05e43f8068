"""Cold data, read by a thread: a range outside the page cache must not stall the event loop.

The loop calls `needs_thread` before it sends a part of a file. Cold parts go through `fetch` on a
thread; when that returns they are in the page cache, and the loop sends them as usual. Cold pages
are dropped once they are sent, so that a consumer of old data does not evict the recent data that
the other consumers read.
"""

from typing import Final

from ottla.environment.disk import File
from ottla.runtime.page_cache import advise_done, advise_sequential, is_cached, read_cached

STEP_BYTES: Final = 1 << 20
"""How much is read at once: no more than this is held besides the page cache."""


def needs_thread(file: File, position: int, size_bytes: int) -> bool:
    """Tell, without waiting for the disk, whether sending this would wait for it."""
    try:
        return not is_cached(file, position, size_bytes)
    except OSError:  # as it is with a file that the kernel does not have
        return False


def read_hot(file: File, position: int, size_bytes: int) -> bytearray | None:
    """Return these bytes unless that would wait for the disk, or cannot be done."""
    try:
        return read_cached(file, position, size_bytes)
    except OSError:
        return None


def fetch(file: File, position: int, size_bytes: int) -> None:
    """Bring a part of a file into the page cache. Blocks: to be called on a thread."""
    advise_sequential(file, position, size_bytes)
    end = position + size_bytes
    while position < end:
        got = len(file.read_at(position, min(STEP_BYTES, end - position)))
        if got == 0:
            return
        position += got


def give_back(file: File, position: int, size_bytes: int) -> None:
    """Let the kernel drop a part that was cold, and has been sent."""
    advise_done(file, position, size_bytes)
