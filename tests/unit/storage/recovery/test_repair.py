"""A damaged segment is rewritten with the batches of another replica."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.simulation.world import cold_reads
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import SimulatedCrash
from ottla.storage.log.log import PartitionLog
from ottla.storage.recovery.repair import RepairError, UnfitBatchError, repairs
from ottla.storage.recovery.scrubbing import closed_segments, fence_off, next_damage
from ottla.wire.records.control import ControlType
from tests.crashes.invariants import check_derived
from tests.log_building import (
    DIRECTORY,
    NOW_MS,
    LogFolder,
    batch,
    contents,
    fill,
    joined,
    marker,
    stamped,
    tiny,
)

SIZE = len(batch())


def name(base_offset: int, suffix: str = "log") -> str:
    return f"{DIRECTORY}/{base_offset:020d}.{suffix}"


def plain(log: PartitionLog) -> None:
    fill(log, 10)


def transactional(log: PartitionLog) -> None:
    """Write batches with several epochs, sequences and transactions, for a segment to damage."""
    for number, leader_epoch in enumerate((0, 0, 1, 1)):
        log.append_as_leader(
            batch(1, 500, producer_id=7, base_sequence=number), leader_epoch, NOW_MS
        )
    log.append_as_leader(
        batch(1, 800, producer_id=8, base_sequence=0, is_transactional=True), 1, NOW_MS
    )
    for producer_id, kind in ((8, ControlType.ABORT), (9, ControlType.COMMIT)):
        log.append_as_follower(stamped_marker(log, producer_id, kind), NOW_MS)
    fill(log, 6, leader_epoch=2)


def stamped_marker(log: PartitionLog, producer_id: int, kind: ControlType) -> memoryview:
    return stamped(marker(kind, producer_id), log.end_offset, 1)


class Replicas:
    """Two logs with the same batches; the tests damage the log on `disk`."""

    def __init__(self, write: Callable[[PartitionLog], None] = plain, **settings: Any) -> None:
        self.disk = SimulatedDisk()
        self.folder = LogFolder(self.disk, tiny(**settings))
        write(self.folder.start())
        self.folder.flush()
        self.whole = contents(self.folder.log)

    @property
    def log(self) -> PartitionLog:
        return self.folder.log

    def damage(self, base_offset: int, first: int, count: int = 1) -> None:
        """Overwrite batches of a segment, and let a scrub find the damage."""
        file = self.disk.open_file(name(base_offset))
        content = file.read_at(first * SIZE, count * SIZE)
        file.write_at(first * SIZE, bytes(byte ^ 0xFF for byte in content))
        self.scrub()

    def scrub(self) -> None:
        for first in closed_segments(self.log):
            target = first
            while damage := next_damage(self.disk, cold_reads, target, lambda _: None):
                assert fence_off(self.log, target, damage)
                target = target.behind(damage)

    def from_leader(self, offset: int) -> memoryview:
        found = [raw for raw in self.whole if int.from_bytes(raw[:8], "big") >= offset]
        return joined(*map(memoryview, found[:2]))

    def repair(self) -> None:
        for repair in repairs(self.log, NOW_MS, lambda _: None):
            for damage in repair.damage:
                offset = damage.offset
                while offset < damage.end_offset:
                    offset = repair.take(damage, self.from_leader(offset))
            repair.finish()
            repair.take_over(self.log, NOW_MS)


@pytest.mark.parametrize("write", [plain, transactional])
@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("count", [1, 2])
def test_the_log_has_its_former_bytes(
    write: Callable[[PartitionLog], None], number: int, count: int
) -> None:
    replicas = Replicas(write)
    bases = [segment.base_offset for segment in replicas.log.segments][:-1]
    for base_offset in bases:
        replicas.damage(base_offset, number, count)
    assert len(replicas.log.segments.damaged_from(0)) == len(bases)
    replicas.repair()
    assert not replicas.log.segments.damaged_from(0)
    assert contents(replicas.log) == replicas.whole
    check_derived(replicas.log, replicas.whole)
    replicas.log.remove_deleted(1 << 60)
    assert not [each for each in replicas.disk.list_directory(DIRECTORY) if "damage" in each]
    replicas.folder.stop()
    again = LogFolder(replicas.disk).start()
    assert contents(again) == replicas.whole
    check_derived(again, replicas.whole)


def test_damage_at_the_end_and_in_the_middle_of_one_segment_goes_at_once() -> None:
    replicas = Replicas()
    replicas.damage(3, 0)
    replicas.damage(3, 2)
    replicas.repair()
    assert contents(replicas.log) == replicas.whole
    check_derived(replicas.log, replicas.whole)


@pytest.mark.parametrize("write", [plain, transactional])
def test_what_an_opening_found_is_known_again_as_if_it_had_never_been_lost(
    write: Callable[[PartitionLog], None],
) -> None:
    replicas = Replicas(write)
    for base_offset in [segment.base_offset for segment in replicas.log.segments]:
        file = replicas.disk.open_file(name(base_offset))
        file.write_at(SIZE // 2, bytes(SIZE))
        file.sync()
    for each in replicas.disk.list_directory(DIRECTORY):
        if each.endswith(("index", "snapshot")):
            replicas.disk.remove(f"{DIRECTORY}/{each}")
    replicas.disk.kill()
    replicas.folder.start()
    assert len(replicas.log.segments.damaged_from(0)) == len(replicas.log.segments)
    replicas.repair()
    assert contents(replicas.log) == replicas.whole
    check_derived(replicas.log, replicas.whole)


def test_batches_that_cannot_stand_there_are_refused_and_nothing_changes() -> None:
    replicas = Replicas()
    replicas.damage(3, 1)
    for offset, what in ((3, "before"), (4, "damaged")):
        (repair,) = repairs(replicas.log, NOW_MS, lambda _: None)
        data = replicas.from_leader(offset)
        if what == "damaged":
            data[70] ^= 1
        with pytest.raises(UnfitBatchError):
            repair.take(repair.damage[0], data)
        repair.discard()
    assert not [each for each in replicas.disk.list_directory(DIRECTORY) if "cleaned" in each]
    assert len(replicas.log.segments.damaged_from(0)) == 1


def test_records_compacted_away_on_another_replica_are_not_missed() -> None:
    replicas = Replicas()
    replicas.damage(3, 1)
    del replicas.whole[4]
    replicas.repair()
    assert contents(replicas.log) == replicas.whole


def test_more_damage_that_is_met_on_the_way_is_told() -> None:
    replicas = Replicas()
    replicas.damage(3, 0)
    replicas.disk.flip_bit(name(3), 2 * SIZE + 70, 1)
    with pytest.raises(RepairError) as raised:
        replicas.repair()
    assert raised.value.suspect_path == name(3)


def test_a_log_that_has_changed_keeps_what_it_has() -> None:
    replicas = Replicas()
    replicas.damage(3, 1)
    (repair,) = repairs(replicas.log, NOW_MS, lambda _: None)
    assert repair.take(repair.damage[0], replicas.from_leader(4)) == 5
    repair.finish()
    replicas.log.truncate_to(8)
    with pytest.raises(RepairError, match="changed"):
        repair.take_over(replicas.log, NOW_MS)
    repair.discard()
    assert len(replicas.log.segments.damaged_from(0)) == 1


def test_a_crash_at_any_moment_leaves_the_damaged_segment_or_the_whole_one() -> None:
    counted = Replicas(transactional)
    counted.damage(3, 1)
    began = len(counted.disk.faults.operations)
    counted.repair()
    count = len(counted.disk.faults.operations) - began
    assert count > 10
    outcomes = {crashed(number) for number in range(count)}
    assert outcomes == {True, False}


def crashed(number: int) -> bool:
    """Crash at one operation of a repair; return whether the log was whole at the next start."""
    replicas = Replicas(transactional)
    replicas.damage(3, 1)
    replicas.disk.faults.crash_at(len(replicas.disk.faults.operations) + number)
    with pytest.raises(SimulatedCrash):
        replicas.repair()
    replicas.disk.crash("lose_all")
    replicas.folder.start()
    is_whole = not replicas.log.segments.damaged_from(0)
    if not is_whole:
        replicas.repair()
    assert contents(replicas.log) == replicas.whole
    check_derived(replicas.log, replicas.whole)
    return is_whole
