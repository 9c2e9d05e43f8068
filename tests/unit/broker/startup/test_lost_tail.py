"""Detect that the tail of a log may be lost: unclean stop, then another boot of the machine."""

import posixpath

import pytest

from ottla.broker.startup.lost_tail import BOOT_ID_FILE, LostTail
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.randomness import dice
from ottla.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    write_atomically,
    write_clean_shutdown,
)

FOLDERS = ("/one", "/two")


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk(dice(1, "disk"))
    for folder in FOLDERS:
        disk.make_directory(folder)
    disk.sync_directory("/")
    return disk


def stop_cleanly(disk: SimulatedDisk, *folders: str) -> None:
    for folder in folders:
        write_clean_shutdown(disk, posixpath.join(folder, CLEAN_SHUTDOWN_FILE), 7)


def test_without_a_mark_the_loss_in_a_directory_is_unknown(disk: SimulatedDisk) -> None:
    assert LostTail(disk, FOLDERS, "first").may_be_lost()


def test_a_process_that_dies_loses_nothing(disk: SimulatedDisk) -> None:
    LostTail(disk, FOLDERS, "first").note_known()
    disk.kill()
    assert not LostTail(disk, FOLDERS, "first").may_be_lost()


def test_a_machine_that_has_started_anew_may_have_lost_something(disk: SimulatedDisk) -> None:
    LostTail(disk, FOLDERS, "first").note_known()
    disk.crash("lose_all")
    assert LostTail(disk, FOLDERS, "second").may_be_lost()


def test_that_is_said_until_it_is_known(disk: SimulatedDisk) -> None:
    LostTail(disk, FOLDERS, "first").note_known()
    for _ in range(2):  # killed before it registered with the cluster
        assert LostTail(disk, FOLDERS, "second").may_be_lost()
    LostTail(disk, FOLDERS, "second").note_known()
    assert not LostTail(disk, FOLDERS, "second").may_be_lost()


def test_a_clean_stop_has_lost_nothing_on_any_boot(disk: SimulatedDisk) -> None:
    LostTail(disk, FOLDERS, "first").note_known()
    stop_cleanly(disk, *FOLDERS)
    assert not LostTail(disk, FOLDERS, "second").may_be_lost()


def test_one_folder_that_was_not_closed_is_enough(disk: SimulatedDisk) -> None:
    stop_cleanly(disk, FOLDERS[0])
    assert LostTail(disk, FOLDERS, "second").may_be_lost()


def test_without_a_boot_id_only_a_clean_stop_counts(disk: SimulatedDisk) -> None:
    LostTail(disk, FOLDERS, None).note_known()
    assert LostTail(disk, FOLDERS, None).may_be_lost()
    stop_cleanly(disk, *FOLDERS)
    assert not LostTail(disk, FOLDERS, None).may_be_lost()


@pytest.mark.parametrize("name", [BOOT_ID_FILE, CLEAN_SHUTDOWN_FILE])
def test_what_cannot_be_read_says_nothing(disk: SimulatedDisk, name: str) -> None:
    for folder in FOLDERS:
        write_atomically(disk, posixpath.join(folder, name), b"\xff" * 2000)
    assert LostTail(disk, FOLDERS, "first").may_be_lost()
