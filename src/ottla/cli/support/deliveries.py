"""Sends a command's records to a cluster."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.clients.producer.bulk.bulk_delivery import BulkDelivery, BulkDeliveryError
from ottla.clients.producer.state.errors import RecordTooLargeError
from ottla.clients.producer.state.settings import ALL_REPLICAS, ProducerSettings
from ottla.model.api_error import ApiError
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandomness

REFUSALS: Final = (RecordTooLargeError, BulkDeliveryError)
"""The exceptions of sending, in addition to the exceptions of any call."""


def producer_over(view: ClusterView, how: ProducerSettings) -> AsyncProducer:
    """Return a producer that waits no longer than other calls do."""
    settings = replace(
        how,
        enable_idempotence=how.acks == ALL_REPLICAS,
        max_block_ms=view.settings.timeout_ms,
        delivery_timeout_ms=view.settings.timeout_ms,
    )
    return AsyncProducer.in_world(view, SystemClock(), SystemRandomness(), settings)


class Deliveries:
    """The sent records of one producer. The next call raises the first refusal."""

    def __init__(self, producer: AsyncProducer) -> None:
        self._producer = producer
        self._failure: BulkDeliveryError | None = None

    async def send(
        self, topic: str, records: Iterable[Any], on_delivered: Callable[[BulkDelivery], Any]
    ) -> None:
        """Queue records, and wait only if too many are queued."""
        self._check()
        try:
            delivery = await self._producer.send_many(topic, records)
        except BulkDeliveryError as error:
            self._failure = self._failure or error
            self._check()
        else:
            delivery.add_done_callback(partial(self._on_done, on_delivered))

    async def flush(self) -> None:
        """Return when all records are acknowledged."""
        await self._producer.flush()
        self._check()

    def _on_done(self, on_delivered: Callable[[BulkDelivery], Any], delivery: BulkDelivery) -> None:
        if delivery.failure is None:
            on_delivered(delivery)
        else:
            self._failure = self._failure or delivery.failure

    def _check(self) -> None:
        if self._failure is not None:
            cause = self._failure.__cause__
            raise cause if isinstance(cause, ApiError | OSError) else self._failure
