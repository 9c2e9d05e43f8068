"""Ordered workers: concurrent processing, in order per key or partition, with gapless commits.

The event loop takes records and keeps the books; an executor (threads or tasks) calls the handler:

    poll ──► lanes ──► executor ──► done ──► PartitionProgress ──► committed
               ▲                      └─ failed ─► rest, dead letter, skip, or stop
               └──────── tried again ────┘

`step` is called repeatedly, and polls each time, however long handlers take. Only the event loop's
thread changes the state.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from logging import getLogger
from typing import Final

from ottla.clients.consumer.core.core import ConsumerCore
from ottla.clients.consumer.group.auto_commits import COMMIT_FAILURES
from ottla.clients.consumer.group.group_errors import RebalanceInProgressError
from ottla.clients.consumer.state.errors import RecordError
from ottla.clients.consumer.state.offsets import to_commit
from ottla.clients.consumer.state.partition_progress import PartitionProgress
from ottla.clients.consumer.state.subscription import AssignedPartition, Position, RebalanceListener
from ottla.clients.consumer.workers.dead_letters import DeadLetters
from ottla.clients.consumer.workers.errors import HandlerError, describe, handler_error, stuck_error
from ottla.clients.consumer.workers.executors import (
    Failure,
    HandlerExecutor,
    MakeExecutor,
    Readers,
    Stage,
)
from ottla.clients.consumer.workers.lane_scheduler import AT_WORK, LaneScheduler, Work
from ottla.clients.consumer.workers.settings import WorkSettings
from ottla.clients.consumer.workers.throttle import Throttle
from ottla.clients.threads.loop_thread import create_background_task
from ottla.environment.randomness import Randomness
from ottla.model.identifiers import TopicPartition
from ottla.wire.records.consumer_record import ConsumerRecord

STEP_SECONDS: Final = 0.2
"""The longest wait of a step."""
_log = getLogger(__name__)


@dataclass(slots=True)
class WorkCounts:
    """Counts since the start of the run."""

    done: int = 0
    retried: int = 0
    dead_lettered: int = 0
    skipped: int = 0


class OrderedWorkers:
    """One run: `begin`, then `step` while it returns True, then `end`, in the event loop."""

    def __init__(
        self,
        core: ConsumerCore,
        settings: WorkSettings,
        make_executor: MakeExecutor,
        dead_letters: DeadLetters | None,
        randomness: Randomness,
    ) -> None:
        self._core = core
        self._settings = settings
        self._make_executor = make_executor
        self._dead_letters = dead_letters
        self._randomness = randomness
        self._scheduler = LaneScheduler(
            settings.ordering, settings.workers, settings.in_progress_max
        )
        self._throttle = Throttle(core.state, self._scheduler)
        self._commits = DoneCommits(core)
        self._executor: HandlerExecutor | None = None
        self._burials: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving: frozenset[TopicPartition] = frozenset()
        self._assigned: dict[TopicPartition, AssignedPartition] | None = None
        self._failure: Exception | None = None
        self._stop_by: float | None = None
        """The deadline of running handlers after a stop; None before."""
        self.is_stopping = False
        self.counts = WorkCounts()

    # -- beginning and ending -------------------------------------------------------------------

    async def begin(self, listener: RebalanceListener) -> None:
        """Take over the consumer: its commits, its deserializers and its listener."""
        core = self._core
        core.start()
        self._loop = asyncio.get_running_loop()
        self._before = (listener, core.state.listener, core.buffer.readers)
        self._executor = self._make_executor(self._on_ended, core.buffer.readers)
        core.state.give_back()
        self._start_anew((None, None))
        core.state.listener = listener
        if core.group is not None:
            self._commits_before = core.group.set_auto_commit(is_wanted=True)
        if self.is_stopping:
            self._stop()

    def stop(self) -> None:
        """Take no more records, wait for handlers, and commit; from any thread."""
        self.is_stopping = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if self._stop_by is None:
            self.is_stopping = True
            self._stop_by = self._time() + self._settings.timeout
            self._throttle.close()
            self._scheduler.drop_waiting()
        self._core.wake_poll()

    async def end(self) -> None:
        """Commit the processed records, give the consumer back, and raise the failure, if any.

        The consumer continues at the first unprocessed record.
        """
        assert self._executor is not None
        stuck = self._scheduler.at_work()
        stuck_words = describe(stuck, self._time())
        self._scheduler.drop(lambda _: True)
        try:
            await self._commits.commit_all(self._settings.timeout, self._poll_without_taking)
        finally:
            self._give_back()
            for task in self._burials:
                task.cancel()
            await self._executor.end(stuck)
            if self._dead_letters is not None:
                await self._dead_letters.close()
        if self._failure is not None:
            if stuck:
                self._failure.add_note(stuck_words)
            raise self._failure
        if stuck:
            raise stuck_error(stuck, self._time())

    def _give_back(self) -> None:
        core = self._core
        ours, before, readers = self._before
        if core.state.listener is ours:
            core.state.listener = before
        if core.group is not None:
            core.group.set_auto_commit(is_wanted=self._commits_before)
        self._start_anew(readers)
        self._throttle.reopen()

    def _start_anew(self, readers: Readers) -> None:
        """Continue with these deserializers, from the first unprocessed record."""
        state = self._core.state
        with state.lock:
            self._core.buffer.readers = readers
            for name, position in state.consumed().items():
                partition = state.assigned[name]
                partition.place(position, partition.phase)
        state.on_change()

    # -- polling --------------------------------------------------------------------------------

    async def step(self) -> bool:
        """Poll once, and take as many records as there is room for; False at the end."""
        if self._is_over():
            return False
        until = self._time() + STEP_SECONDS
        try:
            self._throttle.update()
            await self._core.prepare(min(until, self._stop_by or until), self._has_turn)
            self._take()
        except RecordError as error:
            self._on_bad_record(error)
        except Exception as error:  # noqa: BLE001 - raised at the end
            if self._stop_by is not None:
                await self._next_ended(STEP_SECONDS)  # polling is over: wait for the handlers
            self._fail(error)
        return True

    async def _poll_without_taking(self) -> None:
        self._throttle.close()
        self._throttle.update()
        with suppress(Exception):
            await self._core.prepare(self._time() + STEP_SECONDS)

    def _is_over(self) -> bool:
        if self._stop_by is None:
            return False
        return self._time() >= self._stop_by or not self._scheduler.at_work()

    def _has_turn(self) -> bool:
        return self._is_over() or self._throttle.is_due()

    def _take(self) -> None:
        state = self._core.state
        self._drop_what_is_gone()
        while (count := self._throttle.update()) and self._core.buffer.has_records:
            with state.lock:  # otherwise the records could be seen as read, but not as unprocessed
                for record in self._core.take(count):
                    self._scheduler.take(record, self._progress_of(record), self._time())
            self._start_ready()

    def _progress_of(self, record: ConsumerRecord) -> PartitionProgress:
        partition = self._core.state.of(TopicPartition(record.topic, record.partition))
        progress = partition.progress
        if progress is None or progress.last_offset >= record.offset:
            progress = partition.progress = PartitionProgress()
        return progress

    def _drop_what_is_gone(self) -> None:
        """Drop records of partitions that were revoked, even if they are assigned again."""
        assigned = self._core.state.assigned
        if assigned is not self._assigned:
            self._assigned = assigned
            current = {id(row.progress) for row in assigned.values()}
            self._scheduler.drop(lambda work: id(work.progress) not in current)

    def _on_bad_record(self, error: RecordError) -> None:
        """Skip damaged bytes if on_error is skip; they cannot be a dead letter."""
        if self._settings.on_error == "skip":
            _log.error("skipped: %s", error)
            self.counts.skipped += 1
            state = self._core.state
            with state.lock:
                partition = state.of(error.partition)
                progress = partition.progress
                state.seek(error.partition, Position(error.next_offset))
                partition.progress = progress  # earlier records are still running
        else:
            self._fail(error)

    # -- working --------------------------------------------------------------------------------

    def _start_ready(self) -> None:
        assert self._executor is not None
        while (work := self._scheduler.next(self._time())) is not None:
            self._executor.begin(work)

    def _on_ended(self, work: Work, failure: Failure | None) -> None:
        if failure is None:
            self._scheduler.finish(work)
            self.counts.done += not work.is_dropped
        elif work.is_dropped:
            self._scheduler.abandon(work)
        else:
            self._on_failed(work, failure)
        self._go_on()

    def _go_on(self) -> None:
        self._start_ready()
        self._ended.set()
        if self._has_turn():
            self._core.wake_poll()

    def _on_failed(self, work: Work, failure: Failure) -> None:
        error = failure.error
        if not isinstance(error, Exception):
            self._give_up(work, failure)
        elif self._may_retry(work, failure):
            if self._stop_by is not None or work.name in self._leaving:
                self._scheduler.abandon(work)
            else:
                self._retry(work, error)
        elif self._dead_letters is not None:
            self._scheduler.bury(work)
            task = create_background_task(self._bury(self._dead_letters, work, failure))
            self._burials.add(task)
            task.add_done_callback(self._burials.discard)
        elif self._settings.on_error == "skip":
            _log.error("skipped: %s", handler_error(work, failure))
            self.counts.skipped += 1
            self._scheduler.finish(work)
        else:
            self._give_up(work, failure)

    def _may_retry(self, work: Work, failure: Failure) -> bool:
        if failure.stage is not Stage.HANDLER or work.attempts > self._settings.retries:
            return False
        assert isinstance(failure.error, Exception)
        try:
            return self._settings.is_retriable(failure.error)
        except Exception:  # noqa: BLE001 - of the application: then it is not
            _log.exception("retry_on failed for %r", failure.error)
            return False

    def _retry(self, work: Work, error: Exception) -> None:
        assert self._loop is not None
        backoff_ms = self._settings.backoff_after(work.attempts)
        backoff_ms *= (800 + self._randomness.below(401)) / 1000
        _log.info("%s: try %d failed, again in %.0f ms: %r", work, work.attempts, backoff_ms, error)
        self.counts.retried += 1
        self._scheduler.rest(work)
        self._loop.call_later(backoff_ms / 1000, self._try_again, work)

    def _try_again(self, work: Work) -> None:
        self._scheduler.wake(work)
        self._start_ready()

    async def _bury(self, dead_letters: DeadLetters, work: Work, failure: Failure) -> None:
        try:
            await dead_letters.put(work.record, failure)
        except Exception as error:  # noqa: BLE001 - raised at the end
            self._on_unburied(dead_letters, work, error)
        else:
            self.counts.dead_lettered += 1
            self._scheduler.finish(work)
        self._go_on()

    def _on_unburied(self, dead_letters: DeadLetters, work: Work, error: Exception) -> None:
        if work.is_dropped:
            self._scheduler.abandon(work)
            return
        reason = f"it cannot be written to {dead_letters.topic!r}: {type(error).__name__}"
        refusal = HandlerError(work.name, work.record.offset, f"{reason}: {error}")
        refusal.__cause__ = error
        self._scheduler.fail(work)
        self._fail(refusal)

    def _give_up(self, work: Work, failure: Failure) -> None:
        self._scheduler.fail(work)
        self._fail(handler_error(work, failure))

    def _fail(self, error: Exception) -> None:
        """Stop; `end` raises the first such error."""
        self._failure = self._failure or error
        self._stop()

    # -- partitions that go ---------------------------------------------------------------------

    async def revoke(self, names: Collection[TopicPartition]) -> None:
        """Prepare a revocation: drop waiting records, wait for running ones, then commit."""
        self._leaving = frozenset(names)
        rows = (self._core.state.assigned.get(name) for name in names)
        is_in_work = any(row is not None and row.progress is not None for row in rows)
        self._scheduler.drop(lambda work: work.name in names and work.state not in AT_WORK)
        seconds = min(self._settings.timeout, self._core.settings.max_poll_interval_ms / 2000)
        try:
            async with asyncio.timeout(seconds):
                while self._scheduler.at_work(names):
                    await self._next_ended()
        except TimeoutError:
            stuck = describe(self._scheduler.at_work(names), self._time())
            _log.warning(
                "records of revoked partitions are in progress; their next owner repeats them: %s",
                stuck,
            )
        finally:
            self._leaving = frozenset()
        self._scheduler.drop(lambda work: work.name in names)
        if is_in_work:
            await self._commits.commit(names, self._settings.timeout)

    async def lose(self, names: Collection[TopicPartition]) -> None:
        """Drop all records of partitions that other members own already."""
        self._scheduler.drop(lambda work: work.name in names)

    async def _next_ended(self, seconds: float | None = None) -> None:
        self._ended.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    # -- looking --------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Return the counts of running and processed records, from any thread."""
        oldest = [
            row.progress.oldest_at
            for row in tuple(self._core.state.assigned.values())
            if row.progress is not None
        ]
        since = min((at for at in oldest if at is not None), default=None)
        return {
            "records-in-progress": self._scheduler.in_progress,
            "records-done-total": self.counts.done,
            "records-retried-total": self.counts.retried,
            "records-dead-lettered-total": self.counts.dead_lettered,
            "records-skipped-total": self.counts.skipped,
            "oldest-unfinished-ms": 0 if since is None else (self._time() - since) * 1000,
        }

    def _time(self) -> float:
        assert self._loop is not None
        return self._loop.time()


class DoneCommits:
    """Commits processed records before a revocation, and at the end of a run.

    A failed commit is only logged: the records are read again.
    """

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core

    async def commit(self, names: Collection[TopicPartition], seconds: float) -> None:
        """Commit the processed records of these partitions, within the time limit."""
        await self._try(names, asyncio.get_running_loop().time() + seconds)

    async def commit_all(self, seconds: float, poll: Callable[[], Awaitable[object]]) -> None:
        """Commit everything; during a rebalance, complete it first, by polling."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not await self._try(list(self._core.state.assigned), deadline):
            if loop.time() >= deadline:
                _log.warning("commit failed: the group has not ended its rebalance")
                return
            await poll()

    async def _try(self, names: Collection[TopicPartition], deadline: float) -> bool:
        """Commit; False during a rebalance."""
        if self._core.group is None:
            return True
        done = self._core.state.consumed()
        offsets = to_commit({name: done[name] for name in names if name in done})
        try:
            async with asyncio.timeout_at(deadline):
                await self._core.commit(offsets)
        except RebalanceInProgressError:
            return False
        except (*COMMIT_FAILURES, TimeoutError) as error:
            _log.warning("commit failed: %s", str(error) or "there was no answer in time")
        return True
