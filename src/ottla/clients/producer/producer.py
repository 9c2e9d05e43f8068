"""The synchronous producer: `ottla.Producer`."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, Self

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.cluster.unclosed_warnings import watch
from ottla.clients.config.settings import ClientSettings
from ottla.clients.errors import ClientClosedError
from ottla.clients.producer.batching.accumulator import Delivery, OnDelivery
from ottla.clients.producer.batching.record_encoding import (
    Headers,
    ProducerRecord,
    RecordEncoding,
    explained,
    open_schemas,
)
from ottla.clients.producer.bulk_calls import BulkCalls
from ottla.clients.producer.core import ProducerCore
from ottla.clients.producer.state.settings import ProducerSettings, read_producer_settings
from ottla.clients.producer.transaction_calls import TransactionCalls
from ottla.clients.threads.loop_thread import LoopThread
from ottla.clients.threads.not_picklable import NotPicklable
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandomness


class Producer(TransactionCalls, BulkCalls, NotPicklable):
    """Sends records to a cluster, from any number of threads. Use it in `with`.

    `send` puts a record into a batch in the caller's thread, and returns; the producer's own
    thread sends the batches. `send` waits only for an unknown topic, or while buffer.memory is
    full. `on_delivery` callbacks run in the producer's thread: they should be short.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, **keywords: Any) -> None:
        client, own = read_producer_settings(settings, keywords)
        self.settings, self._registry = open_schemas(own, is_async=False)
        self._encoding = RecordEncoding(self.settings)
        self._is_plain = not self._encoding.is_needed
        self._thread = LoopThread(f"producer {client.client_id}")
        self._beginning = Lock()
        self._core = self._thread.run(_make_core(client, self.settings, self._thread))
        self._append = self._core.accumulator.append
        view, end = self._core.view, partial(self._thread.abandon_after, self._core.close)
        look = watch(self, "Producer", view, end, self._core.sender.record_count)
        self._thread.call_at_end(look, view.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
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
        """Queue a record, and return its delivery.

        RecordTooLargeError for a record that fits into no request; BufferFullError or
        NoResponseError if there was no room, or no such topic, within max.block.ms.
        """
        if self._is_plain:
            try:
                delivery = self._append(
                    topic, value, key, partition, timestamp, headers, on_delivery
                )
            except (TypeError, ValueError) as error:
                raise explained(error, value, key, headers) from None
            if delivery is not None:
                return delivery
            arguments = (topic, value, key, partition, timestamp, headers, on_delivery)
        else:
            record = ProducerRecord(topic, value, key, partition, timestamp, headers)
            arguments = self._encoding.prepare(record, on_delivery)
            delivery = self._append(*arguments)
            if delivery is not None:
                return delivery
        return self._thread.run(self._core.append(*arguments))

    def flush(self, timeout: float | None = None) -> None:
        """Return when all records sent before are delivered or have failed, or NoResponseError."""
        self._thread.run(self._core.flush(timeout))

    def partitions_for(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions."""
        return self._thread.run(self._core.partitions_for(topic))

    def metrics(self) -> dict[str, float]:
        """Return counts, under Kafka's names."""
        return self._core.metrics()

    def close(self, timeout: float | None = None) -> None:
        """Deliver the sent records within the timeout, and close; the remaining records fail."""
        with suppress(ClientClosedError):  # closed before
            self._thread.run(self._core.close(timeout))
            self._encoding.close()
            if self._registry is not None:
                self._registry.close()
        self._thread.close()


async def _make_core(  # noqa: RUF029 - it is made in the thread of its loop
    client: ClientSettings, settings: ProducerSettings, thread: LoopThread
) -> ProducerCore:
    randomness = SystemRandomness()
    view = ClusterView(client, randomness=randomness)
    return ProducerCore(view, SystemClock(), randomness, settings, thread.post, thread.epoll)
