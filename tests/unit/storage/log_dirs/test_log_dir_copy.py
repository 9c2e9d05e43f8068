"""Replica moves that meet retention, compaction, damage, full disks and failing disks."""

import errno

import pytest

from ottla.model.api_error import ApiError
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.files.directory_names import future_name
from ottla.storage.log.log import PartitionLog
from ottla.storage.log_dirs.log_dir_copy import LogDirCopy, finish_moves
from ottla.storage.log_dirs.log_dirs import LogDirs
from tests.log_building import NOW_MS, PARTITION, batch, contents, fill, tiny

TOPIC_ID = bytes(range(16))
MARK, OTHER_MARK = b"m" * 16, b"o" * 16


class Folders:
    """A partition with ten batches in /a, and an unfinished copy of it in /b."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.open()
        self.log = self.source.create(PARTITION, TOPIC_ID, tiny(), NOW_MS)
        fill(self.log, 10)
        self.begin()

    def open(self) -> None:
        self.dirs = LogDirs(self.disk, ("/a", "/b"))
        self.dirs.open(lambda _: tiny(), NOW_MS)
        finish_moves(self.dirs.dirs, OTHER_MARK)
        self.source, self.target = self.dirs.dirs

    def begin(self) -> None:
        name = future_name(PARTITION, MARK)
        assert name is not None
        made = self.target.make(name, PARTITION, TOPIC_ID, tiny(), NOW_MS)
        self.target.futures[PARTITION] = made
        self.move = LogDirCopy(PARTITION, self.source, self.target)

    def copy(self, steps: int = 1000) -> None:
        while steps and (step := self.move.begin()) is not None:
            step.run(NOW_MS)
            steps -= 1

    def finish(self) -> PartitionLog:
        self.copy()
        self.move.copy.flush(NOW_MS)
        for write in self.move.checkpoint():
            write()
        assert self.move.can_swap()
        self.move.swap(NOW_MS, MARK)
        for write in self.move.finish():
            write()
        moved = self.dirs.log_of(PARTITION)
        assert moved is not None
        return moved


def test_a_copy_is_the_log_batch_by_batch() -> None:
    folders = Folders()
    before = contents(folders.log)
    moved = folders.finish()
    assert contents(moved) == before
    assert moved.directory == f"/b/{PARTITION}"
    assert folders.log.is_offline
    fill(moved, 3)
    folders.target.close(NOW_MS, 1)
    folders.open()
    again = folders.dirs.log_of(PARTITION)
    assert again is not None
    assert again.end_offset == 13


def test_a_swap_copies_the_batches_written_after_the_last_step() -> None:
    folders = Folders()
    folders.copy()
    fill(folders.log, 3)
    before = contents(folders.log)
    folders.move.swap(NOW_MS, MARK)
    moved = folders.dirs.log_of(PARTITION)
    assert moved is not None
    assert contents(moved) == before


def test_what_retention_takes_meanwhile_is_not_missed() -> None:
    folders = Folders()
    folders.copy(steps=1)
    folders.log.delete_segments(len(folders.log.segments) - 1, NOW_MS)
    start = folders.log.log_start_offset
    moved = folders.finish()
    assert (moved.log_start_offset, moved.end_offset) == (start, 10)


def test_a_log_may_begin_inside_of_a_batch_and_after_all_of_them() -> None:
    folders = Folders()
    folders.log.append_as_leader(batch(5), 0, NOW_MS)
    folders.log.advance_log_start(12)
    moved = folders.finish()
    assert (moved.log_start_offset, moved.end_offset) == (12, 15)
    empty = Folders()
    empty.log.advance_log_start(10)
    empty.log.roll(NOW_MS)
    empty.log.delete_segments(len(empty.log.segments) - 1, NOW_MS)
    moved = empty.finish()
    assert (moved.log_start_offset, moved.end_offset) == (10, 10)
    assert fill(moved, 1)[0].base_offset == 10


def test_a_log_that_was_cut_is_copied_again() -> None:
    folders = Folders()
    folders.copy()
    folders.log.truncate_to(4)
    fill(folders.log, 6, leader_epoch=1)
    before = contents(folders.log)
    assert contents(folders.finish()) == before


def test_producers_that_retention_has_forgotten_are_known_after_the_move() -> None:
    folders = Folders()
    folders.log.append_as_leader(batch(producer_id=7, base_sequence=0), 0, NOW_MS)
    fill(folders.log, 5)
    folders.log.delete_segments(len(folders.log.segments) - 1, NOW_MS)
    known = folders.log.producers.producers()
    assert folders.finish().producers.producers() == known != []


def test_a_copy_that_is_less_durable_than_the_log_does_not_replace_it() -> None:
    folders = Folders()
    folders.copy()
    folders.log.flush(NOW_MS)
    assert not folders.move.can_swap()
    folders.move.copy.flush(NOW_MS)
    assert folders.move.can_swap()


def test_a_source_that_fails_at_the_swap_is_done_without() -> None:
    folders = Folders()
    folders.copy()
    folders.move.copy.flush(NOW_MS)
    folders.disk.faults.fail_on(OperationKind.RENAME, under="/a")
    assert folders.move.swap(NOW_MS, MARK) == ""
    assert not folders.source.is_online
    moved = folders.dirs.log_of(PARTITION)
    assert moved is folders.move.copy
    fill(moved, 2)
    folders.target.close(NOW_MS, 1)
    folders.disk.faults.heal()
    folders.disk.kill()
    folders.open()  # the source hosts the replica again, unchanged
    again = folders.dirs.log_of(PARTITION)
    assert again is not None
    assert (again.end_offset, again.directory) == (12, f"/b/{PARTITION}")
    assert not folders.disk.exists(f"/a/{PARTITION}")


def test_a_target_that_fails_at_the_swap_leaves_the_replica_where_it_is() -> None:
    folders = Folders()
    folders.copy()
    folders.move.copy.flush(NOW_MS)
    folders.disk.faults.fail_on(OperationKind.RENAME, under="/b")
    with pytest.raises(OSError, match="Input/output"):
        folders.move.swap(NOW_MS, MARK)
    assert not folders.target.is_online
    assert folders.dirs.log_of(PARTITION) is folders.log
    fill(folders.log, 1)


def test_a_full_target_refuses_and_nothing_else_happens() -> None:
    folders = Folders()
    folders.disk.capacity_bytes = 0
    with pytest.raises(ApiError, match="No space"):
        folders.copy()
    assert not folders.move.copy.is_offline
    folders.disk.capacity_bytes = None
    assert folders.finish().end_offset == 10


def test_a_copy_is_not_taken_for_the_log_while_a_folder_is_offline() -> None:
    folders = Folders()
    folders.copy(steps=1)
    folders.disk.kill()
    folders.disk.faults.fail_on(under="/a", error=errno.EIO)
    folders.open()
    assert folders.dirs.log_of(PARTITION) is None
    folders.disk.faults.heal()
    folders.disk.kill()
    folders.open()
    assert folders.dirs.dir_of(PARTITION) is folders.source
    folders.log = folders.source.hosted[PARTITION].log
    folders.move = LogDirCopy(PARTITION, folders.source, folders.target)
    assert folders.finish().end_offset == 10


def test_of_two_copies_one_is_dropped_at_the_next_start() -> None:
    folders = Folders()
    folders.disk.kill()
    third = LogDirs(folders.disk, ("/a", "/b", "/c"))
    third.open(lambda _: tiny(), NOW_MS)
    name = future_name(PARTITION, OTHER_MARK)
    assert name is not None
    third.dirs[2].make(name, PARTITION, TOPIC_ID, tiny(), NOW_MS)
    folders.disk.kill()
    third = LogDirs(folders.disk, ("/a", "/b", "/c"))
    third.open(lambda _: tiny(), NOW_MS)
    finish_moves(third.dirs, MARK)
    assert [PARTITION in folder.futures for folder in third.dirs].count(True) == 1
    assert third.dir_of(PARTITION) is third.dirs[0]


def test_a_copy_of_what_was_cut_since_is_cut_too_though_the_log_is_longer_by_now() -> None:
    folders = Folders()
    folders.copy()
    folders.log.truncate_to(4)
    for _ in range(12):
        folders.log.append_as_leader(batch(value=b"of the next leader"), 1, NOW_MS)
    folders.dirs.close(NOW_MS, 1)
    folders.open()
    log = folders.dirs.log_of(PARTITION)
    assert log is not None
    before = contents(log)
    assert folders.target.futures[PARTITION].log.end_offset == 4
    folders.move = LogDirCopy(PARTITION, folders.source, folders.target)
    assert contents(folders.finish()) == before
