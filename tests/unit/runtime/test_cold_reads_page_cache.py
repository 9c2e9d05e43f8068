"""A script plays the kernel where its behaviour is too unreliable for a real test."""

import ctypes
import errno
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.runtime.cold_reads import (
    SAMPLE_INTERVAL_BYTES,
    advise_done,
    advise_sequential,
    is_cached,
    read_cached,
)
from ottla.runtime.disk import KernelDisk, KernelFile

PAGE = mmap.PAGESIZE
SIZE_BYTES = 4 * SAMPLE_INTERVAL_BYTES


@pytest.fixture
def file(tmp_path: Path) -> Iterator[KernelFile]:
    file = KernelDisk().create_file(str(tmp_path / "file"))
    file.write_at(0, bytes(range(256)) * (SIZE_BYTES // 256))
    yield file
    file.close()


def script_reads(monkeypatch: pytest.MonkeyPatch, answer: Callable[[int], int]) -> list[int]:
    """Replace preadv by a function of the position; return the list of read positions."""
    asked: list[int] = []

    def preadv(descriptor: int, buffers: list[bytearray], position: int, flags: int) -> int:
        assert flags == os.RWF_NOWAIT
        asked.append(position)
        return answer(position)

    monkeypatch.setattr(os, "preadv", preadv)
    return asked


def script_advice(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    given: list[tuple[int, int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _fd, *advice: given.append(advice))
    return given


def resident_pages(file: KernelFile) -> int:
    """Count the file's pages in the page cache with mincore, as an independent check."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    pages = ctypes.create_string_buffer(SIZE_BYTES // PAGE)
    address = libc.mmap(None, SIZE_BYTES, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    assert libc.mincore(address, SIZE_BYTES, pages) == 0
    assert libc.munmap(address, SIZE_BYTES) == 0
    return sum(page & 1 for page in pages.raw)


def can_tell(file: KernelFile) -> bool:
    try:
        os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
    except OSError as error:
        return error.errno != errno.EOPNOTSUPP
    return True


def test_what_was_just_written_is_cached(file: KernelFile) -> None:
    assert is_cached(file, 0, SIZE_BYTES)
    assert is_cached(file, 12_345, 1)


def test_an_evicted_range_is_cold(file: KernelFile) -> None:
    if not can_tell(file):
        pytest.skip("the filesystem of the temporary directory does not support RWF_NOWAIT")
    file.sync()
    advise_done(file, 0, SIZE_BYTES)
    assert resident_pages(file) == 0
    assert not is_cached(file, 0, SIZE_BYTES)
    assert file.read_at(0, SIZE_BYTES) == bytes(range(256)) * (SIZE_BYTES // 256)
    assert is_cached(file, 0, SIZE_BYTES)


def test_a_read_that_would_wait_means_cold(
    file: KernelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last_interval_is_cold(position: int) -> int:
        if position >= 3 * SAMPLE_INTERVAL_BYTES:
            raise BlockingIOError
        return 1

    script_reads(monkeypatch, last_interval_is_cold)
    assert is_cached(file, 0, 3 * SAMPLE_INTERVAL_BYTES)
    assert not is_cached(file, 0, 3 * SAMPLE_INTERVAL_BYTES + 1)
    assert not is_cached(file, 0, SIZE_BYTES)


def test_every_interval_and_the_last_byte_are_looked_at(
    file: KernelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = script_reads(monkeypatch, lambda _position: 1)
    assert is_cached(file, 1000, 2 * SAMPLE_INTERVAL_BYTES + 10)
    second, third = 1000 + SAMPLE_INTERVAL_BYTES, 1000 + 2 * SAMPLE_INTERVAL_BYTES
    assert asked == [1000, second, third, third + 9]
    asked.clear()
    assert is_cached(file, 5, 1)
    assert asked == [5]
    asked.clear()
    assert is_cached(file, 5, 0)
    assert asked == []


def test_a_filesystem_that_cannot_tell_counts_as_cached(
    file: KernelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(_position: int) -> int:
        raise OSError(errno.EOPNOTSUPP, "not here")

    asked = script_reads(monkeypatch, unsupported)
    assert is_cached(file, 0, SIZE_BYTES)
    assert asked == [0]


def test_a_disk_that_fails_is_not_taken_for_a_cold_one(
    file: KernelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_position: int) -> int:
        raise OSError(errno.EIO, "broken")

    script_reads(monkeypatch, broken)
    with pytest.raises(OSError, match="broken"):
        is_cached(file, 0, SIZE_BYTES)


def test_advice_behind_a_reader_leaves_no_page_between_two_ranges(
    file: KernelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = script_advice(monkeypatch)
    advise_done(file, 0, PAGE + 100)
    advise_done(file, PAGE + 100, PAGE)
    assert given == [
        (0, PAGE + 100, os.POSIX_FADV_DONTNEED),
        (PAGE, PAGE + 100, os.POSIX_FADV_DONTNEED),
    ]


def test_an_empty_range_is_not_the_rest_of_the_file(
    file: KernelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = script_advice(monkeypatch)
    advise_done(file, 100, 0)
    advise_sequential(file, 100, 0)
    assert given == []


def test_sequential_advice_names_the_range(
    file: KernelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = script_advice(monkeypatch)
    advise_sequential(file, 100, 5000)
    assert given == [(100, 5000, os.POSIX_FADV_SEQUENTIAL)]


def test_advice_loses_nothing_that_is_not_on_disk_yet(file: KernelFile) -> None:
    advise_sequential(file, 0, SIZE_BYTES)
    file.write_at(10, b"dirty")
    advise_done(file, 0, SIZE_BYTES)
    assert file.read_at(10, 5) == b"dirty"


def test_bytes_that_are_there_are_read_at_once(file: KernelFile) -> None:
    assert read_cached(file, 10, 300) == (bytes(range(256)) * 2)[10:310]


def test_of_bytes_that_are_not_all_there_none_is_read(file: KernelFile) -> None:
    assert read_cached(file, SIZE_BYTES - 10, 11) is None


def test_a_read_that_would_wait_reads_nothing(
    file: KernelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def would_wait(_position: int) -> int:
        raise BlockingIOError(errno.EAGAIN, "would wait")

    asked = script_reads(monkeypatch, would_wait)
    assert read_cached(file, 10, 300) is None
    assert asked == [10]
