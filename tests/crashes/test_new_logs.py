"""Many logs are made at once, with a machine crash at every disk operation."""

import errno
from contextlib import suppress

from ottla.model.identifiers import TopicPartition
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import Keep, OperationKind, SimulatedCrash
from ottla.storage.log_dirs.bulk_creation import NewLog, make_logs, place_logs
from ottla.storage.log_dirs.log_dirs import LogDirs
from tests.log_building import NOW_MS, batch, contents, tiny

FOLDER = "/logs"
TOPIC_ID = b"the topic's id.."
NAMES = [TopicPartition("orders", number) for number in range(3)]
KEPT: tuple[Keep, ...] = ("lose_all", "keep_all")


def opened(disk: SimulatedDisk) -> LogDirs:
    dirs = LogDirs(disk, [FOLDER])
    dirs.open(lambda _: tiny(), NOW_MS)
    assert dirs.online
    return dirs


def made(dirs: LogDirs) -> None:
    wanted = [NewLog(name, TOPIC_ID, tiny(), leader_epoch=3) for name in NAMES]
    for one in make_logs(place_logs(dirs.dirs, wanted), NOW_MS):
        one.host()


def test_what_was_flushed_in_a_new_log_survives_a_power_cut() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk)
    made(dirs)
    log = dirs.dirs[0].hosted[NAMES[1]].log
    log.append_as_leader(batch(2), 3, NOW_MS)
    log.flush(NOW_MS)
    before = contents(log)
    disk.crash("lose_all")
    hosted = opened(disk).dirs[0].hosted
    assert hosted.keys() == set(NAMES)
    assert contents(hosted[NAMES[1]].log) == before
    assert [(one.epoch, one.start_offset) for one in hosted[NAMES[1]].log.epochs.entries] == [
        (3, 0)
    ]
    assert {one.topic_id for one in hosted.values()} == {TOPIC_ID}


def test_a_crash_while_logs_are_made_leaves_nothing_that_is_half_made() -> None:
    whole = SimulatedDisk()
    dirs = opened(whole)
    first = len(whole.faults.operations)
    made(dirs)
    for number in range(first, len(whole.faults.operations)):
        for keep in KEPT:
            disk = SimulatedDisk()
            dirs = opened(disk)
            disk.faults.crash_at(number, "before")
            with suppress(SimulatedCrash):
                made(dirs)
            disk.faults.heal()
            disk.crash(keep)
            hosted = opened(disk).dirs[0].hosted
            # A log that has lost its topic id must be empty, as if it did not exist.
            assert all(one.log.end_offset == 0 for one in hosted.values())
            assert {one.topic_id for one in hosted.values()} <= {TOPIC_ID, None}


def test_the_names_of_all_new_logs_become_durable_together() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk)
    first = len(disk.faults.operations)
    made(dirs)
    synced = [
        operation.path
        for operation in disk.faults.operations[first:]
        if operation.kind in {OperationKind.SYNC, OperationKind.SYNC_DIRECTORY}
    ]
    assert synced.count(FOLDER) == 1
    assert synced[-1] == FOLDER
    assert len(synced) == 2 * len(NAMES) + 1


def test_new_logs_whose_names_cannot_be_made_durable_are_refused() -> None:
    whole = SimulatedDisk()
    made(opened(whole))
    last = len(whole.faults.operations) - 1
    assert whole.faults.operations[last] == (OperationKind.SYNC_DIRECTORY, FOLDER)
    disk = SimulatedDisk()
    dirs = opened(disk)
    disk.faults.fail_at(last, errno.EIO)
    wanted = [NewLog(name, TOPIC_ID, tiny(), leader_epoch=3) for name in NAMES]
    outcomes = make_logs(place_logs(dirs.dirs, wanted), NOW_MS)
    assert [one.hosted for one in outcomes] == [None] * len(NAMES)
    assert all(one.failures for one in outcomes)


def test_a_folder_that_could_not_be_taken_away_is_not_taken_for_the_new_log() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk)
    made(dirs)
    folder = dirs.dirs[0]
    folder.hosted[NAMES[0]].log.append_as_leader(batch(2), 3, NOW_MS)
    del folder.hosted[NAMES[0]]  # its topic is deleted, and renaming its directory has failed
    log = folder.create(NAMES[0], b"another topic id", tiny(), NOW_MS)
    assert log.end_offset == 0
    assert log.segments.size_bytes == 0


def test_unwritten_logs_are_closed_without_disk_access() -> None:
    disk = SimulatedDisk()
    dirs = opened(disk)
    made(dirs)
    hosted = dirs.dirs[0].hosted
    hosted[NAMES[0]].log.append_as_leader(batch(2), 3, NOW_MS)
    first = len(disk.faults.operations)
    dirs.close(NOW_MS, broker_epoch=1)
    touched = {operation.path for operation in disk.faults.operations[first:]}
    assert any(path.startswith(f"{FOLDER}/{NAMES[0]}") for path in touched)
    assert not any(path.startswith(f"{FOLDER}/{NAMES[1]}") for path in touched)
    disk.crash("lose_all")
    again = opened(disk).dirs[0]
    assert again.was_clean
    assert not again.notes
    assert {name: one.log.end_offset for name, one in again.hosted.items()} == {
        NAMES[0]: 2,
        NAMES[1]: 0,
        NAMES[2]: 0,
    }
    first = len(disk.faults.operations)
    again.close(NOW_MS, broker_epoch=2)
    touched = {operation.path for operation in disk.faults.operations[first:]}
    assert not any(path.startswith(f"{FOLDER}/orders") for path in touched)
