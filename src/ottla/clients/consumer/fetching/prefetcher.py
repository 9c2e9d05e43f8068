"""Prefetching: one request at a time per broker, while the buffer has space.

After each notification the background task examines all partitions and starts the due work:
metadata, positions, fetches. It awaits none of them itself.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from contextvars import Context
from typing import Any, Final, NamedTuple

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.fetching.fetch_responses import FetchResponses
from ottla.clients.consumer.fetching.fetch_session import (
    Asked,
    ConsumerSession,
    version_max_for,
)
from ottla.clients.consumer.fetching.partition_leaders import Leader, Leaders
from ottla.clients.consumer.fetching.positions import PositionFinder
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import (
    NO_EPOCH,
    NO_REPLICA,
    AssignedPartition,
    Phase,
    SubscriptionState,
)
from ottla.clients.errors import NoResponseError, UnreachableError
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.rpc.connection import Connection
from ottla.wire.messages.fetch import FetchRequest, FetchResponse

LOOK_AGAIN_S: Final = 60.0
"""The longest sleep of the task without a notification."""
_log = logging.getLogger(__name__)


class _Wanted(NamedTuple):
    """The content of a fetch, and the state of each partition when it was made."""

    asked: dict[TopicPartition, Asked]
    found: dict[TopicPartition, tuple[AssignedPartition, int]]
    bytes_max: int


class Prefetcher:
    """Keeps the buffer filled. `wake`, like all of it, must run on the event loop's thread."""

    def __init__(
        self,
        view: ClusterView,
        state: SubscriptionState,
        settings: ConsumerSettings,
        leaders: Leaders,
        positions: PositionFinder,
        answers: FetchResponses,
    ) -> None:
        self._view = view
        self._state = state
        self._settings = settings
        self._leaders = leaders
        self._positions = positions
        self._answers = answers
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._connections: dict[int, Connection] = {}
        self._sessions: dict[int, ConsumerSession] = {}
        self._retry_broker_at: dict[int, float] = {}
        self._task = self._spawn(self._run())

    def wake(self) -> None:
        """Examine all partitions again: something has changed."""
        self._changed.set()

    async def close(self) -> None:
        """Cancel all work, including pending requests."""
        tasks = [self._task, *self._jobs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._connections.values():
            connection.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # In an empty context: otherwise the task would inherit the polling thread as its caller.
        return self._loop.create_task(work, context=Context())

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            wait_s = self._start_what_is_due() - self._loop.time()
            try:
                async with asyncio.timeout(max(wait_s, 0)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _start_what_is_due(self) -> float:
        """Start all due work, and return when the next is due."""
        now = self._loop.time()
        again = now + LOOK_AGAIN_S
        metadata_at = self._leaders.due_at()
        if metadata_at is not None and "metadata" not in self._jobs:
            if metadata_at <= now:
                self._start("metadata", self._leaders.refresh())
            else:
                again = min(again, metadata_at)
        with self._state.lock:
            partitions = list(self._state.assigned.values())
            self._start_committed([p for p in partitions if _is_ready(p, Phase.UNPLACED, now)])
            for phase in (Phase.RESETTING, Phase.VALIDATING):
                self._start_placing(phase, [p for p in partitions if _is_ready(p, phase, now)])
            self._start_fetches(partitions, now)
            self._state.must_tell = any(partition.must_tell for partition in partitions)
            self._state.is_room_awaited |= any(p.failure is not None for p in partitions)
        waiting = [p.retry_at for p in partitions if p.retry_at > now and p.failure is None]
        waiting += [at for at in self._retry_broker_at.values() if at > now]
        return min([again, *waiting])

    def _start(self, job: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._jobs[job] = self._spawn(work)
        task.add_done_callback(lambda _: self._end(job))

    def _end(self, job: str) -> None:
        task = self._jobs.pop(job)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a consumer's %s failed", job, exc_info=error)
        self.wake()
        self._answers.on_progress()

    def _start_committed(self, partitions: list[AssignedPartition]) -> None:
        if partitions and "committed" not in self._jobs:
            self._start("committed", self._positions.place_committed(partitions))

    def _start_placing(self, phase: Phase, partitions: list[AssignedPartition]) -> None:
        ask = self._positions.reset if phase is Phase.RESETTING else self._positions.validate
        for broker_id, led in self._by_leader(partitions).items():
            job = f"{phase.name} at {broker_id}"
            if job not in self._jobs:
                self._start(job, ask(broker_id, led))

    def _by_leader(
        self, partitions: Iterable[AssignedPartition]
    ) -> dict[int, list[AssignedPartition]]:
        led: dict[int, list[AssignedPartition]] = {}
        for partition in partitions:
            if (leader := self._leaders.of(partition.name)) is not None:
                led.setdefault(leader.broker_id, []).append(partition)
        return led

    # -- fetches --------------------------------------------------------------------------------

    def _start_fetches(self, partitions: list[AssignedPartition], now: float) -> None:
        for broker_id, rows in self._by_source(partitions, now).items():
            job = f"fetch from {broker_id}"
            if job not in self._jobs and (wanted := self._wanted(broker_id, rows, now)) is not None:
                self._start(job, self._fetch_on(broker_id, wanted))

    def _by_source(
        self, partitions: Iterable[AssignedPartition], now: float
    ) -> dict[int, list[tuple[AssignedPartition, Leader]]]:
        """Return the fetchable partitions by broker; the caller holds the lock."""
        by_broker: dict[int, list[tuple[AssignedPartition, Leader]]] = {}
        for partition in partitions:
            leader = self._leaders.of(partition.name)
            if leader is None or not partition.is_fetchable:
                continue
            if self._must_validate(partition, leader):
                partition.phase = Phase.VALIDATING
                self.wake()
                continue
            by_broker.setdefault(self._source(partition, leader, now), []).append(
                (partition, leader)
            )
        return by_broker

    def _wanted(
        self, broker_id: int, rows: list[tuple[AssignedPartition, Leader]], now: float
    ) -> _Wanted | None:
        """Return the next fetch for a broker, None if it has to wait; the caller holds the lock."""
        settings = self._settings
        buffered = sum(p.buffered_bytes for p, _ in rows)
        bytes_max = max(settings.fetch_max_bytes - buffered, 0)
        # Without the full partitions, the fetch could wait at the broker while they run dry.
        is_full = any(p.buffered_bytes > settings.max_partition_fetch_bytes for p, _ in rows)
        if is_full or (bytes_max == 0 and buffered > 0):
            self._state.is_room_awaited = True
            return None
        ready = [(p, leader) for p, leader in rows if p.retry_at <= now]
        if not ready or self._retry_broker_at.get(broker_id, 0.0) > now:
            return None
        return _Wanted(
            {p.name: self._asked(p, leader) for p, leader in ready},
            {p.name: (p, p.generation) for p, _ in ready},
            bytes_max,
        )

    def _asked(self, partition: AssignedPartition, leader: Leader) -> Asked:
        assert partition.fetch_position is not None
        return Asked(
            leader.topic_id,
            partition.fetch_position.offset,
            leader.epoch,
            self._settings.max_partition_fetch_bytes,
        )

    @staticmethod
    def _must_validate(partition: AssignedPartition, leader: Leader) -> bool:
        """Whether the leader has changed since the position was last validated."""
        assert partition.fetch_position is not None
        is_known = partition.fetch_position.leader_epoch != NO_EPOCH
        if partition.validated_epoch == NO_EPOCH or not is_known:
            partition.validated_epoch = leader.epoch
        return leader.epoch > partition.validated_epoch

    @staticmethod
    def _source(partition: AssignedPartition, leader: Leader, now: float) -> int:
        if partition.read_replica != NO_REPLICA and now >= partition.read_replica_until:
            partition.read_replica = NO_REPLICA
        return leader.broker_id if partition.read_replica == NO_REPLICA else partition.read_replica

    async def _fetch_on(self, broker_id: int, wanted: _Wanted | None) -> None:
        """Fetch repeatedly, while the buffer has space and partitions are fetchable."""
        while wanted is not None:
            await self._fetch(broker_id, wanted)
            # After the next fetch is sent, because the notified thread competes for the
            # interpreter.
            self._loop.call_soon(self._answers.on_progress)
            asked_before, wanted = wanted.asked, self._wanted_next(broker_id)
            if wanted is not None and wanted.asked.keys() != asked_before.keys():
                self.wake()  # other partitions changed state, and need other work

    def _wanted_next(self, broker_id: int) -> _Wanted | None:
        now = self._loop.time()
        with self._state.lock:
            rows = self._by_source(self._state.assigned.values(), now).get(broker_id)
            return None if rows is None else self._wanted(broker_id, rows, now)

    async def _fetch(self, broker_id: int, wanted: _Wanted) -> None:
        session = self._sessions.setdefault(broker_id, ConsumerSession())
        try:
            connection = await self._connection(broker_id, session)
            version = version_max_for(wanted.asked, connection.version_for(FetchRequest))
            response = await connection.ask(
                session.request(wanted.asked, self._settings, wanted.bytes_max),
                FetchResponse,
                timeout_ms=self._view.settings.request_timeout_ms
                + self._settings.fetch_max_wait_ms,
                version_max=version,
            )
        except (ApiError, UnreachableError, NoResponseError) as error:
            _log.info("broker %s cannot be fetched from: %s", broker_id, error)
            session.reset()
            pause_s = self._view.settings.retry_backoff_ms / 1000
            self._retry_broker_at[broker_id] = self._loop.time() + pause_s
            self._answers.leave(partition for partition, _ in wanted.found.values())
        except asyncio.CancelledError:
            session.reset()
            raise
        else:
            self._retry_broker_at.pop(broker_id, None)
            self._answers.take(session, wanted.found, response)

    async def _connection(self, broker_id: int, session: ConsumerSession) -> Connection:
        connection = self._connections.get(broker_id)
        if connection is None or not connection.is_open:
            session.reset()
            connection = await self._view.own_connection_to(broker_id)
            self._connections[broker_id] = connection
        return connection


def _is_ready(partition: AssignedPartition, phase: Phase, now: float) -> bool:
    is_wanted = partition.failure is None and not partition.is_being_revoked
    return partition.phase is phase and is_wanted and partition.retry_at <= now
