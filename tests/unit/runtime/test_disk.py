"""Kernel behaviour outside the contract of all disks: partial I/O, descriptors, modes."""

import errno
import os
from pathlib import Path

import pytest

from ottla.runtime.disk import KernelDisk, KernelFile


@pytest.fixture
def file(tmp_path: Path) -> KernelFile:
    return KernelDisk().create_file(str(tmp_path / "file"))


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_a_write_the_kernel_cuts_short_is_continued(
    file: KernelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:3], at))
    for data in (b"0123456789", bytearray(b"0123456789"), memoryview(b"0123456789")):
        file.truncate(0)
        file.write_at(5, data)
        assert file.read_at(5, 100) == b"0123456789"


def test_a_write_that_fails_in_its_middle_says_so(
    file: KernelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def fill_up(descriptor: int, data: bytes, position: int) -> int:
        if position > 0:
            raise OSError(errno.ENOSPC, "full")
        return pwrite(descriptor, data[:4], position)

    monkeypatch.setattr(os, "pwrite", fill_up)
    with pytest.raises(OSError, match="full"):
        file.write_at(0, b"0123456789")
    assert file.read_at(0, 100) == b"0123"


def test_a_kernel_that_writes_nothing_is_not_asked_forever(
    file: KernelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda _fd, _data, _at: 0)
    with pytest.raises(OSError, match="takes no more"):
        file.write_at(0, b"x")


def test_a_read_the_kernel_cuts_short_is_continued(
    file: KernelFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_at(0, b"0123456789")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 3), at))
    assert file.read_at(1, 8) == b"12345678"
    assert file.read_at(4, 100) == b"456789"


def test_an_unreferenced_file_is_closed(tmp_path: Path) -> None:
    file = KernelDisk().create_file(str(tmp_path / "file"))
    descriptor = file.fileno()
    assert is_open(descriptor)
    del file
    assert not is_open(descriptor)


def test_a_closed_file_does_not_close_a_reused_descriptor(tmp_path: Path) -> None:
    first = KernelDisk().create_file(str(tmp_path / "first"))
    descriptor = first.fileno()
    first.close()
    second = KernelDisk().create_file(str(tmp_path / "second"))
    assert second.fileno() == descriptor
    first.close()
    del first
    assert is_open(second.fileno())


def test_no_child_process_inherits_a_file(file: KernelFile) -> None:
    assert not os.get_inheritable(file.fileno())


def test_a_mapping_keeps_no_descriptor_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full").write_bytes(b"hello")
    (tmp_path / "empty").write_bytes(b"")
    opened: list[int] = []
    closed: list[int] = []
    real_open, real_close = os.open, os.close

    def recording_open(path: str, flags: int) -> int:
        opened.append(real_open(path, flags))
        return opened[-1]

    def recording_close(descriptor: int) -> None:
        closed.append(descriptor)
        real_close(descriptor)

    monkeypatch.setattr(os, "open", recording_open)
    monkeypatch.setattr(os, "close", recording_close)
    disk = KernelDisk()
    views = [disk.map_file(str(tmp_path / name)) for name in ("full", "empty")]
    assert [bytes(view) for view in views] == [b"hello", b""]
    assert opened
    assert opened == closed


def test_log_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        disk = KernelDisk()
        disk.make_directory(str(tmp_path / "data" / "topic-0"))
        disk.create_file(str(tmp_path / "data" / "topic-0" / "file"))
    finally:
        os.umask(umask)
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data" / "topic-0").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "data" / "topic-0" / "file").stat().st_mode & 0o777 == 0o600


def test_syncing_reaches_the_kernel_and_its_errors_reach_the_caller(
    file: KernelFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def record(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(os, "fdatasync", record)
    monkeypatch.setattr(os, "fsync", record)
    with pytest.raises(OSError, match="lost"):
        file.sync()
    with pytest.raises(OSError, match="lost"):
        KernelDisk().sync_directory(str(tmp_path))
    assert synced == [str(tmp_path / "file"), str(tmp_path)]


def test_a_disk_that_cannot_say_whether_a_file_is_there_does_not_say_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EIO, "unreadable")

    monkeypatch.setattr(Path, "stat", broken)
    with pytest.raises(OSError, match="unreadable"):
        KernelDisk().exists(str(tmp_path))


def test_free_bytes_come_from_the_filesystem(tmp_path: Path) -> None:
    statistics = os.statvfs(tmp_path)
    most = statistics.f_blocks * statistics.f_frsize
    assert 0 < KernelDisk().free_bytes(str(tmp_path)) <= most
