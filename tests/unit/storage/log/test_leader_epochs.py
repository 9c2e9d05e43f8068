from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.runtime.disk import KernelDisk
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind, SimulatedCrash
from ottla.storage.files.checkpoints import CorruptCheckpointError, write_atomically
from ottla.storage.log.leader_epochs import UNKNOWN_END, LeaderEpochs
from tests.examples import examples

PATH = "/log/leader-epoch-checkpoint"
Pair = tuple[int, int]


def simulated(seed: int = 0) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    disk.make_directory("/log")
    disk.sync_directory("/")
    return disk


def write_unwritten(disk: SimulatedDisk, epochs: LeaderEpochs) -> None:
    """Write the checkpoint as a flush of the log does."""
    content = epochs.unwritten
    if content is not None:
        write_atomically(disk, epochs.path, content)
    epochs.written(content, is_certain=True)


def epochs_of(*pairs: Pair) -> LeaderEpochs:
    epochs = LeaderEpochs(simulated(), PATH)
    for epoch, start_offset in pairs:
        epochs.assign(epoch, start_offset)
    return epochs


def test_the_file_is_kafkas(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    epochs = LeaderEpochs.load(KernelDisk(), str(path))
    epochs.assign(0, 0)
    epochs.assign(5, 1234)
    assert path.read_bytes() == b"0\n2\n0 0\n5 1234\n"
    assert LeaderEpochs.load(KernelDisk(), str(path)).entries == ((0, 0), (5, 1234))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_new_partition_has_no_epochs_and_no_file() -> None:
    disk = simulated()
    epochs = LeaderEpochs.load(disk, PATH)
    epochs.truncate_from_start(5)
    epochs.truncate_from_end(5)
    assert epochs.entries == ()
    assert epochs.latest_epoch is None
    assert epochs.epoch_for(0) is None
    assert epochs.end_offset_for(0, 100) == UNKNOWN_END
    assert disk.list_directory("/log") == []


def test_the_empty_file_that_kafka_makes_holds_no_epochs() -> None:
    disk = simulated()
    disk.create_file(PATH)
    assert LeaderEpochs.load(disk, PATH).entries == ()


# -- the rules of KIP-101 and KIP-279 -------------------------------------------------------------


def test_an_epoch_ends_where_the_next_begins_and_the_latest_with_the_log() -> None:
    epochs = epochs_of((2, 10), (4, 30), (7, 50))
    assert epochs.end_offset_for(2, 99) == (2, 30)
    assert epochs.end_offset_for(4, 99) == (4, 50)
    assert epochs.end_offset_for(7, 99) == (7, 99)


def test_an_epoch_without_records_is_answered_by_its_predecessor() -> None:
    epochs = epochs_of((2, 10), (4, 30), (7, 50))
    assert epochs.end_offset_for(3, 99) == (2, 30)
    assert epochs.end_offset_for(6, 99) == (4, 50)


def test_an_epoch_before_the_log_ends_where_the_log_begins() -> None:
    assert epochs_of((2, 10), (4, 30)).end_offset_for(1, 99) == (1, 10)


@pytest.mark.parametrize("epoch", [-1, 5, 2**31 - 1])
def test_of_no_epoch_and_of_a_future_one_nothing_is_known(epoch: int) -> None:
    assert epochs_of((2, 10), (4, 30)).end_offset_for(epoch, 99) == UNKNOWN_END == (-1, -1)


def test_every_offset_has_its_epoch() -> None:
    epochs = epochs_of((2, 10), (4, 30))
    answers = {0: None, 9: None, 10: 2, 29: 2, 30: 4, 1000: 4}
    assert {offset: epochs.epoch_for(offset) for offset in answers} == answers
    assert epochs.latest_epoch == 4


def test_an_epoch_begins_once() -> None:
    epochs = epochs_of((2, 10), (2, 20))
    assert epochs.entries == ((2, 10),)


def test_an_epoch_that_began_earlier_than_thought_is_corrected() -> None:
    epochs = epochs_of((2, 10), (2, 5))
    assert epochs.entries == ((2, 5),)


def test_an_epoch_without_records_is_replaced_by_the_next_at_the_same_offset() -> None:
    assert epochs_of((2, 10), (3, 10), (4, 10)).entries == ((4, 10),)


def test_a_new_epoch_drops_contradicting_epochs() -> None:
    assert epochs_of((2, 10), (4, 30), (7, 50), (8, 20)).entries == ((2, 10), (8, 20))
    assert epochs_of((2, 10), (4, 30), (7, 50), (3, 60)).entries == ((2, 10), (3, 60))
    assert epochs_of((2, 10), (4, 30), (2, 60)).entries == ((2, 60),)


def test_cutting_the_end_drops_epochs_that_have_nothing_left() -> None:
    epochs = epochs_of((2, 10), (4, 30), (7, 50))
    epochs.truncate_from_end(51)
    assert epochs.latest_epoch == 7
    epochs.truncate_from_end(50)
    assert epochs.entries == ((2, 10), (4, 30))
    epochs.truncate_from_end(0)
    assert epochs.entries == ()


def test_cutting_the_start_moves_the_epoch_that_is_cut() -> None:
    epochs = epochs_of((2, 10), (4, 30), (7, 50))
    epochs.truncate_from_start(9)
    assert epochs.entries == ((2, 10), (4, 30), (7, 50))
    epochs.truncate_from_start(29)
    assert epochs.entries == ((2, 29), (4, 30), (7, 50))
    epochs.truncate_from_start(30)
    assert epochs.entries == ((4, 30), (7, 50))
    epochs.truncate_from_start(100)
    assert epochs.entries == ((7, 100),)


def test_a_noted_epoch_waits_for_a_flush_unless_it_overrules_another() -> None:
    disk = simulated()
    epochs = LeaderEpochs(disk, PATH)
    epochs.note(2, 10)
    epochs.note(4, 30)
    assert epochs.entries == ((2, 10), (4, 30))
    assert LeaderEpochs.load(disk, PATH).entries == ()
    epochs.note(3, 40)
    assert LeaderEpochs.load(disk, PATH).entries == epochs.entries == ((2, 10), (3, 40))
    assert epochs.unwritten is None


def test_what_a_recovery_relearns_waits_for_a_flush() -> None:
    disk = simulated()
    epochs = LeaderEpochs(disk, PATH)
    epochs.assign(2, 10)
    count = len(disk.faults.operations)
    epochs.forget_from(10)
    epochs.relearn(3, 10)
    assert epochs.entries == ((3, 10),)
    assert len(disk.faults.operations) == count
    assert epochs.unwritten == b"0\n1\n3 10\n"


def test_what_was_written_before_a_change_is_not_taken_for_all_of_it() -> None:
    epochs = epochs_of((2, 10))
    epochs.note(4, 30)
    content = epochs.unwritten
    assert content == b"0\n2\n2 10\n4 30\n"
    epochs.note(5, 40)
    epochs.written(content, is_certain=True)
    content = epochs.unwritten
    assert content is not None
    epochs.written(content, is_certain=False)
    assert epochs.unwritten == content
    epochs.written(content, is_certain=True)
    assert epochs.unwritten is None


# -- the file -------------------------------------------------------------------------------------


def test_what_changes_nothing_writes_nothing() -> None:
    disk = simulated()
    epochs = LeaderEpochs(disk, PATH)
    epochs.assign(2, 10)
    count = len(disk.faults.operations)
    epochs.assign(2, 10)
    epochs.assign(2, 11)
    epochs.truncate_from_end(11)
    epochs.truncate_from_start(10)
    assert len(disk.faults.operations) == count


def test_clearing_replaces_a_damaged_file() -> None:
    disk = simulated()
    disk.create_file(PATH).write_at(0, b"junk")
    with pytest.raises(CorruptCheckpointError):
        LeaderEpochs.load(disk, PATH)
    LeaderEpochs(disk, PATH).clear()
    assert LeaderEpochs.load(disk, PATH).entries == ()


def test_after_its_folder_moved_it_is_told_its_path() -> None:
    disk = simulated()
    epochs = LeaderEpochs(disk, PATH)
    epochs.assign(2, 10)
    disk.rename("/log", "/log-future")
    epochs.path = "/log-future/leader-epoch-checkpoint"
    epochs.assign(3, 20)
    assert LeaderEpochs.load(disk, epochs.path).entries == ((2, 10), (3, 20))


def test_when_writing_fails_nothing_has_changed() -> None:
    disk = simulated()
    epochs = LeaderEpochs(disk, PATH)
    epochs.assign(2, 10)
    disk.faults.fail_on(OperationKind.SYNC)
    with pytest.raises(OSError, match="Input/output"):
        epochs.assign(3, 20)
    assert epochs.entries == LeaderEpochs.load(disk, PATH).entries == ((2, 10),)


def test_a_crash_at_any_operation_leaves_the_old_epochs_or_the_new() -> None:
    rehearsal = simulated()
    epochs = LeaderEpochs(rehearsal, PATH)
    epochs.assign(2, 10)
    first = len(rehearsal.faults.operations)
    epochs.assign(3, 20)
    for number in range(first, len(rehearsal.faults.operations)):
        for seed in range(20):
            disk = simulated(seed)
            epochs = LeaderEpochs(disk, PATH)
            epochs.assign(2, 10)
            disk.faults.crash_at(number, "after" if seed % 2 else "during")
            with pytest.raises(SimulatedCrash):
                epochs.assign(3, 20)
            disk.crash("random")
            left = LeaderEpochs.load(disk, PATH).entries
            assert left in {((2, 10),), ((2, 10), (3, 20))}


@pytest.mark.parametrize(
    "lines",
    ["2 10\n2 20\n", "2 10\n3 10\n", "3 10\n2 20\n", "2 10\n3 5\n", "-1 10\n3 20\n", "2 -1\n3 5\n"],
)
def test_epochs_out_of_order_are_corrupt(lines: str) -> None:
    disk = simulated()
    disk.create_file(PATH).write_at(0, f"0\n2\n{lines}".encode())
    with pytest.raises(CorruptCheckpointError, match=r"leader-epoch-checkpoint, line [34]"):
        LeaderEpochs.load(disk, PATH)


# -- against a model ------------------------------------------------------------------------------

OFFSETS = st.integers(0, 40)
CHANGES = st.one_of(
    st.tuples(st.sampled_from(["assign", "note", "relearn"]), st.integers(0, 12), OFFSETS),
    st.tuples(st.sampled_from(["truncate_from_end", "forget_from"]), OFFSETS),
    st.tuples(st.just("truncate_from_start"), OFFSETS),
    st.tuples(st.just("clear")),
    st.tuples(st.just("load")),
)


class NaiveEpochs:
    """The model: a list of pairs, searched in full."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []

    def assign(self, epoch: int, start: int) -> None:
        if self.pairs and self.pairs[-1][0] == epoch and self.pairs[-1][1] <= start:
            return
        while self.pairs and (self.pairs[-1][0] >= epoch or self.pairs[-1][1] >= start):
            self.pairs.pop()
        self.pairs.append((epoch, start))

    note = relearn = assign

    def truncate_from_end(self, end: int) -> None:
        self.pairs = [pair for pair in self.pairs if pair[1] < end]

    forget_from = truncate_from_end

    def truncate_from_start(self, start: int) -> None:
        gone = [pair for pair in self.pairs if pair[1] <= start]
        self.pairs = [pair for pair in self.pairs if pair[1] > start]
        if gone:
            self.pairs.insert(0, (gone[-1][0], start))

    def clear(self) -> None:
        self.pairs = []

    def epoch_for(self, offset: int) -> int | None:
        return max((epoch for epoch, start in self.pairs if start <= offset), default=None)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> Pair:
        later = [pair for pair in self.pairs if pair[0] > epoch]
        earlier = [pair for pair in self.pairs if pair[0] <= epoch]
        if epoch < 0 or not self.pairs:
            return UNKNOWN_END
        if not later:
            is_latest = earlier[-1][0] == epoch
            return (epoch, log_end_offset) if is_latest else UNKNOWN_END
        return (earlier[-1][0] if earlier else epoch, later[0][1])


@settings(deadline=None, max_examples=examples(200))
@given(changes=st.lists(CHANGES, max_size=25))
def test_it_answers_as_a_list_of_pairs_does(changes: list[tuple[str, ...]]) -> None:
    disk = simulated()
    epochs, model = LeaderEpochs(disk, PATH), NaiveEpochs()
    for name, *arguments in changes:
        if name == "load":
            write_unwritten(disk, epochs)
            epochs = LeaderEpochs.load(disk, PATH)
        else:
            getattr(epochs, name)(*arguments)
            getattr(model, name)(*arguments)
        assert list(epochs.entries) == model.pairs
    write_unwritten(disk, epochs)
    assert LeaderEpochs.load(disk, PATH).entries == epochs.entries
    for one, other in pairwise(epochs.entries):
        assert one.epoch < other.epoch
        assert one.start_offset < other.start_offset
    for number in range(-1, 45):
        assert epochs.epoch_for(number) == model.epoch_for(number)
        assert epochs.end_offset_for(number, 99) == model.end_offset_for(number, 99)
