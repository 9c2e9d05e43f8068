"""C6: a crash anywhere in a compaction leaves either the old or the new segments."""

from collections.abc import Iterator
from copy import deepcopy
from itertools import product
from random import Random
from typing import NamedTuple

import pytest

from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import CrashMoment, OperationKind, SimulatedCrash
from ottla.storage.compaction.compaction_plan import plan
from ottla.storage.compaction.log_compaction import Compaction
from ottla.storage.compaction.segment_swap import finish_swaps
from ottla.storage.log.log import PartitionLog
from ottla.wire.records.control import ControlType
from tests.unit.storage import compacted_logs
from tests.unit.storage.compacted_logs import (
    DIRECTORY,
    START_MS,
    Writer,
    compacted,
    files_of,
    last_stable_offset,
    opened,
    state_of,
    take_over,
)

CONFIG = compacted(segment_bytes=400)
Files = dict[str, bytes]


class Prepared(NamedTuple):
    """A durable log and its disk, copied together for each run."""

    disk: SimulatedDisk
    log: PartitionLog
    first_dirty_offset: int
    state: dict[bytes, bytes]


def prepared() -> Prepared:
    """Make a log; its first two segments are clean already.

    The next compaction makes three new segments, each of which replaces an old segment of the same
    name. The first merges two segments, and loses the index of aborted transactions. The second
    merges three, and gains such an index. The third merges two, and keeps its index.
    """
    disk = SimulatedDisk(Random(7))
    disk.make_directory(DIRECTORY)
    disk.sync_directory("/")
    disk.sync_directory("/data")
    writer = Writer(opened(disk, compacted(segment_bytes=300)))
    abort(writer, 1)
    writer.put((b"b", b"1"))
    writer.roll()
    writer.put((b"c", b"1"), (b"d", b"1"))
    writer.roll()
    first_dirty_offset = compacted_logs.compact(disk, writer.log)
    writer.put((b"b", b"2"))
    writer.put((b"c", None))
    writer.roll()
    abort(writer, 2)
    writer.roll()
    writer.put((b"c", b"3"))
    writer.roll()
    abort(writer, 3)
    writer.put((b"d", b"x" * 150))
    writer.roll()
    writer.log.config = CONFIG
    writer.log.flush(START_MS)
    state = state_of(writer.log)
    for segment in writer.log.segments:
        segment.release()
    return Prepared(disk, writer.log, first_dirty_offset, state)


def abort(writer: Writer, producer_id: int) -> None:
    writer.put((b"a", b"1"), producer_id=producer_id, is_transactional=True)
    writer.end(producer_id, ControlType.ABORT)
    writer.log.producers.expire(START_MS + 10**9)


def compact(run: Prepared) -> Iterator[Files]:
    """Compact; yield the segment files at the beginning and after each step."""
    yield files_of(run.disk)
    planned = plan(run.log, run.first_dirty_offset, last_stable_offset(run.log), START_MS)
    assert planned is not None
    compaction = Compaction(run.disk, run.log, planned, START_MS, dedupe_buffer_bytes=24 * 50)
    while (group := compaction.clean_next()) is not None:
        take_over(run.log, compaction, group)
        yield files_of(run.disk)


@pytest.fixture(scope="module")
def start() -> Prepared:
    return prepared()


@pytest.fixture(scope="module")
def states(start: Prepared) -> list[Files]:
    """All states that may be found after a crash."""
    found = list(compact(deepcopy(start)))
    bases = [sorted({int(name[:20]) for name in files}) for files in found]
    assert bases == [
        [0, 3, 5, 7, 9, 10, 12, 13],
        [0, 5, 7, 9, 10, 12, 13],
        [0, 5, 10, 12, 13],
        [0, 5, 10, 13],
    ]
    aborted = [{int(name[:20]) for name in files if "txn" in name} for files in found]
    assert aborted == [{0, 7, 10}, {7, 10}, {5, 10}, {5, 10}]
    return found


def moments(operations: list[OperationKind]) -> Iterator[tuple[int, CrashMoment]]:
    for number, kind in enumerate(operations):
        yield number, "before"
        if kind is OperationKind.WRITE:
            yield number, "during"
    yield len(operations) - 1, "after"


def crashed_at(start: Prepared, number: int, moment: CrashMoment) -> SimulatedDisk:
    run = deepcopy(start)
    first = len(run.disk.faults.operations)
    run.disk.faults.crash_at(first + number, moment)
    with pytest.raises(SimulatedCrash):
        for _ in compact(run):
            pass
    run.disk.faults.heal()
    return run.disk


def operations_of(start: Prepared) -> list[OperationKind]:
    run = deepcopy(start)
    first = len(run.disk.faults.operations)
    for _ in compact(run):
        pass
    return [operation.kind for operation in run.disk.faults.operations[first:]]


@pytest.mark.parametrize("power", ["on", "lose_all", "keep_all", "random"])
def test_c6_after_a_crash_there_are_the_old_segments_or_the_new(
    start: Prepared, states: list[Files], power: str
) -> None:
    met = set()
    for number, moment in moments(operations_of(start)):
        disk = crashed_at(start, number, moment)
        cut(disk, power)
        finish_swaps(disk, DIRECTORY)
        found = files_of(disk)
        assert found in states, f"{moment} operation {number}: {sorted(found)}"
        met.add(states.index(found))
        log = opened(disk, CONFIG, recovery_point=start.log.recovery_point)
        assert state_of(log) == start.state
        assert last_stable_offset(log) == log.end_offset == start.log.end_offset
    assert met == {0, 1, 2, 3}


def cut(disk: SimulatedDisk, power: str) -> None:
    match power:
        case "lose_all" | "keep_all" | "random":
            disk.crash(power)
        case _:
            disk.kill()


def test_c6_the_mending_may_be_interrupted_anywhere_too(
    start: Prepared, states: list[Files]
) -> None:
    interrupted = 0
    for number, kind in enumerate(operations_of(start)):
        if kind in {OperationKind.CREATE, OperationKind.WRITE, OperationKind.TRUNCATE}:
            continue  # no name has changed since the previous operation
        disk = crashed_at(start, number, "before")
        disk.kill()
        for mended in interrupted_mendings(disk):
            finish_swaps(mended, DIRECTORY)
            assert files_of(mended) in states
            interrupted += 1
    assert interrupted > 300


def interrupted_mendings(disk: SimulatedDisk) -> Iterator[SimulatedDisk]:
    """Crash at each operation of finish_swaps, by a kill and by a power cut."""
    whole = deepcopy(disk)
    first = len(whole.faults.operations)
    finish_swaps(whole, DIRECTORY)
    for number, power in product(range(first, len(whole.faults.operations)), ("on", "random")):
        interrupted = deepcopy(disk)
        interrupted.faults.crash_at(number)
        with pytest.raises(SimulatedCrash):
            finish_swaps(interrupted, DIRECTORY)
        interrupted.faults.heal()
        cut(interrupted, power)
        yield interrupted


def test_without_an_interrupted_swap_nothing_is_done(start: Prepared) -> None:
    disk = deepcopy(start).disk
    before = len(disk.faults.operations)
    finish_swaps(disk, DIRECTORY)
    assert len(disk.faults.operations) == before


def test_a_disk_that_fails_on_the_way_leaves_the_old_segments_or_the_log_offline(
    start: Prepared, states: list[Files]
) -> None:
    for number, kind in enumerate(operations_of(start)):
        run = deepcopy(start)
        run.disk.faults.fail_at(len(run.disk.faults.operations) + number)
        with pytest.raises(OSError, match="Input/output"):
            for _ in compact(run):
                pass
        if run.log.is_offline:
            finish_swaps(run.disk, DIRECTORY)
        else:
            assert kind is not OperationKind.RENAME  # nothing is renamed before all is written
            assert state_of(run.log) == start.state
        assert files_of(run.disk) in states


def test_leftovers_of_an_earlier_attempt_are_ignored(start: Prepared) -> None:
    run = deepcopy(start)
    stale = run.disk.create_file(f"{DIRECTORY}/00000000000000000000.txnindex.cleaned")
    stale.write_at(0, b"an index that the new segment must not have")
    *_, last = compact(run)
    assert "00000000000000000000.txnindex" not in last


def test_a_swap_whose_end_has_rotted_still_replaces_what_its_index_knows() -> None:
    disk = SimulatedDisk()
    writer = Writer(opened(disk, compacted(index_interval_bytes=0)))
    for number in range(6):
        writer.put((b"%d" % number, b"value"))
        if number in {1, 3}:
            writer.roll()
    writer.roll()
    compacted_logs.compact(disk, writer.log)
    (name, *_) = [name for name in files_of(disk) if name.endswith(".log")]
    for part in (".log", ".index", ".timeindex"):
        stem = f"{DIRECTORY}/{name[:20]}{part}"
        disk.rename(stem, stem + ".swap")
    disk.create_file(f"{DIRECTORY}/00000000000000000002.log").sync()
    swapped = f"{DIRECTORY}/{name}.swap"
    size_bytes = disk.open_file(swapped).size_bytes()
    disk.open_file(swapped).truncate(size_bytes - 5)
    finish_swaps(disk, DIRECTORY)
    assert "00000000000000000002.log" not in files_of(disk)
    assert len(files_of(disk)[name]) == size_bytes - 5


def test_a_decided_segment_lost_with_its_index_prevents_no_start() -> None:
    disk = SimulatedDisk()
    writer = Writer(opened(disk, CONFIG))
    writer.put((b"a", b"1"))
    writer.roll()
    writer.put((b"b", b"1"))
    for suffix in ("log", "index"):
        file = disk.create_file(f"{DIRECTORY}/{0:020d}.{suffix}.swap")
        file.write_at(0, b"\xff" * 80)
    disk.kill()
    finish_swaps(disk, DIRECTORY)
    assert not any(name.endswith(".swap") for name in disk.list_directory(DIRECTORY))
    log = opened(disk, CONFIG, recovery_point=2)
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert log.end_offset == 2
