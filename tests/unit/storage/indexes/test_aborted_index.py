import errno
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.indexes.aborted_index import ENTRY, ENTRY_BYTES, AbortedIndex, AbortedTransaction
from ottla.storage.indexes.sparse_index import CorruptIndexError
from tests.examples import examples

BASE = 100
PATH = "/log/00000000000000000100.txnindex"
FIRST = AbortedTransaction(7, 90, 110, 95)
SECOND = AbortedTransaction(8, 95, 120, 121)
THIRD = AbortedTransaction(7, 130, 140, 141)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "00000000000000000100.txnindex")


@pytest.fixture
def index(path: str) -> AbortedIndex:
    return AbortedIndex(KernelDisk(), path, BASE)


def simulated_index() -> tuple[SimulatedDisk, AbortedIndex]:
    disk = SimulatedDisk()
    disk.make_directory("/log")
    return disk, AbortedIndex(disk, PATH, BASE)


def test_the_file_is_kafkas(index: AbortedIndex, path: str) -> None:
    index.append(AbortedTransaction(1, 2, 300, 2**63 - 1))
    assert Path(path).read_bytes() == bytes.fromhex(
        "0000 0000000000000001 0000000000000002 000000000000012c 7fffffffffffffff"
    )


def test_a_segment_without_aborts_has_no_file(index: AbortedIndex, path: str) -> None:
    assert index.overlapping(0, 10**9) == ([], False)
    assert list(index.entries()) == []
    index.check()
    index.truncate_to(5)
    index.sync()
    index.reset()
    index.rename(path + ".deleted")
    index.remove()
    assert not list(Path(path).parent.iterdir())


def test_that_there_is_no_file_is_found_out_once() -> None:
    disk, index = simulated_index()
    index.overlapping(0, 10)
    disk.faults.fail_on(OperationKind.READ)
    assert index.overlapping(0, 10) == ([], False)


@pytest.mark.parametrize(
    ("start", "end", "found", "is_complete"),
    [
        (0, 90, [], True),
        (0, 91, [FIRST], True),
        (0, 96, [FIRST, SECOND], True),
        (110, 111, [FIRST, SECOND], True),
        (111, 121, [SECOND], True),
        (121, 122, [], True),
        (111, 131, [SECOND, THIRD], True),
        (121, 141, [THIRD], True),
        (121, 142, [THIRD], False),
        (141, 142, [], False),
    ],
)
def test_a_range_meets_the_transactions_it_cuts(
    start: int, end: int, found: list[AbortedTransaction], is_complete: bool, index: AbortedIndex
) -> None:
    for transaction in (FIRST, SECOND, THIRD):
        index.append(transaction)
    assert index.overlapping(start, end) == (found, is_complete)


def test_entries_are_there_for_the_next_process(index: AbortedIndex, path: str) -> None:
    index.append(FIRST)
    again = AbortedIndex(KernelDisk(), path, BASE)
    assert again.entry_count == 1
    again.append(SECOND)
    assert list(again.entries()) == [FIRST, SECOND]
    assert again.overlapping(0, 1000) == ([FIRST, SECOND], False)


def test_transactions_end_one_after_the_other(index: AbortedIndex) -> None:
    index.append(SECOND)
    with pytest.raises(AssertionError):
        index.append(FIRST)
    with pytest.raises(AssertionError):
        index.append(SECOND)


def test_a_marker_before_the_segment_is_refused(index: AbortedIndex) -> None:
    with pytest.raises(AssertionError, match="another segment"):
        index.append(AbortedTransaction(7, 90, 99, 100))


def test_truncating_drops_transactions_without_a_marker(index: AbortedIndex, path: str) -> None:
    for transaction in (FIRST, SECOND, THIRD):
        index.append(transaction)
    index.overlapping(0, 1)
    index.truncate_to(141)
    assert index.entry_count == 3
    index.truncate_to(140)
    assert list(index.entries()) == [FIRST, SECOND]
    index.truncate_to(111)
    assert list(AbortedIndex(KernelDisk(), path, BASE).entries()) == [FIRST]
    index.append(THIRD)
    assert index.overlapping(111, 150) == ([THIRD], False)
    index.truncate_to(110)
    assert not Path(path).exists()
    index.append(FIRST)
    assert list(index.entries()) == [FIRST]


def test_entries_written_where_others_were_cut_are_the_ones_found() -> None:
    _, index = simulated_index()
    index.append(FIRST)
    index.append(SECOND)
    index.overlapping(0, 1)
    index.truncate_to(120)
    index.append(THIRD)
    assert index.overlapping(0, 1000) == ([FIRST, THIRD], False)


def test_a_write_that_fails_leaves_no_part_of_an_entry() -> None:
    disk, index = simulated_index()
    index.append(FIRST)
    disk.faults.fail_on(OperationKind.WRITE, error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        index.append(SECOND)
    disk.faults.heal()
    assert list(index.entries()) == [FIRST]
    index.check()
    index.append(SECOND)
    assert list(AbortedIndex(disk, PATH, BASE).entries()) == [FIRST, SECOND]


def test_synced_entries_survive_a_power_cut() -> None:
    disk, index = simulated_index()
    index.append(FIRST)
    index.sync()
    disk.sync_directory("/log")
    disk.sync_directory("/")
    disk.crash("lose_all")
    assert list(AbortedIndex(disk, PATH, BASE).entries()) == [FIRST]


def test_an_index_moves_with_its_file(index: AbortedIndex, path: str) -> None:
    index.append(FIRST)
    index.overlapping(0, 1)
    index.release()
    index.rename(path + ".deleted")
    index.append(SECOND)
    assert index.entry_count == 2
    index.remove()
    assert not list(Path(path).parent.iterdir())


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (ENTRY.pack(1, *FIRST), "version 1"),
        (ENTRY.pack(-1, *FIRST), "version -1"),
        (ENTRY.pack(0, *FIRST) + ENTRY.pack(0, *FIRST), "should end after 110"),
        (ENTRY.pack(0, 7, 90, 99, 100), "should end after 99"),
        (ENTRY.pack(0, 7, 111, 110, 100), "first_offset=111"),
        (ENTRY.pack(0, 7, -1, 110, 100), "first_offset=-1"),
        (ENTRY.pack(0, *FIRST)[:-1], "whole entries"),
        (ENTRY.pack(0, *FIRST) + bytes(ENTRY_BYTES), "should end after"),
    ],
)
def test_impossible_content_is_found(
    raw: bytes, reason: str, index: AbortedIndex, path: str
) -> None:
    Path(path).write_bytes(raw)
    with pytest.raises(CorruptIndexError, match=reason) as caught:
        index.check()
    assert path in str(caught.value)


def test_a_file_that_is_shorter_than_it_was_is_corrupt(index: AbortedIndex, path: str) -> None:
    index.append(FIRST)
    Path(path).write_bytes(b"")
    with pytest.raises(CorruptIndexError):
        index.overlapping(0, 1000)


@settings(deadline=None, max_examples=examples(200))
@given(raw=st.binary(max_size=150), start=st.integers(-5, 2**62), length=st.integers(0, 2**62))
def test_any_content_of_the_file_gives_one_error(raw: bytes, start: int, length: int) -> None:
    disk, index = simulated_index()
    disk.create_file(PATH).write_at(0, raw)
    with suppress(CorruptIndexError):
        index.overlapping(start, start + length)
    with suppress(CorruptIndexError):
        index.check()
    with suppress(CorruptIndexError):
        index.truncate_to(start)
    index.reset()
    index.append(FIRST)
    index.check()


@st.composite
def transactions(draw: st.DrawFn) -> list[AbortedTransaction]:
    """Draw the entries of a log: markers in order, with last stable offsets that never decrease."""
    last_offsets = sorted(draw(st.sets(st.integers(BASE, 160), max_size=12)))
    result: list[AbortedTransaction] = []
    stable = 0
    for last_offset in last_offsets:
        stable = draw(st.integers(min(stable, last_offset + 1), last_offset + 1))
        first_offset = draw(st.integers(60, last_offset))
        result.append(
            AbortedTransaction(draw(st.integers(0, 3)), first_offset, last_offset, stable)
        )
    return result


@settings(deadline=None)
@given(all_of_them=transactions(), data=st.data())
def test_a_search_finds_what_a_scan_from_the_start_finds(
    all_of_them: list[AbortedTransaction], data: st.DataObject
) -> None:
    disk, index = simulated_index()
    for transaction in all_of_them:
        index.append(transaction)
    index.check()
    cut = data.draw(st.integers(BASE - 5, 170))
    index.truncate_to(cut)
    kept = [transaction for transaction in all_of_them if transaction.last_offset < cut]
    for searched in (index, AbortedIndex(disk, PATH, BASE)):
        start = data.draw(st.integers(50, 170))
        end = data.draw(st.integers(start + 1, 180))
        assert searched.overlapping(start, end) == scanned(kept, start, end)
        assert list(searched.entries()) == kept


def scanned(
    all_of_them: list[AbortedTransaction], start: int, end: int
) -> tuple[list[AbortedTransaction], bool]:
    found = []
    for transaction in all_of_them:
        if transaction.last_offset >= start and transaction.first_offset < end:
            found.append(transaction)
        if transaction.last_stable_offset >= end:
            return found, True
    return found, False
