"""The producer for asyncio: `ottla.aio.Producer`."""

import asyncio
from collections.abc import Generator, Mapping
from types import coroutine
from typing import Any, Self

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.cluster.unclosed_warnings import watch
from ottla.clients.producer.batching.accumulator import Delivery, OnDelivery
from ottla.clients.producer.batching.record_encoding import (
    Headers,
    ProducerRecord,
    RecordEncoding,
    explained,
    open_schemas,
)
from ottla.clients.producer.bulk_calls import AsyncBulkCalls
from ottla.clients.producer.core import ProducerCore
from ottla.clients.producer.state.settings import ProducerSettings, read_producer_settings
from ottla.clients.producer.transaction_calls import AsyncTransactionCalls
from ottla.clients.threads.not_picklable import NotPicklable
from ottla.environment.clock import Clock
from ottla.environment.randomness import Randomness
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandomness


class AsyncProducer(AsyncTransactionCalls, AsyncBulkCalls, NotPicklable):
    """Sends records to a cluster. Use it in `async with`, in one event loop.

    Records are collected into batches. `send` returns as soon as its record is queued; it waits
    only for an unknown topic, or while buffer.memory is full.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, **keywords: Any) -> None:
        client, own = read_producer_settings(settings, keywords)
        randomness = SystemRandomness()
        view = ClusterView(client, randomness=randomness)
        own, self._registry = open_schemas(own, is_async=True)
        self._begin(own, view, SystemClock(), randomness)
        self._is_watched = True

    @classmethod
    def in_world(
        cls,
        view: ClusterView,
        clock: Clock,
        randomness: Randomness,
        settings: ProducerSettings,
    ) -> Self:
        """Make a producer with a given clock, network and randomness, as in the simulator."""
        producer = cls.__new__(cls)
        producer._registry = None  # noqa: SLF001 - its own
        producer._begin(settings, view, clock, randomness)  # noqa: SLF001 - its own
        return producer

    def _begin(
        self,
        settings: ProducerSettings,
        view: ClusterView,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        self.settings = settings
        self._world = (view, clock, randomness)
        self._is_watched = False
        self._encoding = RecordEncoding(settings)
        self._is_plain = not self._encoding.is_needed
        self._made: ProducerCore | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _core(self) -> ProducerCore:
        if self._made is None:
            view, clock, randomness = self._world
            loop = asyncio.get_running_loop()
            self._made = ProducerCore(view, clock, randomness, self.settings, loop.call_soon)
            if self._is_watched:
                unsent = self._made.sender.record_count
                watch(self, "aio.Producer", view, self._made.close_soon, unsent)
        return self._made

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Queue a record, and return its delivery, which can be awaited.

        RecordTooLargeError for a record that fits into no request; BufferFullError or
        NoResponseError if there was no room, or no such topic, within max.block.ms.
        """
        core = self._made or self._core
        arguments = (topic, value, key, partition, timestamp, headers, on_delivery)
        if not self._is_plain:
            record = ProducerRecord(topic, value, key, partition, timestamp, headers)
            arguments = await self._encoding.prepare_in_loop(record, on_delivery)
        try:
            delivery = core.accumulator.append(*arguments)
        except (TypeError, ValueError) as error:
            raise explained(error, arguments[1], arguments[2], arguments[5]) from None
        if delivery is None:
            return await core.append(*arguments)
        if core.accumulator.is_rung:
            await _turn()  # let the sender run; otherwise nothing is sent until memory is full
        return delivery

    async def flush(self, timeout: float | None = None) -> None:
        """Return when all records sent before are delivered or have failed, or NoResponseError."""
        await self._core.flush(timeout)

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions."""
        return await self._core.partitions_for(topic)

    def metrics(self) -> dict[str, float]:
        """Return counts, under Kafka's names."""
        return self._core.metrics()

    async def close(self, timeout: float | None = None) -> None:
        """Deliver the sent records within the timeout, and close; the remaining records fail."""
        await self._core.close(timeout)
        self._encoding.close()
        if self._registry is not None:
            await self._registry.close()


@coroutine
def _turn() -> Generator[None, None, None]:
    """Yield to the event loop once."""
    yield
