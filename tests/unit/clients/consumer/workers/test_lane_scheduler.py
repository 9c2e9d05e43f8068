"""The records that may start, compared with a plain model in random scenarios."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.clients.consumer.state.partition_progress import PartitionProgress
from ottla.clients.consumer.workers.lane_scheduler import LaneScheduler, Work, WorkState
from ottla.clients.consumer.workers.settings import AHEAD_MAX, Ordering
from ottla.model.identifiers import TopicPartition
from ottla.wire.records.consumer_record import ConsumerRecord
from tests.examples import examples


def record(offset: int, key: bytes | None = None, partition: int = 0) -> ConsumerRecord:
    return ConsumerRecord("letters", partition, offset, 0, 0, key, None, (), 0)


def started(workload: LaneScheduler) -> list[int]:
    """Start all records that may start; return their offsets."""
    return [work.record.offset for work in start_all(workload)]


def start_all(workload: LaneScheduler) -> list[Work]:
    found = []
    while (work := workload.next(now=0)) is not None:
        found.append(work)
    return found


def workload_of(ordering: Ordering, *keys: bytes | None, workers: int = 8) -> LaneScheduler:
    workload, progress = LaneScheduler(ordering, workers, 100), PartitionProgress()
    for offset, key in enumerate(keys):
        workload.take(record(offset, key), progress, now=0)
    return workload


@pytest.mark.parametrize(
    ("ordering", "expected"),
    [("key", [0, 2, 3, 4]), ("partition", [0]), ("none", [0, 1, 2, 3, 4])],
)
def test_what_may_start_at_once(ordering: Ordering, expected: list[int]) -> None:
    assert started(workload_of(ordering, b"a", b"a", b"b", None, None)) == expected


def test_no_more_start_than_there_are_workers() -> None:
    workload = workload_of("none", *[None] * 5, workers=2)
    first = start_all(workload)
    assert len(first) == 2
    workload.finish(first[1])
    assert started(workload) == [2]


def test_the_next_record_of_a_key_starts_after_the_record_before_it() -> None:
    workload = workload_of("key", b"a", b"a", b"a")
    for offset in range(3):
        (work,) = start_all(workload)
        assert work.record.offset == offset
        workload.finish(work)
    assert (workload.in_progress, workload.running_count) == (0, 0)


def test_a_record_that_rests_gives_its_worker_back_and_keeps_its_lane() -> None:
    workload = workload_of("key", b"a", b"a", b"b", workers=1)
    (work,) = start_all(workload)
    workload.rest(work)
    (other,) = start_all(workload)
    assert other.record.key == b"b"
    workload.finish(other)
    assert started(workload) == []
    workload.wake(work)
    assert start_all(workload) == [work]
    assert work.attempts == 2


def test_after_a_failure_its_lane_never_goes_on() -> None:
    workload = workload_of("key", b"a", b"a", b"b", workers=1)
    (work,) = start_all(workload)
    workload.fail(work)
    (other,) = start_all(workload)
    workload.finish(other)
    assert (other.record.key, started(workload), workload.in_progress) == (b"b", [], 2)
    assert work.progress.first is not None
    assert work.progress.first.offset == 0


def test_a_record_taken_again_waits_for_its_running_handler() -> None:
    workload = workload_of("key", b"a", b"a")
    (stale,) = start_all(workload)
    workload.drop(lambda work: work.name == TopicPartition("letters", 0))
    assert (workload.in_progress, workload.at_work()) == (0, [stale])
    again = PartitionProgress()
    workload.take(record(0, b"a"), again, now=0)
    assert started(workload) == []
    workload.finish(stale)
    assert started(workload) == [0]
    assert again.unfinished_count == 1, "the old one does not count"


def test_every_partition_has_its_share_and_an_end_to_how_far_it_runs_ahead() -> None:
    workload = LaneScheduler("key", 4, 100)
    assert [workload.room_in(None, count) for count in (0, 1, 2, 50)] == [100, 100, 50, 25]
    progress = PartitionProgress()
    for offset in range(AHEAD_MAX):
        workload.take(record(offset), progress, now=0)
        if offset:
            (work,) = [one for one in start_all(workload) if one.record.offset]
            workload.finish(work)
    assert (progress.unfinished_count, workload.room_in(progress, 1)) == (1, 0)


class WorkloadStories(RuleBasedStateMachine):
    """Records of two partitions and three keys arrive, end, rest, fail and are dropped."""

    @initialize(ordering=st.sampled_from(["key", "partition", "none"]), workers=st.integers(1, 4))
    def begin(self, ordering: Ordering, workers: int) -> None:
        self.ordering = ordering
        self.workers = workers
        self.workload = LaneScheduler(ordering, workers, 20)
        self.progress = {number: PartitionProgress() for number in (0, 1)}
        self.next_offset = dict.fromkeys((0, 1), 0)
        self.undone: dict[int, list[int]] = {0: [], 1: []}
        self.last_started: dict[object, int] = {}
        self.running: list[Work] = []
        self.resting: list[Work] = []

    def lane(self, work: Work) -> object:
        key = work.record.key
        if self.ordering == "partition":
            return work.record.partition
        return None if self.ordering == "none" or key is None else (work.record.partition, key)

    @precondition(lambda self: self.workload.room)
    @rule(partition=st.sampled_from([0, 1]), key=st.sampled_from([None, b"a", b"b"]))
    def take(self, partition: int, key: bytes | None) -> None:
        offset = self.next_offset[partition]
        self.next_offset[partition] += 1
        self.undone[partition].append(offset)
        taken = record(offset, key, partition)
        self.workload.take(taken, self.progress[partition], now=0)

    @rule()
    def start(self) -> None:
        work = self.workload.next(now=0)
        if work is None:
            return
        lane = self.lane(work)
        if lane is not None:
            assert lane not in {self.lane(other) for other in self.running + self.resting}
            if work.attempts == 1 and not work.is_dropped:
                assert work.record.offset > self.last_started.get(lane, -1)
                self.last_started[lane] = work.record.offset
        assert work not in self.running
        self.running.append(work)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        work = data.draw(st.sampled_from(self.running))
        self.running.remove(work)
        self.workload.finish(work)
        if not work.is_dropped:
            self.undone[work.record.partition].remove(work.record.offset)

    @precondition(lambda self: any(not work.is_dropped for work in self.running))
    @rule(data=st.data())
    def rest(self, data: st.DataObject) -> None:
        work = data.draw(st.sampled_from([work for work in self.running if not work.is_dropped]))
        self.running.remove(work)
        self.resting.append(work)
        self.workload.rest(work)

    @precondition(lambda self: self.resting)
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        work = data.draw(st.sampled_from(self.resting))
        self.resting.remove(work)
        self.workload.wake(work)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        """As before a rebalance: the record never ends, and its partition is dropped next."""
        work = data.draw(st.sampled_from(self.running))
        self.running.remove(work)
        self.workload.abandon(work)
        self.lose(work.record.partition)

    @rule(partition=st.sampled_from([0, 1]))
    def lose(self, partition: int) -> None:
        """The partition is revoked, and comes back at the first unfinished record."""
        self.workload.drop(lambda work: work.record.partition == partition)
        self.resting = [work for work in self.resting if not work.is_dropped]
        first = min(self.undone[partition], default=self.next_offset[partition])
        self.next_offset[partition] = first
        self.undone[partition] = []
        self.progress[partition] = PartitionProgress()
        for lane in list(self.last_started):
            if lane == partition or (isinstance(lane, tuple) and lane[0] == partition):
                del self.last_started[lane]

    @invariant()
    def what_may_be_committed_never_passes_an_undone_record(self) -> None:
        for number, undone in self.undone.items():
            first = self.progress[number].first
            assert (None if first is None else first.offset) == min(undone, default=None)

    @invariant()
    def the_counts_are_right(self) -> None:
        assert self.workload.in_progress == sum(map(len, self.undone.values()))
        assert self.workload.running_count == len(self.running) <= self.workers
        assert set(self.workload.at_work()) == set(self.running)
        assert all(work.state is WorkState.RUNNING for work in self.running)

    def teardown(self) -> None:
        """At the end all accepted records are done: no lane is forgotten."""
        for work in self.resting:
            self.workload.wake(work)
        while works := start_all(self.workload) + self.running:
            self.running = []
            for work in works:
                self.workload.finish(work)
        assert self.workload.in_progress == 0
        assert all(progress.first is None for progress in self.progress.values())


WorkloadStories.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40)
TestWorkloadStories = WorkloadStories.TestCase
