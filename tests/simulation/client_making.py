"""Production clients on simulated machines."""

from collections.abc import Iterable
from typing import Any

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.clients.producer.state.settings import ProducerSettings
from ottla.simulation.world.machine import Machine


def producer_on(machine: Machine, view: ClusterView, **settings: Any) -> AsyncProducer:
    """Return a producer with the timeout of other calls."""
    timeout_ms = view.settings.timeout_ms
    made = ProducerSettings(delivery_timeout_ms=timeout_ms, max_block_ms=timeout_ms, **settings)
    return AsyncProducer.in_world(view, machine.clock, machine.randomness, made)


async def send_all(
    producer: AsyncProducer, topic: str, values: Iterable[bytes], partition: int | None = None
) -> None:
    """Send values; raise the error of a record that was not delivered."""
    for sent in [await producer.send(topic, value, partition=partition) for value in values]:
        await sent


def member_on(machine: Machine, view: ClusterView, group_id: str) -> AsyncConsumer:
    """Return a member that starts at the earliest offset, with a short session timeout."""
    settings = ConsumerSettings(
        group_id=group_id,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=200,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
    )
    return AsyncConsumer.over(view, settings, machine.clock)
