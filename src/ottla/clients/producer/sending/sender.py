"""Sends ready batches to the brokers: one request per broker, with many partitions in it.

`look` decides which batches to send. It runs after a notification, after each response, and at the
next deadline: a batch that has lingered, a retry, or an expiring batch. Nothing here is called per
record.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from threading import RLock
from typing import Final

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import UnreachableError
from ottla.clients.producer.batching.accumulator import (
    NEVER_MS,
    NO_PARTITION,
    Accumulator,
    Batch,
    OpenBatches,
)
from ottla.clients.producer.batching.delivery_wait import all_done
from ottla.clients.producer.batching.ready_batch import PartitionQueue, ReadyBatch
from ottla.clients.producer.sending.batch_completion import BatchCompletion
from ottla.clients.producer.sending.batch_sealing import BatchSealer
from ottla.clients.producer.sending.direct_send import DirectSends
from ottla.clients.producer.sending.in_flight_requests import InFlightRequest, InFlightRequests
from ottla.clients.producer.sending.leaders import NO_LEADER, Leaders
from ottla.clients.producer.sending.produce_requests import NO_ANSWER, Outcomes, ProduceRequests
from ottla.clients.producer.state.errors import DeliveryTimeoutError
from ottla.clients.producer.state.producer_identity import Identity
from ottla.clients.producer.state.settings import ProducerSettings
from ottla.clients.threads.loop_thread import NO_EPOLL, create_background_task
from ottla.environment.clock import Clock
from ottla.model.api_error import ApiError

REQUEST_OVERHEAD_BYTES: Final = 1024
"""The approximate share of max.request.size for names and lengths."""


class Sender:
    """Sends the records of an accumulator. All of it runs in one event loop."""

    def __init__(
        self,
        view: ClusterView,
        clock: Clock,
        settings: ProducerSettings,
        accumulator: Accumulator,
        identity: Identity,
        epoll: int = NO_EPOLL,
    ) -> None:
        self.leaders = Leaders(view, accumulator, settings, self.look)
        self.completion = BatchCompletion(
            view, clock, settings, accumulator, self.leaders, identity
        )
        self.is_short_of_memory = False
        """Whether a caller is blocked on buffer.memory, so that no batch lingers."""
        self.lock = RLock()
        """Held by each change of batches and requests in flight, in whichever thread."""
        self.is_busy = False
        """Whether the loop's thread is inside a change: a callback there must not send directly."""
        self.request_count = 0
        self.flights = InFlightRequests(view.settings.request_timeout_ms)
        self._view = view
        self._clock = clock
        self._settings = settings
        self._accumulator = accumulator
        self._calls = ProduceRequests(view, settings.acks)
        self._packing = BatchSealer(view, settings, accumulator, self.completion, self.look)
        self._loop = asyncio.get_running_loop()
        self._direct_sends = DirectSends(self, clock, settings, accumulator, self._calls, epoll)
        self._request_bytes_max = settings.max_request_size - REQUEST_OVERHEAD_BYTES
        self._slow: dict[int, int] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._order = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._next_ms: float = NEVER_MS
        self._timer_at_ms: float = NEVER_MS
        self._is_looking = False
        self._is_to_look_again = False
        self._is_closed = False

    @property
    def identity(self) -> Identity:
        """The producer id and epoch of batches, set before the first record."""
        return self.completion.identity

    @identity.setter
    def identity(self, identity: Identity) -> None:
        self.completion.identity = identity

    @property
    def in_flight_count(self) -> int:
        """The number of requests in flight."""
        return len(self.flights) + sum(self._slow.values())

    # -- deciding -------------------------------------------------------------------------------

    def look(self) -> None:
        """Send the ready batches, within the limits of each broker, and schedule the next look."""
        if self._is_looking:  # called again by a failure inside `look`
            self._is_to_look_again = True
            return
        with self.lock:
            self.is_busy = self._is_looking = self._is_to_look_again = True
            try:
                while self._is_to_look_again:
                    self._is_to_look_again = False
                    self._look()
            finally:
                self._is_looking = False
                self.is_busy = self._is_closed

    def _look(self) -> None:
        accumulator = self._accumulator
        accumulator.is_rung = False
        if self._is_closed:
            return
        accumulator.next_look_ms = NEVER_MS  # first, so that a concurrent append wakes the sender
        self._next_ms = NEVER_MS
        now_ms = self._clock.monotonic_ms()
        self._come_back(self.flights.end_late(now_ms))
        self._come_back(self._direct_sends.review(now_ms))
        is_more = True
        while is_more:
            requests, is_more = self._requests(now_ms)
            for broker_id, ready_batches in requests.items():
                self._start(broker_id, ready_batches, now_ms)
        self._set_timer(now_ms)

    def _requests(self, now_ms: int) -> tuple[dict[int, list[ReadyBatch]], bool]:
        """Take batches for at most one request per broker; return whether more are ready."""
        requests: dict[int, list[ReadyBatch]] = {}
        room_by_broker: dict[int, int] = {}
        served: list[OpenBatches] = []
        is_more = False
        for lane in list(self._accumulator.active):
            queue: PartitionQueue = lane.queue or self._queue(lane)
            self._expire(lane, queue, now_ms)
            if not self._is_ready(lane, queue, now_ms):
                self._retire(lane, queue)
                continue
            leader_id = self.leaders.leader_of(queue.name)
            if leader_id == NO_LEADER:
                self._leave(lane)
                continue
            if not self._has_slot(leader_id):
                continue
            size = queue.next_bytes(lane)
            room = room_by_broker.get(leader_id, self._request_bytes_max)
            if size > room and leader_id in requests:
                is_more = True
            elif (ready_batch := self._packing.take(lane, queue)) is not None:
                requests.setdefault(leader_id, []).append(ready_batch)
                queue.leader_epoch = self.leaders.epoch_of(queue.name)
                room_by_broker[leader_id] = room - size
                served.append(lane)
        self._rotate(served)
        return requests, is_more or any(lane.closed for lane in served)

    def _rotate(self, served: list[OpenBatches]) -> None:
        """Move the served partitions to the end, so that others come first next time."""
        active = self._accumulator.active
        if len(served) < len(active):
            for lane in served:
                active.pop(lane, None)
                active[lane] = None

    def _is_ready(self, lane: OpenBatches, queue: PartitionQueue, now_ms: int) -> bool:
        if now_ms < queue.retry_at_ms:
            self._come_back(queue.retry_at_ms)
            return False
        is_held = bool(queue.waiting) or queue.must_renumber or queue.is_first_awaited
        # A retry, and a batch that needs new sequences, may only go when no later sequence is in
        # flight: the broker would take the gap as an error.
        if queue.flying and (is_held or self._packing.is_stale(queue)):
            return False
        if queue.waiting or lane.closed:
            return True
        batch = lane.open
        if batch is None:
            return False
        due_ms = batch.created_ms + self._settings.linger_ms
        if batch.is_due or self.is_short_of_memory or due_ms <= now_ms:
            return True
        self._come_back(due_ms)
        return False

    def _leave(self, lane: OpenBatches) -> None:
        """Choose another partition for the next records without a key."""
        if lane.sticky_of.sticky == lane.partition:
            lane.sticky_of.sticky = NO_PARTITION

    def _has_slot(self, broker_id: int) -> bool:
        in_flight = len(self.flights.to(broker_id)) + self._slow.get(broker_id, 0)
        return in_flight < self._settings.max_in_flight_requests_per_connection

    def _expire(self, lane: OpenBatches, queue: PartitionQueue, now_ms: int) -> None:
        """Fail, in order, the batches older than delivery.timeout.ms."""
        limit_ms = now_ms - self._settings.delivery_timeout_ms
        for ready_batch in queue.flying:
            if ready_batch.batch.created_ms <= limit_ms and not ready_batch.batch.is_done:
                self.completion.give_up(ready_batch, self._timeout(ready_batch.batch, ready_batch))
        while queue.waiting and queue.waiting[0].batch.created_ms <= limit_ms:
            late = queue.waiting.popleft()
            self.completion.give_up(late, self._timeout(late.batch, late))
            self.completion.release(late.charged_bytes)
        if lane.open is not None and lane.open.created_ms <= limit_ms:
            self._accumulator.close_open(lane)
        while lane.closed and lane.closed[0].created_ms <= limit_ms:
            batch = lane.take()
            assert batch is not None
            self.completion.drop(batch, self._timeout(batch, None))
        oldest = queue.oldest(lane)
        if oldest is not None and not oldest.is_done:
            self._come_back(oldest.created_ms + self._settings.delivery_timeout_ms)

    def _timeout(self, batch: Batch, ready_batch: ReadyBatch | None) -> DeliveryTimeoutError:
        last = ready_batch.last_failure if ready_batch is not None else None
        last = last or self.completion.last_failure or self.leaders.last_failure
        is_in_doubt = ready_batch is not None and ready_batch.is_in_doubt
        return _timeout_error(
            batch, self._settings.delivery_timeout_ms, last, is_in_doubt=is_in_doubt
        )

    def _retire(self, lane: OpenBatches, queue: PartitionQueue) -> None:
        if not queue.waiting and not queue.flying:
            self._accumulator.retire(lane)

    def _queue(self, lane: OpenBatches) -> PartitionQueue:
        queue = PartitionQueue(lane)
        lane.queue = queue
        return queue

    def _come_back(self, at_ms: float) -> None:
        self._next_ms = min(self._next_ms, at_ms)

    def _set_timer(self, now_ms: int) -> None:
        """Schedule the next look. An earlier timer is kept: an early call does no harm."""
        if self._next_ms < self._timer_at_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at_ms = self._next_ms
            delay_ms = max(self._next_ms - now_ms, 0)
            self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)
        self._accumulator.next_look_ms = int(self._timer_at_ms)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at_ms = NEVER_MS
        self.look()

    # -- sending --------------------------------------------------------------------------------

    def _start(self, broker_id: int, ready_batches: list[ReadyBatch], now_ms: int) -> None:
        """Send at once if possible; otherwise send in a task, in order."""
        if self._slow.get(broker_id, 0) == 0 and self._start_now(broker_id, ready_batches, now_ms):
            return
        self._slow[broker_id] = self._slow.get(broker_id, 0) + 1
        task = create_background_task(self._exchange(broker_id, ready_batches))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _start_now(self, broker_id: int, ready_batches: list[ReadyBatch], now_ms: int) -> bool:
        if self._calls.acks == NO_ANSWER or not self.identity.sends_at_once():
            return False
        connection = self._view.open_connection_to(broker_id)
        if connection is None:
            return False
        flight = self.flights.make(broker_id, ready_batches, connection, now_ms)
        self.flights.begin(flight)
        for ready_batch in ready_batches:
            ready_batch.is_in_doubt = (
                True  # before the first byte leaves: it may be appended from then
            )
        try:
            is_sent = self._calls.ask_now(
                connection,
                self.identity,
                ready_batches,
                lambda outcomes, error: self.land(flight, outcomes, error),
            )
        except ApiError:  # the broker supports no Produce version of ours
            is_sent = False
        if is_sent:
            self._come_back(flight.late_at_ms)
        else:
            self.flights.end(flight)
        return is_sent

    def land(
        self, flight: InFlightRequest, outcomes: Outcomes | None, error: Exception | None
    ) -> None:
        """Handle the response, or the error in its place."""
        with self.lock:
            if not self.flights.end(flight):
                return  # a direct send that was not possible
            self.is_busy = True  # until the next look
            self.request_count += 1
            if self._is_closed:
                return
            if outcomes is not None:
                self.completion.complete(flight.ready_batches, outcomes)
                self._direct_sends.offer(flight)
            else:
                failure = flight.failure or error or UnreachableError("there was no response")
                self.completion.fail(flight.ready_batches, failure)
            self.look()

    async def _exchange(self, broker_id: int, ready_batches: list[ReadyBatch]) -> None:
        try:
            outcomes = await self._asked(broker_id, ready_batches)
        except Exception as error:  # noqa: BLE001 - any failure is reported to the records
            complete = partial(self.completion.fail, ready_batches, error)
        else:
            complete = partial(self.completion.complete, ready_batches, outcomes)
        finally:
            self._slow[broker_id] -= 1
            self.request_count += 1
        with self.lock:
            self.is_busy = True
            complete()
            self.look()

    async def _asked(self, broker_id: int, ready_batches: list[ReadyBatch]) -> Outcomes:
        if self.identity.is_transactional:
            names = [ready_batch.queue.name for ready_batch in ready_batches]
            async with self._order:  # requests are sent in the order of their creation
                await self.identity.before_send(names)
        connection = await self._view.connection_to(broker_id)
        for ready_batch in ready_batches:
            ready_batch.is_in_doubt = True
        return await self._calls.ask(connection, self.identity, ready_batches)

    # -- flush and close ------------------------------------------------------------------------

    async def flush(self) -> None:
        """Return when all pending records are delivered or have failed."""
        self._accumulator.is_rung = True  # appends need not wake the sender: `look` runs right now
        try:
            done = all_done(list(self._batches()))
        finally:
            self.look()
        await done

    async def drop(self, reason: Exception) -> None:
        """Fail all records that are not in flight, and wait for the records in flight."""
        for lane in self._accumulator.lanes():
            self._accumulator.close_open(lane)
            queue: PartitionQueue = lane.queue or self._queue(lane)
            self.completion.drop_all(queue.waiting, reason)
            queue.waiting.clear()
            while (batch := lane.take()) is not None:
                self.completion.drop(batch, reason)
        await all_done(list(self._batches()))

    def record_count(self) -> int:
        """Return the number of records without a result."""
        return sum(batch.record_count for batch in self._batches())

    async def close(self, reason: Exception) -> None:
        """Stop; the remaining records fail with this reason."""
        with self.lock:
            self._is_closed = self.is_busy = True
        self.leaders.close()
        if self._timer is not None:
            self._timer.cancel()
        self._packing.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for lane in self._accumulator.lanes():
            if lane.queue is not None:
                self.completion.drop_all(lane.queue.flying, reason)
                lane.queue.flying.clear()
        await self.drop(reason)

    def _batches(self) -> Iterator[Batch]:
        """Yield all unfinished batches, latest first per partition, so that none is missed."""
        for lane in self._accumulator.lanes():
            if (batch := lane.open) is not None:
                yield batch
            yield from list(lane.closed)
            queue: PartitionQueue | None = lane.queue
            if queue is not None:
                yield from [one.batch for one in list(queue.waiting)]  # a copy, for other threads
                yield from [one.batch for one in list(queue.flying)]


def _timeout_error(
    batch: Batch, timeout_ms: int, last: Exception | None, *, is_in_doubt: bool
) -> DeliveryTimeoutError:
    """Return the error of an expired batch, with the last failure as the reason."""
    may = " (they may have been written)" if is_in_doubt else ""
    return DeliveryTimeoutError(
        f"{batch.record_count} records for {batch.topic}-{batch.partition} were not confirmed "
        f"within delivery.timeout.ms, {timeout_ms}{may}; last: {last or 'no leader was found'}"
    )
