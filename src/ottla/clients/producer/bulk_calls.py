"""The bulk calls of a producer: for asyncio, and for threads.

In threads, the caller's thread sorts and encodes the records, while the producer's own thread
sends encoded batches. In asyncio, other tasks run after every batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from ottla.clients.producer.batching.accumulator import Batch
from ottla.clients.producer.batching.record_encoding import resolve_schemas
from ottla.clients.producer.bulk.bulk import Piece, Target, pieces_of_arrow, pieces_of_records
from ottla.clients.producer.bulk.bulk_delivery import BulkDelivery
from ottla.clients.producer.core import ProducerCore
from ottla.clients.records.partitioner import DEFAULT_PARTITIONER, Partitioner
from ottla.clients.records.serializers import SerializationError, bind_serializer
from ottla.clients.threads.loop_thread import LoopThread
from ottla.concurrency.sleep import pause


class Bulk:
    """One bulk call: its source, and the batches sent so far."""

    def __init__(self, core: ProducerCore, topic: str) -> None:
        self._core = core
        self._topic = topic
        self._turn = 0
        self.delivery = BulkDelivery(topic, core.accumulator.loop)

    async def target(self) -> Target:
        """Look up the topic, and its schemas if they must be awaited."""
        settings = self._core.settings
        given = (settings.key_serializer, settings.value_serializer)
        awaited = (one for one in given if hasattr(one, "resolve") and not one.is_blocking)
        await resolve_schemas(self._topic, awaited)
        count = await self._core.partition_count(self._topic)
        self._turn = self._core.accumulator.choose_partition(self._topic) or 0
        limits = settings.batch_size, settings.max_request_size, settings.buffer_memory
        is_kafkas = (
            settings.partitioner == DEFAULT_PARTITIONER and not settings.partitioner_ignore_keys
        )
        return Target(
            count,
            max(min(limits), 1),
            self._core.now_ms,
            None if is_kafkas else self._choose(self._core.partitioner, count),
        )

    def records(self, records: Iterable[Any], target: Target) -> Iterator[Piece]:
        """Encode records; serializers get the topic and the headers."""
        settings = self._core.settings
        return pieces_of_records(
            records,
            target,
            self._serializer(settings.key_serializer, "key"),
            self._serializer(settings.value_serializer, "value"),
        )

    def arrow(self, source: Any, target: Target) -> Iterator[Piece]:
        """Encode a table; there is nothing to serialize."""
        return pieces_of_arrow(source, target)

    def try_add(self, piece: Piece) -> bool:
        """Queue a batch; False if there is no room for it."""
        partition = self._partition(piece)
        batch = self._core.accumulator.add_batch(self._topic, partition, piece.records)
        return self._added(batch, piece)

    async def add(self, piece: Piece) -> None:
        """Queue a batch, waiting for room up to max.block.ms."""
        partition = self._partition(piece)
        batch = await self._core.add_batch(self._topic, partition, piece.records)
        self._added(batch, piece)

    def _added(self, batch: Batch | None, piece: Piece) -> bool:
        if self.delivery.failure is not None:
            raise self.delivery.failure
        if batch is None:
            return False
        self._turn += piece.partition is None
        self.delivery.add(batch, piece)
        return True

    def _partition(self, piece: Piece) -> int:
        """Return the partition of a batch; batches for any partition go round robin."""
        if piece.partition is not None:
            return piece.partition
        count = self._core.accumulator.partition_count(self._topic)
        led = self._core.sender.leaders.led_partitions(self._topic) or range(max(count, 1))
        return led[self._turn % len(led)]

    def _serializer(self, serializer: Any, part: str) -> Any:
        if serializer is None:
            return None
        if getattr(serializer, "adds_header", False):
            raise SerializationError(
                f"topic {self._topic!r}: send_many writes no headers for the {part}'s schema: use "
                "schema.id.serializer=prefix, or send"
            )
        serialize = bind_serializer(serializer, part)
        return lambda cell, headers: serialize(self._topic, cell, headers)

    def _choose(self, partitioner: Partitioner, count: int) -> Any:
        return lambda key: partitioner(self._topic, key, count)


class AsyncBulkCalls(ABC):
    """The bulk half of an asyncio producer."""

    @property
    @abstractmethod
    def _core(self) -> ProducerCore:
        """The producer's core."""

    async def send_many(self, topic: str, records: Iterable[Any]) -> BulkDelivery:
        """Send values, (key, value) tuples, or mappings of a record's fields by their names.

        Returns when all of them are queued: it waits while buffer.memory is full, for max.block.ms
        at a time. The delivery has their offsets. An invalid row or a refused batch raises; the
        rows before it may have been sent.
        """
        bulk = Bulk(self._core, topic)
        return await _send(bulk, bulk.records(records, await bulk.target()))

    async def send_arrow(self, topic: str, source: Any) -> BulkDelivery:
        """Send a table, or another object with Arrow's stream interface, as send_many.

        Columns: value, binary or string, and if present key, headers (a list of structs of key and
        value), timestamp, partition. Serializers are not used. Needs pyarrow.
        """
        bulk = Bulk(self._core, topic)
        return await _send(bulk, bulk.arrow(source, await bulk.target()))


class BulkCalls:
    """The bulk half of a synchronous producer."""

    _thread: LoopThread
    _core: ProducerCore

    def send_many(self, topic: str, records: Iterable[Any]) -> BulkDelivery:
        """Send values, (key, value) tuples, or mappings of a record's fields by their names.

        Returns when all of them are queued: it waits while buffer.memory is full, for max.block.ms
        at a time. The delivery has their offsets. An invalid row or a refused batch raises; the
        rows before it may have been sent.
        """
        bulk = Bulk(self._core, topic)
        return self._send(bulk, bulk.records(records, self._thread.run(bulk.target())))

    def send_arrow(self, topic: str, source: Any) -> BulkDelivery:
        """Send a table, or another object with Arrow's stream interface, as send_many.

        Columns: value, binary or string, and if present key, headers (a list of structs of key and
        value), timestamp, partition. Serializers are not used. Needs pyarrow.
        """
        bulk = Bulk(self._core, topic)
        return self._send(bulk, bulk.arrow(source, self._thread.run(bulk.target())))

    def _send(self, bulk: Bulk, pieces: Iterator[Piece]) -> BulkDelivery:
        for piece in pieces:
            if not bulk.try_add(piece):
                self._thread.run(bulk.add(piece))
        bulk.delivery.close()
        return bulk.delivery


async def _send(bulk: Bulk, pieces: Iterator[Piece]) -> BulkDelivery:
    for piece in pieces:
        if not bulk.try_add(piece):
            await bulk.add(piece)
        await pause(0)
    bulk.delivery.close()
    return bulk.delivery
