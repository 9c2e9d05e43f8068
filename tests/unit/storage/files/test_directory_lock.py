"""One broker per log dir; a log dir with a failed disk is skipped."""

import errno

import pytest

from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.directory_lock import FolderInUseError
from ottla.storage.log_dirs.log_dirs import LogDirs


def test_folders_are_made_and_locked_until_they_are_given_back() -> None:
    disk = SimulatedDisk()
    with LogDirs(disk, ["/a", "/b"]).lock():
        with pytest.raises(FolderInUseError, match="/b is in use"):
            LogDirs(disk, ["/c", "/b"]).lock()
        LogDirs(disk, ["/c"]).lock().close()  # the failed attempt has kept no lock
    LogDirs(disk, ["/a", "/b"]).lock().close()
    assert disk.exists("/a/.lock")


def test_a_lock_goes_with_the_process() -> None:
    disk = SimulatedDisk()
    locks = LogDirs(disk, ["/a"]).lock()
    disk.kill()
    LogDirs(disk, ["/a"]).lock().close()
    locks.close()


@pytest.mark.parametrize("file", ["/a", "/a/.lock", "/a/meta.properties"])
def test_a_folder_whose_disk_fails_is_offline_and_the_others_are_taken(file: str) -> None:
    disk = SimulatedDisk()
    LogDirs(disk, ["/a", "/b"]).lock().close()
    disk.create_file("/a/meta.properties").close()
    disk.faults.fail_on(under=file, error=errno.EIO)
    dirs = LogDirs(disk, ["/a", "/b"])
    with dirs.lock():
        assert dirs.online_paths == ("/b",)
        with pytest.raises(FolderInUseError, match="/b is in use"):
            LogDirs(disk, ["/b"]).lock()


def test_without_any_folder_that_works_nothing_is_taken() -> None:
    disk = SimulatedDisk()
    disk.faults.fail_on(under="/", error=errno.EIO)
    with pytest.raises(OSError, match="/a"):
        LogDirs(disk, ["/a", "/b"]).lock()


def test_a_disk_that_is_full_has_not_failed() -> None:
    disk = SimulatedDisk()
    disk.faults.fail_on(under="/b", error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        LogDirs(disk, ["/a", "/b"]).lock()
