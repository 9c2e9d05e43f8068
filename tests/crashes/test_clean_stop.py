"""D5: the mark of a clean stop exists only while everything is durable."""

from collections.abc import Iterator
from contextlib import suppress
from random import Random

from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind, SimulatedCrash
from ottla.storage.files.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE
from ottla.storage.log_dirs.log_dirs import LogDirs
from tests.crashes.crash_points import CUTS, KILL, Cut
from tests.log_building import NOW_MS, batch, batches_of, contents, fill, stamped, tiny

FOLDER = "/logs"
PARTITIONS = [TopicPartition("orders", number) for number in range(2)]
CONFIG = tiny()


def config_of(_: str) -> TopicConfig:
    return CONFIG


def opened(disk: SimulatedDisk) -> LogDirs:
    dirs = LogDirs(disk, [FOLDER])
    dirs.open(config_of, NOW_MS)
    assert dirs.dirs[0].is_online
    return dirs


def written() -> tuple[SimulatedDisk, LogDirs, Random]:
    """Two logs, neither of which was ever flushed."""
    dice = Random(0)
    disk = SimulatedDisk(dice)
    disk.make_directory(FOLDER)
    disk.sync_directory("/")
    dirs = opened(disk)
    for partition in PARTITIONS:
        fill(dirs.create(partition, b"0123456789abcdef", CONFIG, NOW_MS), 4)
    return disk, dirs, dice


def found(dirs: LogDirs) -> list[list[bytes]]:
    return [contents(dirs.dirs[0].hosted[partition].log) for partition in PARTITIONS]


WRITTEN = found(written()[1])


def crashes_while_stopping() -> Iterator[tuple[SimulatedDisk, Cut]]:
    disk, dirs, _ = written()
    first = len(disk.faults.operations)
    dirs.close(NOW_MS, broker_epoch=5)
    for number in range(first, len(disk.faults.operations) + 1):
        for cut in CUTS:
            disk, dirs, dice = written()
            disk.faults.crash_at(number)
            with suppress(SimulatedCrash):
                dirs.close(NOW_MS, broker_epoch=5)
            disk.faults.heal()
            dice.seed(cut.seed)
            fall(disk, cut)
            yield disk, cut


def fall(disk: SimulatedDisk, cut: Cut) -> None:
    if cut.keep is None:
        disk.kill()
    else:
        disk.crash(cut.keep)


def test_where_there_is_a_mark_everything_is_there() -> None:
    marks = 0
    for disk, cut in crashes_while_stopping():
        dirs = opened(disk)
        marks += dirs.dirs[0].was_clean
        if dirs.dirs[0].was_clean or cut is KILL:
            assert found(dirs) == WRITTEN
            assert dirs.dirs[0].notes == []
        for log, before in zip(found(dirs), WRITTEN, strict=True):
            assert log == before[: len(log)]
    assert marks >= len(CUTS)


def test_a_start_that_crashes_leaves_no_mark_once_it_has_begun() -> None:
    disk, dirs, _ = written()
    dirs.close(NOW_MS, broker_epoch=5)
    first = len(disk.faults.operations)
    disk.kill()
    fill(opened(disk).dirs[0].hosted[PARTITIONS[0]].log, 3)
    begun = [
        number
        for number, operation in enumerate(disk.faults.operations[first:], first)
        if operation.path not in {FOLDER, f"{FOLDER}/{CLEAN_SHUTDOWN_FILE}"}
    ]
    assert begun
    for number in begun:
        for cut in CUTS:
            disk, dirs, dice = written()
            dirs.close(NOW_MS, broker_epoch=5)
            disk.kill()
            disk.faults.crash_at(number)
            with suppress(SimulatedCrash):
                fill(opened(disk).dirs[0].hosted[PARTITIONS[0]].log, 3)
            disk.faults.heal()
            dice.seed(cut.seed)
            fall(disk, cut)
            again = opened(disk)
            assert not again.dirs[0].was_clean
            assert found(again)[1] == WRITTEN[1]
            assert found(again)[0][:4] == WRITTEN[0]


def closed_with_gaps() -> tuple[SimulatedDisk, Random]:
    """A log as Kafka may leave it, without a recovery point."""
    disk, dirs, dice = written()
    log = dirs.dirs[0].hosted[PARTITIONS[0]].log
    for offset in (6, 9):
        log.roll(NOW_MS, offset)
        log.append_as_follower(stamped(batch(), offset), NOW_MS)
    dirs.close(NOW_MS, broker_epoch=5)
    disk.remove(f"{FOLDER}/{RECOVERY_POINT_FILE}")
    disk.sync_directory(FOLDER)
    disk.kill()
    return disk, dice


def test_a_start_that_crashes_takes_no_gaps_for_losses() -> None:
    disk, _ = closed_with_gaps()
    first = len(disk.faults.operations)
    opened(disk)
    for number in range(first, len(disk.faults.operations) + 1):
        for cut in CUTS:
            disk, dice = closed_with_gaps()
            disk.faults.crash_at(number)
            with suppress(SimulatedCrash):
                opened(disk)
            disk.faults.heal()
            dice.seed(cut.seed)
            fall(disk, cut)
            again = opened(disk)
            log = again.dirs[0].hosted[PARTITIONS[0]].log
            found = [one.base_offset for one in batches_of(log) if one.record_count]
            assert found == [0, 1, 2, 3, 6, 9], (disk.faults.operations[number - 1], cut)
            assert found_marks(disk) == []


def found_marks(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.list_directory(FOLDER) if name.startswith(".")]


def test_a_log_that_cannot_be_closed_leaves_no_mark() -> None:
    disk, dirs, _ = written()
    disk.faults.fail_on(OperationKind.SYNC, f"{FOLDER}/{PARTITIONS[1]}")
    dirs.close(NOW_MS, broker_epoch=5)
    disk.faults.heal()
    disk.kill()
    again = opened(disk)
    assert not again.dirs[0].was_clean
    assert found(again) == WRITTEN
