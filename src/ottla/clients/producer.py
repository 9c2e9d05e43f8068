"""Records on their way to a cluster: gathered into batches, sent, and sent again where needed.

Each partition has one batch open and one on its way, so order is kept. With acks from all replicas
the producer is idempotent: what is sent twice is stored once. Full batches that wait are bounded;
beyond that `send` waits.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.clients.cluster_view import ClusterView
from ottla.clients.errors import check, only
from ottla.clients.partitioner import partition_for_key
from ottla.environment.clock import Clock
from ottla.environment.randomness import Randomness
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression import Compression

ALL_REPLICAS: Final = -1
NO_ANSWER: Final = 0
BY_NAME_VERSION_MAX: Final = 12
"""Later versions of Produce know topics by their ids alone."""
_TRANSACTION_TIMEOUT_MS: Final = 60_000
_SEQUENCE_MODULUS: Final = 1 << 31
_NO_PRODUCER: Final = (-1, -1)


class Delivered(NamedTuple):
    """A batch that was taken. Its offset is -1 if the broker did not say."""

    partition: TopicPartition
    base_offset: int
    record_count: int
    latency_ms: float


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How records are sent."""

    acks: int = ALL_REPLICAS
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    batch_bytes: int = 256 << 10
    """A batch is sent when it has this size, and what is open when `flush` is called."""
    waiting_batches_max: int = 64
    """How many full batches may wait before `send` waits, too."""
    allow_auto_creation: bool = True
    partitioner: Callable[[bytes, int], int] = partition_for_key


@dataclass(slots=True)
class _Lane:
    """What waits for one partition."""

    name: TopicPartition
    open_batch: BatchBuilder | None = None
    full: deque[tuple[bytearray, int]] = field(default_factory=deque)
    next_sequence: int = 0
    sending: asyncio.Task[None] | None = None


class Producer:
    """Sends records. The first batch that is refused for good ends it: everything then raises."""

    def __init__(
        self,
        view: ClusterView,
        clock: Clock,
        randomness: Randomness,
        settings: ProducerSettings | None = None,
        on_delivery: Callable[[Delivered], None] | None = None,
    ) -> None:
        self._view = view
        self._clock = clock
        self._randomness = randomness
        self._settings = settings or ProducerSettings()
        self._on_delivery = on_delivery
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._sticky: dict[str, int] = {}
        self._identity = _NO_PRODUCER
        self._is_identified = self._settings.acks != ALL_REPLICAS
        self._room = asyncio.Semaphore(self._settings.waiting_batches_max)
        self._failure: BaseException | None = None

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Put a record into the open batch of its partition; waits only where too much waits."""
        if self._failure is not None:
            raise self._failure
        if partition is None:
            partition = self._sticky.get(topic) if key is None else None
            if partition is None:
                partition = await self._choose(topic, key)
        lane = self._lanes.get(TopicPartition(topic, partition))
        if lane is None or lane.open_batch is None:
            lane = await self._open(TopicPartition(topic, partition))
        batch = lane.open_batch
        assert batch is not None
        batch.append(
            self._clock.now_ms() if timestamp_ms is None else timestamp_ms, key, value, headers
        )
        if batch.size_bytes >= self._settings.batch_bytes:
            await self._close_batch(lane)

    async def flush(self) -> None:
        """Send what is open, and return when everything has been taken."""
        for lane in list(self._lanes.values()):
            if lane.open_batch is not None:
                await self._close_batch(lane)
        sending = [lane.sending for lane in self._lanes.values() if lane.sending is not None]
        if sending:
            await asyncio.wait(sending)
        if self._failure is not None:
            raise self._failure

    async def _choose(self, topic: str, key: bytes | None) -> int:
        found = await self._view.topic(
            topic, allow_auto_creation=self._settings.allow_auto_creation
        )
        if key is not None:
            return self._settings.partitioner(key, len(found.partitions))
        self._sticky[topic] = self._randomness.below(len(found.partitions))
        return self._sticky[topic]

    async def _open(self, name: TopicPartition) -> _Lane:
        if name not in self._lanes:
            await self._check_partition(name)
        if not self._is_identified:
            await self._identify()
        lane = self._lanes.setdefault(name, _Lane(name))
        producer_id, producer_epoch = self._identity
        lane.open_batch = BatchBuilder(
            compression=self._settings.compression,
            compression_level=self._settings.compression_level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=-1 if self._identity == _NO_PRODUCER else lane.next_sequence,
        )
        return lane

    async def _check_partition(self, name: TopicPartition) -> None:
        """Make sure that the partition is there, so that nobody waits for one that never is."""
        found = await self._view.topic(
            name.topic, allow_auto_creation=self._settings.allow_auto_creation
        )
        if not 0 <= name.partition < len(found.partitions):
            await self._view.partition(name)

    async def _identify(self) -> None:
        """Get the number by which the brokers tell batches that come twice."""
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
        )

        async def ask() -> None:
            answer = await self._view.ask_any(request, InitProducerIdResponse)
            check(answer.error_code, "an id for the producer")
            self._identity = (answer.producer_id, answer.producer_epoch)

        await self._view.retried(ask)
        self._is_identified = True

    async def _close_batch(self, lane: _Lane) -> None:
        """Queue the open batch; the next records without a key go to another partition."""
        batch = lane.open_batch
        assert batch is not None
        lane.open_batch = None
        self._sticky.pop(lane.name.topic, None)
        lane.next_sequence = (lane.next_sequence + batch.record_count) % _SEQUENCE_MODULUS
        await self._room.acquire()
        if self._failure is not None:
            raise self._failure
        lane.full.append((batch.build(), batch.record_count))
        if lane.sending is None or lane.sending.done():
            lane.sending = asyncio.get_running_loop().create_task(self._drain(lane))

    async def _drain(self, lane: _Lane) -> None:
        while lane.full:
            batch, record_count = lane.full.popleft()
            try:
                await self._deliver(lane.name, batch, record_count)
            except (ApiError, OSError) as error:
                self._failure = self._failure or error
            finally:
                self._room.release()

    async def _deliver(self, name: TopicPartition, batch: bytearray, record_count: int) -> None:
        if self._failure is not None:
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        base_offset = await self._view.retried(lambda: self._attempt(name, batch))
        if self._on_delivery is not None:
            latency_ms = (loop.time() - began) * 1000
            self._on_delivery(Delivered(name, base_offset, record_count, latency_ms))

    async def _attempt(self, name: TopicPartition, batch: bytearray) -> int:
        partition = await self._view.partition(name)
        request = ProduceRequest(
            transactional_id=None,
            acks=self._settings.acks,
            timeout_ms=self._view.settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=name.topic,
                    partition_data=[PartitionProduceData(index=name.partition, records=batch)],
                )
            ],
        )
        if self._settings.acks == NO_ANSWER:
            connection = await self._view.connection_to(partition.leader_id)
            await connection.tell(request, version_max=BY_NAME_VERSION_MAX)
            return -1
        answer = await self._view.ask_broker(
            partition.leader_id, request, ProduceResponse, version_max=BY_NAME_VERSION_MAX
        )
        topic = only(answer.responses, "a topic")
        outcome = only(topic.partition_responses, "a partition")
        check(
            outcome.error_code,
            f"partition {name}: {outcome.error_message or 'the records were refused'}",
            fine=(ErrorCode.DUPLICATE_SEQUENCE_NUMBER,),
        )
        return outcome.base_offset
