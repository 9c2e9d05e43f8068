"""Reads cold data in a thread: a range outside the page cache must not stall the event loop.

`sendfile` of a cold range blocks the whole loop until the disk has responded. So the loop calls
`needs_thread` before it sends a part of a file. Cold parts go through `fetch` on a thread; when
that returns they are in the page cache, and the loop sends them as usual. Cold pages are dropped
once they are sent: otherwise a consumer of old data would evict the recent data that others read.

Whether a range is cold is found by reads that may not wait (RWF_NOWAIT), not by mincore: such a
read tests exactly the condition, including other reasons to block, and the standard library has it,
while mincore needs a mapping and raw addresses and is no faster.
"""

import errno
import mmap
import os
from typing import Final

from ottla.environment.disk import File

# The kernel reads ahead in windows of 128 KiB and evicts in the order of reading, so a cold
# stretch within a range is seldom shorter than this. A shorter one costs one short read.
SAMPLE_INTERVAL_BYTES = 64 * 1024
_SAMPLE = [bytearray(1)]  # the content is ignored
STEP_BYTES: Final = 1 << 20
"""The size of one read, and the limit of memory besides the page cache."""


def is_cached(file: File, position: int, size_bytes: int) -> bool:
    """Return, without waiting for the disk, whether all of this range is in the page cache.

    Tests one byte every `SAMPLE_INTERVAL_BYTES` and the last byte, a microsecond or two each: ask
    for the piece that is sent next, not for a segment. The test may start to read cold pages. Where
    the filesystem cannot report it (overlayfs, tmpfs) the result is True: sending at once is nearly
    always right there, and otherwise as slow as without the test.
    """
    descriptor = file.fileno()
    last = position + size_bytes - 1
    try:
        for sample in range(position, last, SAMPLE_INTERVAL_BYTES):
            os.preadv(descriptor, _SAMPLE, sample, os.RWF_NOWAIT)
        if size_bytes > 0:
            os.preadv(descriptor, _SAMPLE, last, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    return True


def read_cached(file: File, position: int, size_bytes: int) -> bytearray | None:
    """Return these bytes if they can all be read without waiting for the disk, else None."""
    data = bytearray(size_bytes)
    try:
        got = os.preadv(file.fileno(), [data], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        got = os.preadv(file.fileno(), [data], position)
    return data if got == size_bytes else None


def advise_sequential(file: File, position: int, size_bytes: int) -> None:
    """Announce that this range will be read from front to back: the kernel reads further ahead.

    Linux applies it to the whole open file, and to all of its readers.
    """
    if size_bytes > 0:
        os.posix_fadvise(file.fileno(), position, size_bytes, os.POSIX_FADV_SEQUENTIAL)


def advise_done(file: File, position: int, size_bytes: int) -> None:
    """Announce that this range will not be read again: its pages may be evicted first.

    For ranges that were cold before they were read; a hot range is still needed by other readers.
    Dirty pages stay. The kernel drops whole pages only, so the range begins with the page in which
    the range before it ended.
    """
    if size_bytes > 0:  # which the kernel would take for "to the end of the file"
        start = position - position % mmap.PAGESIZE
        size_bytes += position - start
        os.posix_fadvise(file.fileno(), start, size_bytes, os.POSIX_FADV_DONTNEED)


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
