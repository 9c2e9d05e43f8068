"""What the page cache holds, and advice to it: so that a cold read stalls nobody.

`sendfile` of a cold range blocks the whole event loop until the disk has answered. So the loop
asks `is_cached` first and hands what is cold to a thread. The answer comes from reads that may not
wait (RWF_NOWAIT), not from mincore: a read that may not wait is the very question, it knows what
else would block, and the standard library has it, while mincore wants a mapping and raw addresses
and is no faster.

A reader far behind the end calls `advise_sequential` once and `advise_done` behind itself: else a
day of old data would push out the minutes that everybody else is reading.
"""

import errno
import mmap
import os

from ottla.environment.disk import File

# The kernel reads ahead in windows of 128 KiB and forgets in the order of reading, so a cold
# stretch within a range is seldom shorter than this; one that is costs one short read.
SAMPLE_INTERVAL_BYTES = 64 * 1024

_SAMPLE = [bytearray(1)]  # read into and never looked at


def is_cached(file: File, position: int, size_bytes: int) -> bool:
    """Tell, without waiting for the disk, whether all of this range is there to be read.

    Looks at one byte every `SAMPLE_INTERVAL_BYTES` and at the last one, a microsecond or two
    each, so ask for the piece that is sent next and not for a segment. May start to read what
    is cold. Where the filesystem cannot tell (overlayfs, tmpfs) the answer is yes: sending at once
    is right nearly always, and where it is not it is as slow as it would be without asking.
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
    """Return these bytes if all of them can be had without waiting for the disk, else None."""
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
    """Say that this range will be read from front to back: the kernel reads further ahead.

    Linux takes it for the whole open file, and for all who read through it.
    """
    if size_bytes > 0:
        os.posix_fadvise(file.fileno(), position, size_bytes, os.POSIX_FADV_SEQUENTIAL)


def advise_done(file: File, position: int, size_bytes: int) -> None:
    """Say that this range will not be read again: its pages may go, first of all.

    For a range that was cold before it was read; from a hot one it would take what others still
    read. Data that is not on disk yet stays. The kernel drops whole pages only, so the range
    begins with the page that the range before it ended in.
    """
    if size_bytes > 0:  # which the kernel would take for "to the end of the file"
        start = position - position % mmap.PAGESIZE
        size_bytes += position - start
        os.posix_fadvise(file.fileno(), start, size_bytes, os.POSIX_FADV_DONTNEED)
