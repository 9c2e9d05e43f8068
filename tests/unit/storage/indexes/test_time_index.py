from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.indexes.sparse_index import CorruptIndexError
from ottla.storage.indexes.time_index import TimeIndex, TimestampOffset

BASE = 100


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "00000000000000000100.timeindex")


@pytest.fixture
def index(path: str) -> TimeIndex:
    return TimeIndex(KernelDisk(), path, BASE, entries_max=4)


def test_the_file_is_kafkas(index: TimeIndex, path: str) -> None:
    index.append(1_700_000_000_000, 105)
    index.append(2**63 - 1, 2**31 - 1 + 100)
    index.persist()
    assert Path(path).read_bytes() == bytes.fromhex(
        "0000018bcfe56800 00000005 7fffffffffffffff 7fffffff"
    )


def test_a_search_finds_the_last_entry_up_to_a_timestamp(index: TimeIndex) -> None:
    index.append(1000, 105)
    index.append(2000, 111)
    answers = {-5: (-1, 100), 999: (-1, 100), 1000: (1000, 105), 1999: (1000, 105)}
    answers |= {2000: (2000, 111), 2**60: (2000, 111)}
    assert {timestamp: index.lookup(timestamp) for timestamp in answers} == answers
    index.persist()
    index.append(3000, 112)
    assert index.lookup(1999) == (1000, 105)


def test_an_empty_index_knows_no_timestamp(index: TimeIndex) -> None:
    assert index.last_entry == (-1, BASE)
    assert index.lookup(2**60) == (-1, BASE)


def test_only_a_greater_timestamp_at_a_greater_offset_is_added(index: TimeIndex) -> None:
    index.append(1000, 105)
    for timestamp_ms, offset in ((1000, 105), (1000, 106), (999, 106), (1001, 105), (1001, 104)):
        index.append(timestamp_ms, offset)
    assert list(index.entries()) == [(1000, 105)]
    index.append(1001, 106)
    assert index.last_entry == (1001, 106)


def test_records_without_a_timestamp_leave_no_entry(index: TimeIndex) -> None:
    index.append(-1, 105)
    assert index.entry_count == 0
    index.append(0, 105)
    assert index.last_entry == (0, 105)


def test_one_place_is_kept_for_the_entry_of_the_roll(index: TimeIndex) -> None:
    for number in range(3):
        index.append(1000 + number, 105 + number)
    assert index.is_full
    index.append(2000, 120)
    assert index.last_entry == (1002, 107)
    index.append(2000, 120, is_closing=True)
    assert index.last_entry == (2000, 120)


def test_an_offset_too_far_from_the_base_is_refused(index: TimeIndex) -> None:
    with pytest.raises(AssertionError, match="in a segment from 100"):
        index.append(5, BASE + 2**31)
    with pytest.raises(AssertionError, match="in a segment from 100"):
        index.append(5, BASE - 1)


def test_truncating_goes_by_offset(index: TimeIndex, path: str) -> None:
    index.append(5000, 105)
    index.append(6000, 111)
    index.persist()
    index.append(7000, 119)
    index.truncate_to(112)
    assert index.last_entry == (6000, 111)
    index.truncate_to(111)
    assert index.last_entry == (5000, 105)
    assert Path(path).stat().st_size == 12
    index.truncate_to(105)
    assert index.last_entry == (-1, BASE)


def test_a_single_entry_of_zeros_is_the_first_record_at_the_beginning_of_time(
    index: TimeIndex, path: str
) -> None:
    Path(path).write_bytes(bytes(12))
    index.check(BASE + 1)
    assert index.last_entry == (0, BASE)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("0000000000000005 00000001 0000000000000005 00000002", "entry 1 is"),
        ("0000000000000005 00000001 0000000000000006 00000001", "entry 1 is"),
        ("0000000000000005 00000010", "the log ends before"),
        ("ffffffffffffffff 00000001", "negative"),
        ("0000000000000005 ffffffff", "negative"),
        ("0000000000000005 000000", "whole entries"),
    ],
)
def test_impossible_content_is_found(raw: str, reason: str, index: TimeIndex, path: str) -> None:
    Path(path).write_bytes(bytes.fromhex(raw))
    with pytest.raises(CorruptIndexError, match=reason):
        index.check(BASE + 16)


class IndexAgainstAList(RuleBasedStateMachine):
    """The same calls to an index and to a plain list of pairs, with equal results."""

    @initialize(is_simulated=st.booleans())
    def begin(self, is_simulated: bool) -> None:
        self.folder = TemporaryDirectory()
        self.path = f"{self.folder.name}/{BASE:020d}.timeindex"
        self.disk = SimulatedDisk() if is_simulated else KernelDisk()
        self.disk.make_directory(self.folder.name)
        self.index = TimeIndex(self.disk, self.path, BASE, 300)
        self.pairs: list[TimestampOffset] = []

    @rule(
        later=st.integers(-3, 9),
        further=st.integers(-3, 9),
        is_closing=st.booleans(),
        count=st.integers(1, 120),
    )
    def append(self, later: int, further: int, is_closing: bool, count: int) -> None:
        for _ in range(count):
            last = self.pairs[-1] if self.pairs else TimestampOffset(-1, BASE - 1)
            entry = TimestampOffset(last.timestamp_ms + later, max(last.offset + further, BASE))
            self.index.append(*entry, is_closing=is_closing)
            is_greater = entry.timestamp_ms > last.timestamp_ms and entry.offset > last.offset
            if is_greater and (is_closing or len(self.pairs) < 299):
                self.pairs.append(entry)

    @rule(distance=st.integers(-5, 500))
    def truncate(self, distance: int) -> None:
        offset = (self.pairs[-1].offset if self.pairs else BASE) - distance
        self.index.truncate_to(offset)
        self.pairs = [entry for entry in self.pairs if entry.offset < offset]

    @rule()
    def persist(self) -> None:
        self.index.persist()

    @rule()
    def release(self) -> None:
        self.index.release()

    @rule()
    def reload(self) -> None:
        self.index.persist()
        self.index = TimeIndex(self.disk, self.path, BASE, 300)

    @rule(timestamp_ms=st.integers(-2, 4000))
    def look_up(self, timestamp_ms: int) -> None:
        before = [entry for entry in self.pairs if entry.timestamp_ms <= timestamp_ms]
        assert self.index.lookup(timestamp_ms) == (before[-1] if before else (-1, BASE))

    @rule()
    def all_agree(self) -> None:
        assert list(self.index.entries()) == self.pairs
        self.index.check(self.pairs[-1].offset + 1 if self.pairs else BASE)

    @invariant()
    def ends_agree(self) -> None:
        assert self.index.last_entry == (self.pairs[-1] if self.pairs else (-1, BASE))
        assert self.index.is_full == (len(self.pairs) >= 299)

    def teardown(self) -> None:
        self.folder.cleanup()


IndexAgainstAList.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None
)
TestIndexAgainstAList = IndexAgainstAList.TestCase
