import errno
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk, SimulatedFile
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.indexes.sparse_index import TAIL_BYTES_MAX, CorruptIndexError, count_at_most
from ottla.storage.indexes.time_index import TimeIndex
from tests.descriptors import is_open
from tests.unit.storage.sparse_indexes import (
    BASE,
    PATH,
    Kind,
    both,
    check,
    content,
    fill,
    opened,
    simulated_disk,
    write,
)


@pytest.fixture
def simulated() -> SimulatedDisk:
    return simulated_disk()


class Reads:
    """The reads of a simulated disk: their sizes, and the number of file mappings."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.mappings = 0
        read_at, map_file = SimulatedFile.read_at, SimulatedDisk.map_file

        def counted_read(file: SimulatedFile, position: int, size_bytes: int) -> bytes:
            self.sizes.append(size_bytes)
            return read_at(file, position, size_bytes)

        def counted_mapping(disk: SimulatedDisk, path: str) -> memoryview:
            self.mappings += 1
            return map_file(disk, path)

        patch.setattr(SimulatedFile, "read_at", counted_read)
        patch.setattr(SimulatedDisk, "map_file", counted_mapping)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


@settings(deadline=None)
@given(numbers=st.lists(st.integers(0, 40), unique=True).map(sorted), limit=st.integers(-1, 41))
def test_bisection_counts_as_counting_does(numbers: list[int], limit: int) -> None:
    raw = b"".join(Struct(">ii").pack(7, number) for number in numbers)
    found = count_at_most(raw, len(numbers), 8, Struct(">i"), 4, limit)
    assert found == sum(number <= limit for number in numbers)


# -- reading little -------------------------------------------------------------------------------


@both
def test_making_an_index_touches_no_file(kind: Kind, simulated: SimulatedDisk) -> None:
    simulated.faults.fail_on(OperationKind.READ)
    opened(kind, simulated)


@both
def test_opening_reads_only_the_last_entry(
    kind: Kind, simulated: SimulatedDisk, reads: Reads
) -> None:
    writer = opened(kind, simulated)
    fill(writer, 5000)
    writer.persist()
    index = opened(kind, simulated)
    assert index.entry_count == 5000
    fill(index, 1, start=5000)
    assert not index.is_full
    assert reads.sizes == [kind.ENTRY_BYTES]
    assert reads.mappings == 0


@both
def test_the_end_before_kafkas_padding_is_found_by_few_reads(
    kind: Kind, simulated: SimulatedDisk, reads: Reads
) -> None:
    writer = opened(kind, simulated)
    fill(writer, 77)
    writer.persist()
    write(simulated, content(simulated) + bytes(kind.ENTRY_BYTES * 10_000))
    assert opened(kind, simulated).entry_count == 77
    assert len(reads.sizes) < 20
    assert set(reads.sizes) == {kind.ENTRY_BYTES}


@both
def test_a_search_maps_the_file_once_until_it_is_released(
    kind: Kind, simulated: SimulatedDisk, reads: Reads
) -> None:
    writer = opened(kind, simulated)
    fill(writer, 10)
    writer.persist()
    index = opened(kind, simulated)
    for target in range(4096):
        index.lookup(target)
    assert reads.mappings == 1
    index.release()
    index.lookup(1)
    assert reads.mappings == 2


@both
def test_entries_persisted_after_the_mapping_are_found(
    kind: Kind, simulated: SimulatedDisk
) -> None:
    index = opened(kind, simulated)
    for start in (0, 10, 20):
        fill(index, 10, start=start)
        index.persist()
        index.lookup(1)
    other = opened(kind, simulated)
    for entry in other.entries():
        assert index.lookup(entry[0]) == entry


@both
def test_entries_near_the_end_are_found_without_the_file(
    kind: Kind, simulated: SimulatedDisk, reads: Reads
) -> None:
    index = opened(kind, simulated)
    fill(index, 100)
    index.persist()
    last = list(index.entries())[-1]
    fill(index, 3, start=100)
    tail = list(index.entries())[-3:]
    reads.mappings = 0
    assert index.lookup(tail[0][0]) == tail[0]
    assert index.lookup(tail[1][0] + 1) == tail[1]
    assert index.lookup(10**9) == tail[2]
    index.truncate_to(last[1] + 1 if kind is TimeIndex else last[0] + 1)
    assert index.lookup(10**9) == last
    assert reads.mappings == 0


@both
def test_no_file_stays_open(kind: Kind, tmp_path: Path) -> None:
    index = opened(kind, KernelDisk(), str(tmp_path / "index"))
    fill(index, 100)
    index.persist()
    index.sync()
    index.lookup(5)
    index.truncate_to(BASE + 50)
    check(index)
    index.release()
    assert not is_open(tmp_path / "index")


# -- the file -------------------------------------------------------------------------------------


@both
def test_appending_writes_nothing_and_persisting_only_new_entries(
    kind: Kind, simulated: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[int, int]] = []
    write_at = SimulatedFile.write_at

    def noted(file: SimulatedFile, position: int, data: bytes) -> None:
        written.append((position, len(data)))
        write_at(file, position, data)

    monkeypatch.setattr(SimulatedFile, "write_at", noted)
    index = opened(kind, simulated)
    fill(index, 10)
    assert not simulated.exists(PATH)
    index.persist()
    fill(index, 5, start=10)
    index.persist()
    operations = len(simulated.faults.operations)
    index.persist()
    assert written == [(0, 10 * kind.ENTRY_BYTES), (10 * kind.ENTRY_BYTES, 5 * kind.ENTRY_BYTES)]
    assert len(simulated.faults.operations) == operations
    again = opened(kind, simulated)
    fill_all = opened(kind, simulated, "/log/other")
    fill(fill_all, 15)
    assert list(again.entries()) == list(fill_all.entries())


@both
def test_an_empty_index_has_an_empty_file_once_persisted(
    kind: Kind, simulated: SimulatedDisk
) -> None:
    index = opened(kind, simulated)
    index.persist()
    assert content(simulated) == b""
    assert index.entry_count == 0
    check(opened(kind, simulated))


@both
def test_a_long_tail_wants_to_be_persisted(kind: Kind, simulated: SimulatedDisk) -> None:
    index = opened(kind, simulated)
    fill(index, TAIL_BYTES_MAX // kind.ENTRY_BYTES)
    assert not index.wants_persist
    fill(index, 1, start=TAIL_BYTES_MAX // kind.ENTRY_BYTES)
    assert index.wants_persist
    index.persist()
    assert not index.wants_persist


@both
@pytest.mark.parametrize("failing", [OperationKind.WRITE, OperationKind.CREATE])
def test_a_persist_that_fails_half_way_is_made_good_by_the_next(
    kind: Kind, failing: OperationKind, simulated: SimulatedDisk
) -> None:
    index = opened(kind, simulated)
    fill(index, 33)
    simulated.faults.fail_on(failing, error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        index.persist()
    simulated.faults.heal()
    before = list(index.entries())
    index.truncate_to(BASE + 50)
    index.persist()
    assert list(opened(kind, simulated).entries()) == before[:5]
    assert len(content(simulated)) == 5 * kind.ENTRY_BYTES


@both
def test_synced_entries_survive_a_power_cut(kind: Kind, simulated: SimulatedDisk) -> None:
    index = opened(kind, simulated)
    fill(index, 20)
    index.persist()
    index.sync()
    simulated.sync_directory("/log")
    simulated.crash("lose_all")
    assert list(opened(kind, simulated).entries()) == list(index.entries())


@both
def test_a_mapped_file_can_be_cut_and_searched_again(kind: Kind, tmp_path: Path) -> None:
    index = opened(kind, KernelDisk(), str(tmp_path / "index"))
    fill(index, 5000)
    index.persist()
    before = list(index.entries())
    assert index.lookup(before[4000][0]) == before[4000]
    index.truncate_to(BASE + 1 + 10 * 7)
    assert list(index.entries()) == before[:7]
    assert index.lookup(before[5][0]) == before[5]
    fill(index, 1, start=8)
    index.persist()
    assert (tmp_path / "index").stat().st_size == 8 * kind.ENTRY_BYTES
    assert index.lookup(before[5][0]) == before[5]


@both
def test_entries_written_where_others_were_cut_are_the_ones_found(
    kind: Kind, simulated: SimulatedDisk
) -> None:
    index = opened(kind, simulated)
    fill(index, 10)
    index.persist()
    index.lookup(1)
    index.truncate_to(BASE)
    fill(index, 10, start=20)
    index.persist()
    other = opened(kind, simulated, "/log/other")
    fill(other, 10, start=20)
    for entry in other.entries():
        assert index.lookup(entry[0]) == entry


@both
def test_reset_drops_even_unreadable_entries(kind: Kind, simulated: SimulatedDisk) -> None:
    write(simulated, b"\xff" * 5 * kind.ENTRY_BYTES)
    index = opened(kind, simulated)
    with pytest.raises(CorruptIndexError):
        assert index.entry_count
    index.reset()
    assert not simulated.exists(index.path)
    assert index.entry_count == 0
    fill(index, 3)
    index.persist()
    check(opened(kind, simulated))


@both
def test_an_index_moves_with_its_file_or_without_one(kind: Kind, simulated: SimulatedDisk) -> None:
    index = opened(kind, simulated)
    index.rename("/log/b")
    fill(index, 3)
    index.persist()
    index.lookup(4097)
    index.rename("/log/c")
    fill(index, 3, start=3)
    index.persist()
    assert simulated.list_directory("/log") == ["c"]
    assert opened(kind, simulated, "/log/c").entry_count == 6
    index.remove()
    index.remove()
    assert simulated.list_directory("/log") == []
    assert index.entry_count == 0


@both
def test_after_its_folder_moved_an_index_is_told_its_path(
    kind: Kind, simulated: SimulatedDisk
) -> None:
    index = opened(kind, simulated)
    fill(index, 3)
    index.persist()
    simulated.rename("/log", "/log-delete")
    index.path = PATH.replace("/log", "/log-delete")
    fill(index, 3, start=3)
    index.persist()
    index.remove()
    assert simulated.list_directory("/log-delete") == []
