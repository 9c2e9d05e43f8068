"""The common core of both producers: accumulator, sender, and waits for metadata and memory.

`append` may be called from any thread. Everything else runs in the event loop in which the core
was made.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import RETRIABLE, NoResponseError, error_code
from ottla.clients.producer.batching.accumulator import Accumulator, Batch, Delivery, OnDelivery
from ottla.clients.producer.sending.sender import Sender
from ottla.clients.producer.state.errors import BufferFullError, ProducerClosedError
from ottla.clients.producer.state.producer_identity import Identity, NoIdentity, PlainIdentity
from ottla.clients.producer.state.settings import ProducerSettings
from ottla.clients.producer.transactions.coordinator_client import CoordinatorClient
from ottla.clients.producer.transactions.transaction_errors import TransactionStateError
from ottla.clients.producer.transactions.transactions import Transactions
from ottla.clients.records.partitioner import make_partitioner
from ottla.clients.threads.loop_thread import NO_EPOLL, create_background_task
from ottla.concurrency.sleep import pause
from ottla.environment.clock import Clock
from ottla.environment.randomness import Randomness
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.runtime.clock import SystemClock
from ottla.wire.messages.metadata import MetadataResponseTopic
from ottla.wire.records.batch import Buffer
from ottla.wire.records.loops import RecordAccumulator

CLOSED: Final = "the producer is closed"
_NOT_YET: Final = RETRIABLE | {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.BROKER_NOT_AVAILABLE}


class ProducerCore:
    """One producer's records, from `append` to the broker's result."""

    def __init__(
        self,
        view: ClusterView,
        clock: Clock,
        randomness: Randomness,
        settings: ProducerSettings,
        wake: Callable[[Callable[[], None]], Any],
        epoll: int = NO_EPOLL,
    ) -> None:
        """`wake` schedules a function in this event loop; it is called in any thread.

        `epoll` is the loop's epoll descriptor, if other threads may receive their own responses.
        """
        self.view = view
        self.settings = settings
        self._randomness = randomness
        self._room: list[asyncio.Future[None]] = []
        self._is_closed = False
        self.now_ms = clock.now_ms
        self.partitioner = _partitioner(settings, randomness)
        self.accumulator = Accumulator(
            batch_bytes_max=min(settings.batch_size, settings.max_request_size),
            request_bytes_max=settings.max_request_size,
            memory_bytes_max=settings.buffer_memory,
            linger_ms=settings.linger_ms,
            now_ms=None if isinstance(clock, SystemClock) else clock.now_ms,
            monotonic_ms=clock.monotonic_ms,
            pick=self._pick,
            partitioner=self.partitioner,
            wake=lambda: wake(self.sender.look),
        )
        self.accumulator.loop = asyncio.get_running_loop()
        identity: Identity = PlainIdentity(view) if settings.enable_idempotence else NoIdentity()
        self.transactions: Transactions | None = None
        if settings.transactional_id is not None:
            coordinator = CoordinatorClient(view, settings.transactional_id)
            identity = self.transactions = Transactions(coordinator, settings, self)
        self.sender = Sender(view, clock, settings, self.accumulator, identity, epoll)
        self.sender.completion.on_room = self._tell_room

    async def append(
        self,
        topic: str,
        value: Buffer | str | None,
        key: Buffer | str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Append with waits for metadata and memory, up to max.block.ms."""
        async with self._limited(topic):
            await self.know(topic, partition)
            while True:
                delivery = self.accumulator.append(
                    topic, value, key, partition, timestamp_ms, headers, on_delivery
                )
                if delivery is not None:
                    return delivery
                await self._wait_for_room()

    async def add_batch(self, topic: str, partition: int, records: RecordAccumulator) -> Batch:
        """Queue a whole batch, with waits like `append`."""
        async with self._limited(topic):
            await self.know(topic, partition)
            while True:
                batch = self.accumulator.add_batch(topic, partition, records)
                if batch is not None:
                    return batch
                await self._wait_for_room()

    async def know(self, topic: str, partition: int | None = None) -> int:
        """Return the number of a topic's partitions, and check that this partition exists."""
        count = self.accumulator.partition_count(topic)
        if 0 <= (partition or 0) < count:
            return count
        self.sender.leaders.learn([await self._find(topic)])
        count = self.accumulator.partition_count(topic)
        if partition is not None and not 0 <= partition < count:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has {count} partitions, numbered from 0: there is no {partition}",
            )
        return count

    async def partition_count(self, topic: str) -> int:
        """Return the number of a topic's partitions; wait for metadata up to max.block.ms."""
        async with self._limited(topic):
            return await self.know(topic)

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic; wait for metadata up to max.block.ms."""
        async with self._limited(topic):
            found = await self._find(topic)
        return sorted(row.partition_index for row in found.partitions)

    async def flush(self, timeout: float | None = None) -> None:
        """Return when all records that were sent before are delivered or have failed."""
        try:
            async with asyncio.timeout(timeout):
                await self.sender.flush()
        except TimeoutError:
            raise NoResponseError(
                f"{self.sender.record_count()} records are not confirmed after {timeout:g} s"
            ) from None

    async def close(self, timeout: float | None = None) -> None:
        """Refuse new records, flush within the timeout, and fail the remaining records."""
        if self._is_closed:
            return
        self._is_closed = True
        self.accumulator.failure = ProducerClosedError(CLOSED)
        with suppress(NoResponseError):
            if self.transactions is not None:
                await self.transactions.leave(timeout)
            await self.flush(timeout)
        left = ProducerClosedError("the producer was closed before the record was confirmed")
        await self.sender.close(left)
        self._tell_room()
        self.view.close()

    def close_soon(self) -> None:
        """Close in the background, for a producer without references; in any thread."""
        assert self.accumulator.loop is not None
        if self.accumulator.loop.is_closed():
            self.view.abandon()
        else:
            self.accumulator.loop.call_soon_threadsafe(self._start_closing)

    def _start_closing(self) -> None:
        self._closing = create_background_task(self.close())
        self._closing.add_done_callback(lambda _: self.view.close())

    def refuse(self, reason: Exception | None) -> None:
        """Refuse new records with this error; None accepts them again."""
        if not self._is_closed:
            self.accumulator.failure = reason

    async def drop(self, reason: Exception) -> None:
        """Fail all records that are not in flight, and wait for the records in flight."""
        await self.sender.drop(reason)

    def transactional(self) -> Transactions:
        """Return the transactions; TransactionStateError if this producer has none."""
        if self.transactions is None:
            raise TransactionStateError("there are no transactions without a transactional.id")
        return self.transactions

    def metrics(self) -> dict[str, float]:
        """Return the counts of records and of the network, under Kafka's names."""
        counts = self.sender.completion.counts
        requests = self.sender.request_count
        return self.view.counts.by_name() | {
            "record-send-total": counts.records,
            "record-error-total": counts.record_errors,
            "record-retry-total": counts.record_retries,
            "batch-split-total": counts.batch_splits,
            "records-per-request-avg": counts.records / requests if requests else 0.0,
            "requests-in-flight": self.sender.in_flight_count,
            "buffer-total-bytes": self.settings.buffer_memory,
            "buffer-available-bytes": self.settings.buffer_memory - self.accumulator.used_bytes,
            "waiting-threads": len(self._room),
        }

    async def _find(self, topic: str) -> MetadataResponseTopic:
        """Request a topic until it exists; raise errors that are not retriable."""
        backoff_ms = self.view.settings.retry_backoff_ms
        while True:
            try:
                rows = await self.view.refresh(
                    [topic], allow_auto_creation=self.settings.allow_auto_create_topics
                )
                code = error_code(rows[0].error_code) if rows else ErrorCode.UNKNOWN_SERVER_ERROR
                if code is ErrorCode.NONE and rows[0].partitions:
                    return rows[0]
                if code not in _NOT_YET:
                    raise ApiError(code, f"topic {topic!r}")
                self._why = f"{code.name}"
            except OSError as error:
                self._why = str(error)
            await pause(backoff_ms)
            backoff_ms = min(2 * backoff_ms, self.view.settings.retry_backoff_max_ms)

    async def _wait_for_room(self) -> None:
        """Return when memory was released."""
        if self.accumulator.failure is not None:
            raise self.accumulator.failure
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.append(future)
        self.sender.is_short_of_memory = True
        self.accumulator.ring()
        try:
            if self.accumulator.used_bytes:  # otherwise all was released without a notification
                await future
        finally:
            self._room = [other for other in self._room if other is not future]
            self.sender.is_short_of_memory = bool(self._room)

    def _tell_room(self) -> None:
        for future in self._room:
            if not future.done():
                future.set_result(None)

    @asynccontextmanager
    async def _limited(self, topic: str) -> AsyncIterator[None]:
        """Limit a call to max.block.ms."""
        limit_ms = self.settings.max_block_ms
        self._why = "no answer"
        try:
            async with asyncio.timeout(limit_ms / 1000):
                yield
        except TimeoutError:
            if self.accumulator.partition_count(topic):
                raise BufferFullError(
                    f"no room for a record within max.block.ms, {limit_ms}: "
                    f"{self.accumulator.used_bytes} of buffer.memory, "
                    f"{self.settings.buffer_memory}, are taken by records that are not confirmed"
                ) from None
            raise NoResponseError(
                f"topic {topic!r} was not found within max.block.ms, {limit_ms}: {self._why}"
            ) from None

    def _pick(self, topic: str, count: int) -> int:
        """Choose the next partition for records without a key, among those with a leader."""
        if count == 1:
            return 0
        led = [row for row in self.sender.leaders.led_partitions(topic) if row < count]
        if not led:
            return self._randomness.below(count)
        return led[self._randomness.below(len(led))]


def _partitioner(settings: ProducerSettings, randomness: Randomness) -> Any:
    chosen = "sticky" if settings.partitioner_ignore_keys else settings.partitioner
    return make_partitioner(chosen, randomness)
