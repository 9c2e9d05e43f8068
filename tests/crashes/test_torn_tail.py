"""The last write may be cut at any byte, or hold garbage: recovery truncates it."""

from collections.abc import Callable
from random import Random

import pytest

from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.log.log import PartitionLog
from ottla.wire.records.control import ControlType
from tests.crashes.invariants import check_derived
from tests.log_building import DIRECTORY, NOW_MS, LogFolder, contents, fill, marker, stamped

LAST = f"{DIRECTORY}/{3:020d}.log"


def written() -> tuple[LogFolder, list[bytes]]:
    """Write five batches, the last two in their own segment; flush none."""
    folder = LogFolder(SimulatedDisk())
    log = folder.start()
    fill(log, 2, leader_epoch=1)
    fill(log, 1, leader_epoch=1, producer_id=8, base_sequence=0, is_transactional=True)
    log.append_as_follower(stamped(marker(ControlType.ABORT, 8), 3, 2), NOW_MS)
    fill(log, 1, leader_epoch=4, producer_id=9, base_sequence=5, record_count=2)
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    return folder, contents(log)


def recovered(folder: LogFolder) -> PartitionLog:
    folder.disk.kill()
    again = LogFolder(folder.disk)
    return again.start()


BATCHES = written()[1]
LAST_BYTES = len(BATCHES[-1])
BEFORE_BYTES = len(BATCHES[-2])


def check_cut(folder: LogFolder, kept: int) -> None:
    """The first batches remain, no others do, and appends continue after them."""
    log = recovered(folder)
    assert contents(log) == BATCHES[:kept]
    check_derived(log, BATCHES)
    fill(log, 3, leader_epoch=5)
    again = recovered(folder)
    assert contents(again)[:kept] == BATCHES[:kept]
    assert len(contents(again)) == kept + 3


@pytest.mark.parametrize("missing", range(LAST_BYTES + 1))
def test_a_last_batch_cut_off_at_any_byte(missing: int) -> None:
    folder, _ = written()
    file = folder.disk.open_file(LAST)
    file.truncate(file.size_bytes() - missing)
    check_cut(folder, 5 if missing == 0 else 4)


@pytest.mark.parametrize("missing", range(1, LAST_BYTES + 1))
def test_zeros_where_the_end_of_the_last_batch_should_be(missing: int) -> None:
    folder, _ = written()
    if any(BATCHES[-1][-missing:]):
        folder.disk.corrupt(LAST, BEFORE_BYTES + LAST_BYTES - missing, bytes(missing))
        check_cut(folder, 4)


@pytest.mark.parametrize("missing", range(1, LAST_BYTES + 1, 5))
def test_garbage_where_the_end_of_the_last_batch_should_be(missing: int) -> None:
    folder, _ = written()
    garbage = Random(missing).randbytes(missing)
    folder.disk.corrupt(LAST, BEFORE_BYTES + LAST_BYTES - missing, garbage)
    log = recovered(folder)
    assert contents(log) == BATCHES[:4]


@pytest.mark.parametrize(
    "tail",
    [
        lambda: bytes(1),
        lambda: bytes(11),
        lambda: bytes(61),
        lambda: bytes(5000),
        lambda: b"\xff" * 100,
        lambda: BATCHES[0],
        lambda: BATCHES[-1],
        lambda: BATCHES[-1][:8] + b"\x7f" + BATCHES[-1][9:],
    ],
    ids=["0", "11 zeros", "a header", "pages", "ones", "the first", "the last again", "too long"],
)
def test_something_else_behind_the_last_batch(tail: Callable[[], bytes]) -> None:
    folder, _ = written()
    file = folder.disk.open_file(LAST)
    file.write_at(file.size_bytes(), tail())
    check_cut(folder, 5)


def test_a_lost_write_in_the_middle_takes_everything_behind_it() -> None:
    folder, _ = written()
    folder.disk.corrupt(LAST, 0, bytes(BEFORE_BYTES))
    check_cut(folder, 3)


def test_a_segment_of_which_only_the_size_arrived() -> None:
    folder, _ = written()
    folder.disk.corrupt(LAST, 0, bytes(BEFORE_BYTES + LAST_BYTES))
    check_cut(folder, 3)


@pytest.mark.parametrize("size_bytes", range(0, 76 * 3, 19))
def test_a_hole_in_an_earlier_segment_takes_the_later_ones(size_bytes: int) -> None:
    folder, _ = written()
    folder.disk.open_file(f"{DIRECTORY}/{0:020d}.log").truncate(size_bytes)
    check_cut(folder, size_bytes // 76)
