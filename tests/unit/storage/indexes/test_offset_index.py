from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.indexes.offset_index import OffsetIndex, OffsetPosition
from ottla.storage.indexes.sparse_index import CorruptIndexError

BASE = 100


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "00000000000000000100.index")


@pytest.fixture
def index(path: str) -> OffsetIndex:
    return OffsetIndex(KernelDisk(), path, BASE, entries_max=4)


def test_the_file_is_kafkas(index: OffsetIndex, path: str) -> None:
    index.append(105, 4096)
    index.append(2**31 - 1 + 100, 2**31 - 1)
    index.persist()
    assert Path(path).read_bytes() == bytes.fromhex("00000005 00001000 7fffffff 7fffffff")


def test_a_search_finds_the_last_entry_up_to_an_offset(index: OffsetIndex) -> None:
    index.append(105, 4096)
    index.append(111, 9000)
    answers = {50: (100, 0), 100: (100, 0), 104: (100, 0), 105: (105, 4096), 110: (105, 4096)}
    answers |= {111: (111, 9000), 2**60: (111, 9000)}
    assert {offset: index.lookup(offset) for offset in answers} == answers
    index.persist()
    index.append(120, 10_000)
    assert {offset: index.lookup(offset) for offset in (104, 110)} == {
        104: (100, 0),
        110: (105, 4096),
    }


def test_an_empty_index_sends_every_search_to_the_start(index: OffsetIndex) -> None:
    assert index.lookup(0) == index.lookup(99) == index.lookup(10**9) == (BASE, 0)
    assert index.last_offset == BASE
    assert index.offset_from(0) is None
    index.truncate_to(0)
    assert list(index.entries()) == []


def test_the_bound_of_a_slice_is_the_first_entry_behind_it(index: OffsetIndex) -> None:
    index.append(105, 4096)
    index.append(111, 9000)
    index.persist()
    index.append(119, 14_000)
    answers = {0: 105, 4096: 105, 4097: 111, 9000: 111, 9001: 119, 14_000: 119, 14_001: None}
    assert {position: index.offset_from(position) for position in answers} == answers


def test_truncating_drops_an_offset_and_all_later_entries(index: OffsetIndex, path: str) -> None:
    for offset in (105, 111, 119):
        index.append(offset, offset)
    index.truncate_to(112)
    assert index.last_offset == 111
    index.persist()
    index.truncate_to(111)
    assert index.last_offset == 105
    assert Path(path).stat().st_size == 8
    index.append(111, 111)
    index.truncate_to(BASE)
    assert (index.last_offset, index.entry_count) == (BASE, 0)
    assert Path(path).stat().st_size == 0


def test_a_full_index_leaves_entries_out(index: OffsetIndex) -> None:
    for offset in (105, 111, 119):
        index.append(offset, offset)
    assert not index.is_full
    index.append(120, 120)
    assert index.is_full
    index.append(130, 130)
    assert index.last_offset == 120


def test_an_offset_too_far_from_the_base_is_refused(index: OffsetIndex) -> None:
    assert index.can_append(BASE)
    assert index.can_append(BASE + 2**31 - 1)
    assert not index.can_append(BASE - 1)
    assert not index.can_append(BASE + 2**31)
    with pytest.raises(AssertionError, match="in a segment from 100"):
        index.append(BASE + 2**31, 5)


@pytest.mark.parametrize(
    ("offset", "position"), [(111, 9001), (105, 9001), (112, 9000), (112, 0), (112, 2**31)]
)
def test_entries_that_do_not_follow_are_refused(
    offset: int, position: int, index: OffsetIndex
) -> None:
    index.append(111, 9000)
    with pytest.raises(AssertionError):
        index.append(offset, position)
    assert list(index.entries()) == [(111, 9000)]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("00000005 00001000 00000005 00001001", "entry 1 is"),
        ("00000005 00001000 00000006 00001000", "entry 1 is"),
        ("00000005 00001000 00000000 00000000 00000007 00001002", "entry 1 is"),
        ("00000005 00010000", "the log ends before"),
        ("ffffffff 00001000", "negative"),
        ("00000005 ffffffff", "negative"),
        ("00000005 000010", "whole entries"),
    ],
)
def test_impossible_content_is_found(raw: str, reason: str, index: OffsetIndex, path: str) -> None:
    Path(path).write_bytes(bytes.fromhex(raw))
    with pytest.raises(CorruptIndexError, match=reason) as caught:
        index.check(0x10000)
    assert path in str(caught.value)


def test_a_search_does_not_return_an_impossible_entry(index: OffsetIndex, path: str) -> None:
    Path(path).write_bytes(bytes.fromhex("00000001 fffffff0 00000005 00000005"))
    assert index.lookup(200) == (105, 5)
    with pytest.raises(CorruptIndexError, match="negative"):
        index.lookup(104)


class IndexAgainstAList(RuleBasedStateMachine):
    """The same calls to an index and to a plain list of pairs, with equal results."""

    @initialize(is_simulated=st.booleans())
    def begin(self, is_simulated: bool) -> None:
        self.folder = TemporaryDirectory()
        self.path = f"{self.folder.name}/{BASE:020d}.index"
        self.disk = SimulatedDisk() if is_simulated else KernelDisk()
        self.disk.make_directory(self.folder.name)
        self.index = OffsetIndex(self.disk, self.path, BASE, 1000)
        self.pairs: list[OffsetPosition] = []
        self.persisted: list[OffsetPosition] = []

    @rule(step=st.integers(1, 40), count=st.integers(1, 150))
    def append(self, step: int, count: int) -> None:
        for _ in range(count):
            last = self.pairs[-1] if self.pairs else OffsetPosition(BASE - 1, -1)
            entry = OffsetPosition(last.offset + step, last.position + step)
            self.index.append(*entry)
            if len(self.pairs) < 1000:
                self.pairs.append(entry)

    @rule(distance=st.integers(-5, 2000))
    def truncate(self, distance: int) -> None:
        offset = self.end() - distance
        self.index.truncate_to(offset)
        self.pairs = [entry for entry in self.pairs if entry.offset < offset]
        self.persisted = [entry for entry in self.persisted if entry.offset < offset]

    @rule()
    def persist(self) -> None:
        self.index.persist()
        self.persisted = list(self.pairs)

    @rule()
    def release(self) -> None:
        self.index.release()

    @rule()
    def reset(self) -> None:
        self.index.reset()
        self.pairs = []
        self.persisted = []

    @rule()
    def reload_after_a_stop(self) -> None:
        self.persist()
        self.index = OffsetIndex(self.disk, self.path, BASE, 1000)

    @rule()
    def reload_after_the_process_died(self) -> None:
        self.index = OffsetIndex(self.disk, self.path, BASE, 1000)
        self.pairs = list(self.persisted)

    @rule(distance=st.integers(-5, 4000))
    def look_up(self, distance: int) -> None:
        offset = self.end() - distance
        before = [entry for entry in self.pairs if entry.offset <= offset]
        assert self.index.lookup(offset) == (before[-1] if before else (BASE, 0))

    @rule(position=st.integers(-1, 4000))
    def bound(self, position: int) -> None:
        behind = [entry for entry in self.pairs if entry.position >= position]
        assert self.index.offset_from(position) == (behind[0].offset if behind else None)

    @invariant()
    def counts_agree(self) -> None:
        assert self.index.entry_count == len(self.pairs)
        assert self.index.last_offset == (self.pairs[-1].offset if self.pairs else BASE)
        assert self.index.is_full == (len(self.pairs) >= 1000)

    @rule()
    def all_agree(self) -> None:
        assert list(self.index.entries()) == self.pairs
        self.index.check(self.pairs[-1].position + 1 if self.pairs else 0)

    def end(self) -> int:
        return self.pairs[-1].offset + 1 if self.pairs else BASE

    def teardown(self) -> None:
        self.folder.cleanup()


IndexAgainstAList.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None
)
TestIndexAgainstAList = IndexAgainstAList.TestCase


def test_entries_can_be_iterated_while_the_index_changes(index: OffsetIndex) -> None:
    for offset in (105, 111, 119):
        index.append(offset, offset)
    index.persist()
    entries = index.entries()
    assert next(entries) == (105, 105)
    index.reset()
    assert list(entries) == [(111, 111), (119, 119)]
