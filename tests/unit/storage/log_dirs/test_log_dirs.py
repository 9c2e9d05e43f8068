"""Several log dirs: the placement of logs, restarts, and failing disks."""

import errno
from pathlib import Path

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.files.checkpoints import (
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    write_atomically,
)
from ottla.storage.log.log import PartitionLog
from ottla.storage.log_dirs.bulk_creation import NewLog, make_logs, place_logs
from ottla.storage.log_dirs.log_dir import OPENING_FILE, UNOPENED_FILE
from ottla.storage.log_dirs.log_dirs import LogDirInUseError, LogDirs
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import Record
from tests.log_building import batch, batches_of, stamped

CONFIG = TopicConfig(segment_bytes=400, index_interval_bytes=100)
ORDERS = [TopicPartition("orders", number) for number in range(4)]
TOPIC_ID = bytes(range(16))


def opened(disk: KernelDisk | SimulatedDisk, *paths: str, open_files_max: int = 100) -> LogDirs:
    dirs = LogDirs(disk, paths, open_files_max=open_files_max)
    dirs.open(lambda _: CONFIG, now_ms=0)
    return dirs


def append(log: PartitionLog, *values: bytes, epoch: int = 0) -> None:
    for value in values:
        raw = build_batch([Record(0, 1000, b"key", value)])
        log.append_as_leader(memoryview(raw), epoch, now_ms=1000)


def with_gaps(folder: str) -> SimulatedDisk:
    """Cleanly close a log with gaps before its segments 3 and 7, as Kafka may leave it."""
    disk = SimulatedDisk()
    dirs = opened(disk, folder)
    log = dirs.create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0)
    for offset in (0, 3, 7):
        log.roll(0, offset)
        log.append_as_follower(stamped(batch(), offset), 0)
    dirs.close(now_ms=0, broker_epoch=1)
    return disk


def offsets_of(log: PartitionLog) -> list[int]:
    return [one.base_offset for one in batches_of(log) if one.record_count]


def test_a_new_partition_goes_where_the_fewest_are() -> None:
    dirs = opened(SimulatedDisk(), "/a", "/b")
    for partition in ORDERS:
        dirs.create(partition, TOPIC_ID, CONFIG, now_ms=0)
    assert [len(folder.hosted) for folder in dirs.dirs] == [2, 2]


def test_logs_are_found_again_after_a_clean_stop(tmp_path: Path) -> None:
    paths = (str(tmp_path / "a"), str(tmp_path / "b"))
    dirs = opened(KernelDisk(), *paths)
    for partition in ORDERS:
        append(dirs.create(partition, TOPIC_ID, CONFIG, now_ms=0), b"one", b"two", b"three")
    dirs.close(now_ms=0, broker_epoch=7)

    again = opened(KernelDisk(), *paths)
    assert all(folder.was_clean for folder in again.dirs)
    for partition in ORDERS:
        log = again.log_of(partition)
        folder = again.dir_of(partition)
        assert log is not None
        assert folder is not None
        assert log.end_offset == 3
        assert log.recovery_point == 3
        assert folder.hosted[partition].topic_id == TOPIC_ID


def test_the_mark_of_a_clean_stop_is_gone_once_the_logs_are_open() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk, "/a")
    append(dirs.create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0), b"one")
    dirs.close(now_ms=0, broker_epoch=1)
    assert disk.exists("/a/.kafka_cleanshutdown")
    opened(disk, "/a")
    assert not disk.exists("/a/.kafka_cleanshutdown")
    disk.kill()
    assert not opened(disk, "/a").dirs[0].was_clean


def test_a_lowered_recovery_point_is_on_disk_before_the_log_is_cut() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk, "/a")
    log = dirs.create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0)
    append(log, *[b"v"] * 20)
    log.flush(now_ms=0)
    dirs.checkpoint()
    log.truncate_to(5)
    append(log, b"not flushed", epoch=1)
    disk.crash("lose_all")
    again = opened(disk, "/a").log_of(ORDERS[0])
    assert again is not None
    assert again.end_offset == 5
    assert not any(segment.damage for segment in again.segments)


def test_where_delete_records_let_a_log_begin_survives_a_restart() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk, "/a")
    log = dirs.create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0)
    append(log, b"one", b"two", b"three")
    log.advance_log_start(2)
    dirs.close(now_ms=0, broker_epoch=1)
    again = opened(disk, "/a").log_of(ORDERS[0])
    assert again is not None
    assert again.log_start_offset == 2


def test_a_failing_folder_takes_only_its_own_partitions() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk, "/a", "/b")
    logs = {p: dirs.create(p, TOPIC_ID, CONFIG, now_ms=0) for p in ORDERS}
    dirs.dirs[0].fail(OSError(errno.EIO, "the disk is gone"))
    for partition, log in logs.items():
        if dirs.dir_of(partition) is dirs.dirs[1]:
            append(log, b"goes on")
            continue
        with pytest.raises(ApiError, match="is offline") as refusal:
            append(log, b"refused")
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_folder_that_cannot_be_opened_is_offline_and_the_others_are_not() -> None:
    disk = SimulatedDisk()
    opened(disk, "/a", "/b").close(now_ms=0, broker_epoch=1)
    disk.faults.fail_on(under="/a", error=errno.EIO)
    dirs = opened(disk, "/a", "/b")
    assert [folder.is_online for folder in dirs.dirs] == [False, True]
    dirs.create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0)
    assert dirs.dir_of(ORDERS[0]) is dirs.dirs[1]


def test_with_every_folder_offline_no_partition_can_be_made() -> None:
    dirs = opened(SimulatedDisk(), "/a")
    dirs.dirs[0].fail(OSError(errno.EIO, "gone"))
    with pytest.raises(ApiError, match="every log directory is offline"):
        dirs.create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0)


def test_a_damaged_recovery_point_file_means_that_all_is_recovered() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk, "/a")
    append(dirs.create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0), b"one", b"two")
    dirs.close(now_ms=0, broker_epoch=1)
    disk.corrupt("/a/recovery-point-offset-checkpoint", 0, b"?")
    again = opened(disk, "/a")
    log = again.log_of(ORDERS[0])
    assert log is not None
    assert log.end_offset == 2
    assert log.recovery_point == 0
    assert any("recovery-point" in note for note in again.dirs[0].notes)
    assert any("goes on behind 0" in note for note in again.dirs[0].notes)


@pytest.mark.parametrize("name", [RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE])
def test_a_damaged_checkpoint_in_a_clean_folder_makes_no_losses_of_gaps(name: str) -> None:
    disk = with_gaps("/a")
    write_atomically(disk, f"/a/{name}", b"garbage")
    again = opened(disk, "/a")
    log = again.log_of(ORDERS[0])
    assert log is not None
    assert offsets_of(log) == [0, 3, 7]


@pytest.mark.parametrize("suffix", ["", f".{bytes(16).hex()}-future", f".{bytes(16).hex()}-delete"])
def test_a_file_that_is_called_like_a_partition_is_left_alone(suffix: str) -> None:
    disk = SimulatedDisk()
    append(opened(disk, "/a").create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0), b"one")
    path = f"/a/{ORDERS[1]}{suffix}"
    disk.create_file(path)
    disk.kill()
    folder = opened(disk, "/a").dirs[0]
    assert folder.is_online
    assert [*folder.hosted] == [ORDERS[0]]
    assert folder.notes == [f"{path} is no directory, and left alone"]
    assert disk.exists(path)


def test_a_partition_that_a_file_is_called_like_is_refused_and_no_other() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk, "/a")
    disk.create_file(f"/a/{ORDERS[0]}")
    wanted = [NewLog(partition, TOPIC_ID, CONFIG, 0) for partition in ORDERS[:2]]
    refused, made = make_logs(place_logs(dirs.dirs, wanted), now_ms=0)
    with pytest.raises(ApiError, match="is no directory") as error:
        refused.host()
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    append(made.host(), b"one")
    assert dirs.dirs[0].is_online
    assert disk.exists(f"/a/{ORDERS[0]}")


def test_a_deleted_partition_is_gone_at_once_and_its_files_later() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk, "/a")
    log = dirs.create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0)
    append(log, b"one")
    folder = dirs.dirs[0]
    renamed = folder.delete(ORDERS[0], mark=TOPIC_ID)
    assert dirs.log_of(ORDERS[0]) is None
    assert disk.exists(renamed)
    dirs.create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0)
    folder.remove_deleted(renamed)
    assert not disk.exists(renamed)


def test_a_deletion_that_was_interrupted_is_finished_at_the_next_start() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk, "/a")
    append(dirs.create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0), b"one")
    renamed = dirs.dirs[0].delete(ORDERS[0], mark=TOPIC_ID)
    disk.kill()
    assert opened(disk, "/a").log_of(ORDERS[0]) is None
    assert not disk.exists(renamed)


def test_open_files_are_bounded_for_any_reads_and_writes() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk, "/a", open_files_max=3)
    logs = [dirs.create(partition, TOPIC_ID, CONFIG, now_ms=0) for partition in ORDERS]
    for log in logs:
        append(log, *[b"x" * 50] * 10)
    slices = [log.read(0, log.end_offset, 1 << 20) for log in logs]
    assert len(dirs.dirs[0].open_files) <= 3
    assert all(len(part.read()) == len(part) > 0 for part in slices)


def test_a_full_disk_refuses_a_new_log_and_keeps_its_folder_online() -> None:
    disk = SimulatedDisk(capacity_bytes=3000)
    dirs = opened(disk, "/a")
    log = dirs.create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0)
    append(log, b"x" * 200)
    disk.capacity_bytes = 0
    with pytest.raises(ApiError, match="No space"):
        dirs.create(ORDERS[1], TOPIC_ID, CONFIG, now_ms=0)
    dirs.checkpoint()
    assert dirs.dirs[0].is_online
    assert disk.list_directory("/a").count(str(ORDERS[1])) == 0, "what was begun is taken back"
    disk.capacity_bytes = None
    append(log, b"goes on")
    append(dirs.create(ORDERS[1], TOPIC_ID, CONFIG, now_ms=0), b"goes on, too")


def test_a_log_that_a_full_disk_does_not_let_us_open_is_opened_later() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk, "/a")
    for partition in ORDERS[:2]:
        log = dirs.create(partition, TOPIC_ID, CONFIG, now_ms=0)
        append(log, *[b"x" * 50] * 20)
        log.roll(0)
        log.advance_log_start(3)
        log.flush(now_ms=0)
    dirs.checkpoint()
    disk.kill()
    disk.faults.fail_on(OperationKind.WRITE, under=f"/a/{ORDERS[0]}", error=errno.ENOSPC)
    again = opened(disk, "/a")
    folder = again.dirs[0]
    assert folder.is_online
    assert list(folder.hosted) == [ORDERS[1]]
    assert list(folder.unopened) == [ORDERS[0]]
    again.checkpoint()
    disk.faults.heal()
    log = folder.reopen(ORDERS[0], CONFIG, now_ms=0)
    assert (log.log_start_offset, log.end_offset, folder.unopened) == (3, 20, {})


def test_directories_of_no_topic_are_set_aside_and_not_deleted() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk, "/a")
    for partition in ORDERS[:2]:
        append(dirs.create(partition, TOPIC_ID, CONFIG, now_ms=0), b"one")
    disk.kill()
    again = LogDirs(disk, ["/a"])
    again.open(lambda _: CONFIG, 0, lambda partition, topic_id: partition == ORDERS[0])
    assert list(again.dirs[0].hosted) == [ORDERS[1]]
    (stray,) = [name for name in disk.list_directory("/a") if name.endswith("-stray")]
    assert disk.exists(f"/a/{stray}/00000000000000000000.log")
    assert any(stray in note for note in again.dirs[0].notes)
    append(again.create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0), b"another topic")


def test_directories_of_no_topic_are_set_aside_again_and_again() -> None:
    disk = SimulatedDisk()
    for count in range(1, 4):
        append(opened(disk, "/a").create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0), b"one")
        disk.kill()
        again = LogDirs(disk, ["/a"])
        again.open(lambda _: CONFIG, 0, lambda *_: True)
        assert again.dirs[0].is_online
        names = disk.list_directory("/a")
        strays = [name for name in names if name.endswith("-stray")]
        assert len(strays) == count
        assert all(disk.exists(f"/a/{name}/00000000000000000000.log") for name in strays)


def filled(disk: KernelDisk | SimulatedDisk, *paths: str, count: int = 30) -> LogDirs:
    """Return log dirs with one log, flushed, with its recovery point recorded."""
    dirs = opened(disk, *paths)
    log = dirs.dirs[0].create(ORDERS[0], TOPIC_ID, CONFIG, now_ms=0)
    append(log, *(b"%d" % number for number in range(count)))
    log.flush(0)
    return dirs


def test_a_topic_that_is_made_again_has_nothing_of_the_old_ones_bounds() -> None:
    disk = SimulatedDisk()
    dirs = filled(disk, "/a")
    log = dirs.log_of(ORDERS[0])
    assert log is not None
    log.advance_log_start(29)
    dirs.checkpoint()
    folder = dirs.dirs[0]
    folder.remove_deleted(folder.delete(ORDERS[0], bytes(16)))
    new = folder.create(ORDERS[0], bytes(reversed(TOPIC_ID)), CONFIG, now_ms=0)
    append(new, *(b"new %d" % number for number in range(10)))
    new.flush(0)
    disk.kill()

    found = opened(disk, "/a").log_of(ORDERS[0])
    assert found is not None
    assert (found.log_start_offset, found.end_offset) == (0, 10)


def test_a_log_moved_between_disks_by_hand_is_whole(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b")]
    filled(KernelDisk(), *paths).close(now_ms=0, broker_epoch=7)
    (tmp_path / "a" / str(ORDERS[0])).rename(tmp_path / "b" / str(ORDERS[0]))

    found = opened(KernelDisk(), *paths).log_of(ORDERS[0])
    assert found is not None
    assert found.end_offset == 30


def test_a_folder_with_a_log_that_was_not_open_is_not_said_to_be_clean() -> None:
    disk = SimulatedDisk()
    dirs = filled(disk, "/a", count=4)
    dirs.checkpoint()
    log = dirs.log_of(ORDERS[0])
    assert log is not None
    append(log, *(b"later %d" % number for number in range(20)))
    disk.kill()
    disk.faults.fail_on(OperationKind.WRITE, under=f"/a/{ORDERS[0]}", error=errno.ENOSPC)
    full = opened(disk, "/a")
    assert ORDERS[0] in full.dirs[0].unopened
    disk.faults.heal()
    full.close(now_ms=0, broker_epoch=7)

    found = opened(disk, "/a").log_of(ORDERS[0])
    assert found is not None
    assert found.end_offset == 24


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_log_that_is_opened_later_keeps_its_gaps(is_killed: bool) -> None:
    disk = with_gaps("/a")
    disk.remove(f"/a/{RECOVERY_POINT_FILE}")
    disk.faults.fail_on(OperationKind.WRITE, under=f"/a/{ORDERS[0]}", error=errno.ENOSPC)
    folder = opened(disk, "/a").dirs[0]
    assert [*folder.unopened] == [ORDERS[0]]
    disk.faults.heal()
    if is_killed:
        disk.crash("lose_all")
        folder = opened(disk, "/a").dirs[0]
        log = folder.hosted[ORDERS[0]].log
    else:
        log = folder.reopen(ORDERS[0], CONFIG, now_ms=0)
    assert offsets_of(log) == [0, 3, 7]
    assert not disk.exists(f"/a/{ORDERS[0]}/{UNOPENED_FILE}")
    assert not disk.exists(f"/a/{OPENING_FILE}")


def test_a_log_whose_opening_was_given_up_keeps_its_gaps() -> None:
    disk = with_gaps("/a")
    disk.remove(f"/a/{RECOVERY_POINT_FILE}")

    def give_up(*_: object) -> bool:
        raise InterruptedError

    LogDirs(disk, ["/a"]).open(lambda _: CONFIG, 0, give_up)
    disk.kill()
    log = opened(disk, "/a").log_of(ORDERS[0])
    assert log is not None
    assert offsets_of(log) == [0, 3, 7]
    assert not disk.exists(f"/a/{OPENING_FILE}")


def test_folders_are_made_and_locked_until_they_are_given_back() -> None:
    disk = SimulatedDisk()
    with LogDirs(disk, ["/a", "/b"]).lock():
        with pytest.raises(LogDirInUseError, match="/b is in use"):
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
        with pytest.raises(LogDirInUseError, match="/b is in use"):
            LogDirs(disk, ["/b"]).lock()


def test_a_log_dir_with_a_corrupt_meta_properties_is_offline_and_the_others_are_taken() -> None:
    disk = SimulatedDisk()
    LogDirs(disk, ["/a", "/b"]).lock().close()
    disk.create_file("/a/meta.properties").write_at(0, b"version=9\n")
    dirs = LogDirs(disk, ["/a", "/b"])
    with dirs.lock():
        assert dirs.online_paths == ("/b",)
    with pytest.raises(OSError, match=r"/a/meta\.properties: version '9'"):
        LogDirs(disk, ["/a"]).lock()


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
