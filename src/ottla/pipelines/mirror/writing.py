"""A transaction on the target: ordered batches, several in flight, and then the end."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import time
from typing import Final

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import NoResponseError, check, only
from ottla.clients.producer.transactions.coordinator_client import CoordinatorClient
from ottla.clients.producer.transactions.transaction_requests import (
    ADDING_BY_WRITING,
    Initiation,
    ProducerName,
    add_partitions,
    end,
    init_producer,
)
from ottla.clients.producer.transactions.transactions import PRODUCE_VERSION_BEFORE_ADDING
from ottla.model.identifiers import ZERO_UUID, TopicPartition
from ottla.pipelines.mirror.batches import seal
from ottla.rpc.connection import Connection, TakeAnswer
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.schema import EVERY_VERSION, Message

TRANSACTION_TIMEOUT_MS: Final = 60_000
"""The timeout after which a broker aborts the transaction of a dead mirror."""
IN_FLIGHT_MAX: Final = 5
"""The number of batches per producer that brokers remember to detect duplicates."""
_BY_NAME_VERSION_MAX: Final = 12
_ALL_REPLICAS: Final = -1
_SEQUENCE_MODULUS: Final = 1 << 31


@dataclass(slots=True)
class _Queue:
    """The state of one target partition: leader, next sequence, requests in flight."""

    name: TopicPartition
    topic_id: bytes
    connection: Connection
    sequence: int = 0
    in_flight: "deque[asyncio.Future[ProduceResponse]]" = field(default_factory=deque)
    base_offsets: list[int] = field(default_factory=list)
    """The target offsets of the batches, in the order of sending."""


class TargetTransaction:
    """One transaction of the mirror. After any failure, a new `begin` aborts its writes."""

    def __init__(
        self, view: ClusterView, coordinator: CoordinatorClient, who: ProducerName, level: int
    ) -> None:
        self._view = view
        self._coordinator = coordinator
        self._who = who
        self._level = level
        self._queues: dict[TopicPartition, _Queue] = {}

    @classmethod
    async def begin(cls, view: ClusterView, transactional_id: str) -> "TargetTransaction":
        """Fence the former producer of this id, and wait until its last transaction has ended.

        When this returns, its committed records can be read, and nothing will be added.
        """
        coordinator = CoordinatorClient(view, transactional_id)
        initiation = Initiation(TRANSACTION_TIMEOUT_MS)
        who, _ = await coordinator.until_answered(lambda: init_producer(coordinator, initiation))
        return cls(view, coordinator, who, await coordinator.transaction_version())

    async def send(self, name: TopicPartition, raw: memoryview, record_count: int) -> None:
        """Seal a batch and send it; wait only if too many are in flight."""
        queue = self._queues.get(name) or await self._open(name)
        if len(queue.in_flight) == IN_FLIGHT_MAX:
            await self._await_oldest(queue)
        seal(raw, self._who, queue.sequence)
        queue.sequence = (queue.sequence + record_count) % _SEQUENCE_MODULUS
        request, version_max = self._request(queue, raw)
        answer: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        if queue.connection.ask_now(request, _taker(answer), version_max=version_max):
            queue.in_flight.append(answer)
            return
        answer.cancel()
        while queue.in_flight:
            await self._await_oldest(queue)
        taken = await queue.connection.ask(
            request, ProduceResponse, timeout_ms=self._timeout_ms, version_max=version_max
        )
        self._take(queue, taken)

    async def wait_acknowledged(self, name: TopicPartition) -> list[int]:
        """Wait for all batches of a partition; return their base offsets."""
        if (queue := self._queues.get(name)) is None:
            return []
        while queue.in_flight:
            await self._await_oldest(queue)
        return queue.base_offsets

    async def note(self, name: TopicPartition, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write keys and values as records of the same transaction."""
        builder = BatchBuilder(compression=Compression.LZ4)
        now_ms = int(time() * 1000)
        for key, value in rows:
            builder.append(now_ms, key, value)
        record_count = builder.record_count
        await self.send(name, memoryview(builder.build()), record_count)
        await self.wait_acknowledged(name)

    async def commit(self) -> None:
        """Commit; retry until the outcome is known."""
        ask = self._coordinator
        await ask.until_answered(lambda: end(ask, self._who, committed=True, version=self._level))

    @property
    def _timeout_ms(self) -> int:
        return self._view.settings.request_timeout_ms

    async def _open(self, name: TopicPartition) -> _Queue:
        topic = await self._view.topic(name.topic)
        partition = await self._view.partition(name)
        connection = await self._view.connection_to(partition.leader_id)
        if self._level < ADDING_BY_WRITING:
            ask = self._coordinator
            await ask.until_answered(lambda: add_partitions(ask, self._who, [name]))
        queue = self._queues[name] = _Queue(name, topic.topic_id, connection)
        return queue

    def _request(self, queue: _Queue, raw: memoryview) -> tuple[ProduceRequest, int]:
        version_max = EVERY_VERSION
        if self._level < ADDING_BY_WRITING:
            version_max = PRODUCE_VERSION_BEFORE_ADDING
        elif queue.topic_id == ZERO_UUID:
            version_max = _BY_NAME_VERSION_MAX
        partition = PartitionProduceData(index=queue.name.partition, records=raw)
        request = ProduceRequest(
            transactional_id=self._coordinator.transactional_id,
            acks=_ALL_REPLICAS,
            timeout_ms=self._timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=queue.name.topic, topic_id=queue.topic_id, partition_data=[partition]
                )
            ],
        )
        return request, version_max

    async def _await_oldest(self, queue: _Queue) -> None:
        oldest = queue.in_flight.popleft()
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                answer = await oldest
        except TimeoutError:
            queue.connection.close()
            raise NoResponseError(f"a batch for {queue.name} was not answered in time") from None
        self._take(queue, answer)

    def _take(self, queue: _Queue, response: ProduceResponse) -> None:
        row = only(only(response.responses, "a topic").partition_responses, "a partition")
        if row.error_code:
            self._view.forget([queue.name.topic])
        check(row.error_code, row.error_message or f"a batch for {queue.name}")
        queue.base_offsets.append(row.base_offset)


def _taker(response: "asyncio.Future[ProduceResponse]") -> TakeAnswer:
    def take(message: Message | None, error: Exception | None) -> None:
        if response.done():
            return
        if isinstance(message, ProduceResponse):
            response.set_result(message)
        else:
            response.set_exception(error or NoResponseError("the broker did not answer"))
            response.exception()  # retrieved, because the waiting task may be gone

    return take
