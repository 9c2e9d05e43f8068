"""Decides which record may be processed next: pure bookkeeping on the event loop's thread.

Records that must be processed in order share a lane, and only the first of a lane is ready:

    QUEUED ──next──► RUNNING ──finish──► (gone; the next record in the lane is ready)
      ▲                │ │ └───fail────► FAILED     its lane never goes on
      │ready again     │ └─────bury────► BURYING ──finish──► (gone)
      └──────────── RESTING ◄─rest

A record that is dropped while it waits is gone at once. A record that is dropped while a worker
runs it keeps its lane until it ends, so that no other record of the lane runs beside it.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ottla.clients.consumer.state.partition_progress import PartitionProgress
from ottla.clients.consumer.workers.settings import AHEAD_MAX, Ordering
from ottla.model.identifiers import TopicPartition
from ottla.wire.records.consumer_record import ConsumerRecord

Lane = tuple[str, int] | tuple[str, int, bytes]


class WorkState(Enum):
    """The state of a record; see the drawing above."""

    QUEUED = auto()
    RUNNING = auto()
    RESTING = auto()
    BURYING = auto()
    FAILED = auto()


AT_WORK: Final = (WorkState.RUNNING, WorkState.BURYING)
"""The states in which a worker runs the record, and must be waited for."""


@dataclass(slots=True, eq=False)
class Work:
    """One record, with its key and value as bytes."""

    record: ConsumerRecord
    progress: PartitionProgress
    lane: Lane | None
    state: WorkState = WorkState.QUEUED
    attempts: int = 0
    started_at: float = 0.0
    is_dropped: bool = False
    """Whether the partition has a new owner, which will process the record: ignore the result."""

    @property
    def name(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.record.topic, self.record.partition)

    def __str__(self) -> str:
        return f"{self.name} offset {self.record.offset}"


class LaneScheduler:
    """All unprocessed records."""

    def __init__(self, ordering: Ordering, workers: int, in_progress_max: int) -> None:
        self._ordering = ordering
        self._workers = workers
        self._in_progress_max = in_progress_max
        self._ready: deque[Work] = deque()
        self._waiting_by_lane: dict[Lane, deque[Work]] = {}
        """The records behind the first of each lane; a lane exists as long as its first record."""
        self._at_work: dict[Work, None] = {}
        self._resting: dict[Work, None] = {}
        self.running_count = 0
        self.in_progress = 0
        """The number of unprocessed records that were not dropped."""

    # -- from taken to done ---------------------------------------------------------------------

    def take(self, record: ConsumerRecord, progress: PartitionProgress, now: float) -> None:
        """Add a record; it must follow all others of its partition."""
        progress.take(record, now)
        self.in_progress += 1
        work = Work(record, progress, self._lane_of(record))
        if work.lane is not None:
            waiting = self._waiting_by_lane.get(work.lane)
            if waiting is not None:
                waiting.append(work)
                return
            self._waiting_by_lane[work.lane] = deque()
        self._ready.append(work)

    def next(self, now: float) -> Work | None:
        """Return the next record to process, None if none is ready or all workers are busy."""
        if not self._ready or self.running_count >= self._workers:
            return None
        work = self._ready.popleft()
        self._at_work[work] = None
        work.state, work.started_at = WorkState.RUNNING, now
        work.attempts += 1
        self.running_count += 1
        return work

    def rest(self, work: Work) -> None:
        """Put a running record into a backoff before its next attempt; its lane waits with it."""
        self._leave_worker(work)
        work.state = WorkState.RESTING
        self._resting[work] = None

    def wake(self, work: Work) -> None:
        """Make a record ready again after its backoff, unless it was dropped meanwhile."""
        if work.state is WorkState.RESTING and not work.is_dropped:
            del self._resting[work]
            work.state = WorkState.QUEUED
            self._ready.append(work)

    def bury(self, work: Work) -> None:
        """Release the worker while the record is written to the dead-letter topic."""
        self._leave_worker(work)
        work.state = WorkState.BURYING
        self._at_work[work] = None

    def finish(self, work: Work) -> None:
        """Mark a record as processed, and make the next record of its lane ready."""
        self._leave_worker(work)
        if not work.is_dropped:
            self.in_progress -= 1
            work.progress.finish(work.record.offset)
        self._free_lane(work)

    def fail(self, work: Work) -> None:
        """Mark a record as failed: it stays unprocessed, and its lane stops."""
        self._leave_worker(work)
        work.state = WorkState.FAILED

    # -- dropping records -----------------------------------------------------------------------

    def abandon(self, work: Work) -> None:
        """Drop a running record: it is unprocessed, and is read again."""
        self._leave_worker(work)
        self._forget(work)
        self._free_lane(work)

    def drop(self, goes: Callable[[Work], bool]) -> None:
        """Drop records: waiting ones at once, running ones when they end, unprocessed."""
        for waiting in self._waiting_by_lane.values():
            kept = [work for work in waiting if not goes(work)]
            self._forget_all(work for work in waiting if goes(work))
            waiting.clear()
            waiting.extend(kept)
        gone = [work for work in (*self._ready, *self._resting) if goes(work)]
        self._forget_all(gone)
        self._ready = deque(work for work in self._ready if not work.is_dropped)
        for work in gone:
            self._resting.pop(work, None)
            self._free_lane(work)
        self._forget_all(work for work in self._at_work if goes(work))

    def drop_waiting(self) -> None:
        """Drop all waiting records; running records still count when they end."""
        self.drop(lambda work: work.state not in AT_WORK)

    def at_work(self, names: Collection[TopicPartition] | None = None) -> list[Work]:
        """Return the running records, of some partitions or of all, dropped or not."""
        return [work for work in self._at_work if names is None or work.name in names]

    # -- how much -------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """The number of records that may be taken now."""
        return max(self._in_progress_max - self.in_progress, 0)

    def room_in(self, progress: PartitionProgress | None, partitions: int) -> int:
        """Return how many more records one partition may queue, given the number of partitions.

        Each partition has a share, so that a busy partition does not starve the others.
        """
        share = max(self._in_progress_max // max(min(partitions, self._workers), 1), 1)
        if progress is None:
            return share
        return max(min(share - progress.unfinished_count, AHEAD_MAX - progress.span), 0)

    # -- lanes ----------------------------------------------------------------------------------

    def _lane_of(self, record: ConsumerRecord) -> Lane | None:
        if self._ordering == "partition":
            return (record.topic, record.partition)
        if self._ordering == "none" or record.key is None:
            return None
        return (record.topic, record.partition, record.key)

    def _leave_worker(self, work: Work) -> None:
        self.running_count -= work.state is WorkState.RUNNING
        self._at_work.pop(work, None)

    def _free_lane(self, work: Work) -> None:
        if work.lane is None:
            return
        waiting = self._waiting_by_lane[work.lane]
        if waiting:
            self._ready.append(waiting.popleft())
        else:
            del self._waiting_by_lane[work.lane]

    def _forget_all(self, works: Iterable[Work]) -> None:
        for work in works:
            self._forget(work)

    def _forget(self, work: Work) -> None:
        if not work.is_dropped:
            work.is_dropped = True
            self.in_progress -= 1
