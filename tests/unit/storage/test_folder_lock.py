"""One broker per folder."""

import pytest

from ottla.simulation.disk import SimulatedDisk
from ottla.storage.folder_lock import FolderInUseError, lock_folders


def test_folders_are_made_and_locked_until_they_are_given_back() -> None:
    disk = SimulatedDisk()
    with lock_folders(disk, ["/a", "/b"]):
        with pytest.raises(FolderInUseError, match="/b is in use"):
            lock_folders(disk, ["/c", "/b"])
        lock_folders(disk, ["/c"]).close()  # none was taken by who did not get all
    lock_folders(disk, ["/a", "/b"]).close()
    assert disk.exists("/a/.lock")


def test_a_lock_goes_with_the_process() -> None:
    disk = SimulatedDisk()
    locks = lock_folders(disk, ["/a"])
    disk.kill()
    lock_folders(disk, ["/a"]).close()
    locks.close()
