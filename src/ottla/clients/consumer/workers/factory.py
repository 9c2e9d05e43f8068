"""Makes the ordered workers of one `run`, for the synchronous and the asyncio consumer."""

from collections.abc import Callable, Collection
from inspect import iscoroutine, iscoroutinefunction
from typing import TYPE_CHECKING, Any

from ottla.clients.consumer.core.core import ConsumerCore
from ottla.clients.consumer.state.subscription import RebalanceListener
from ottla.clients.consumer.workers.dead_letters import REQUEST_BYTES_MAX, DeadLetters
from ottla.clients.consumer.workers.executors import (
    HandlerExecutor,
    MakeExecutor,
    OnEnded,
    Readers,
    TaskExecutor,
    ThreadExecutor,
)
from ottla.clients.consumer.workers.ordered_workers import OrderedWorkers
from ottla.clients.consumer.workers.settings import Handler, WorkSettings
from ottla.environment.randomness import Randomness
from ottla.model.identifiers import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.producer.async_producer import AsyncProducer

Listener = Callable[[list[TopicPartition]], Any]
Revoke = Callable[[Collection[TopicPartition]], Any]


def thread_workers(
    core: ConsumerCore, handler: Handler, settings: WorkSettings, randomness: Randomness
) -> OrderedWorkers:
    """Make workers that are threads, for a handler that is a plain function."""
    if iscoroutinefunction(handler):
        raise TypeError(f"{handler!r} is a coroutine function: ottla.aio has the consumer for it")

    def make(on_ended: OnEnded, readers: Readers) -> HandlerExecutor:
        name = f"consumer {core.view.settings.client_id}"
        return ThreadExecutor(settings.workers, handler, on_ended, readers, name)

    return _workers(core, handler, settings, make, randomness)


def task_workers(
    core: ConsumerCore, handler: Handler, settings: WorkSettings, randomness: Randomness
) -> OrderedWorkers:
    """Make workers that are tasks, for a handler that is a coroutine function."""

    def make(on_ended: OnEnded, readers: Readers) -> HandlerExecutor:
        return TaskExecutor(handler, on_ended, readers)

    return _workers(core, handler, settings, make, randomness)


def _workers(
    core: ConsumerCore,
    handler: Handler,
    settings: WorkSettings,
    make_executor: MakeExecutor,
    randomness: Randomness,
) -> OrderedWorkers:
    if not callable(handler):
        raise TypeError(f"{handler!r} cannot be called: a handler is a function of one record")
    dead_letters = None
    if settings.dead_letter_topic is not None:
        group_id = core.settings.group_id
        dead_letters = DeadLetters(
            settings.dead_letter_topic, group_id, handler, lambda: _make_producer(core, randomness)
        )
    return OrderedWorkers(core, settings, make_executor, dead_letters, randomness)


def _make_producer(core: ConsumerCore, randomness: Randomness) -> "AsyncProducer":
    """Make an idempotent producer for the same cluster, with acks=all and long timeouts."""
    from ottla.clients.producer.async_producer import AsyncProducer  # noqa: PLC0415 - rarely needed
    from ottla.clients.producer.state.settings import ProducerSettings  # noqa: PLC0415

    settings = ProducerSettings(linger_ms=0, max_request_size=REQUEST_BYTES_MAX)
    return AsyncProducer.in_world(core.view.sibling(), core.clock, randomness, settings)


def blocking_listener(before: RebalanceListener, revoke: Revoke, lose: Revoke) -> RebalanceListener:
    """Notify the workers of a revocation first, then the application, in its own thread."""

    def on_revoked(names: list[TopicPartition]) -> None:
        revoke(names)
        if before.on_revoked is not None:
            before.on_revoked(names)

    def on_lost(names: list[TopicPartition]) -> None:
        lose(names)
        told = before.on_lost or before.on_revoked
        if told is not None:
            told(names)

    return RebalanceListener(before.on_assigned, on_revoked, on_lost)


def awaiting_listener(before: RebalanceListener, revoke: Revoke, lose: Revoke) -> RebalanceListener:
    """Make the same listener for callbacks that may be coroutine functions."""

    async def on_revoked(names: list[TopicPartition]) -> None:
        await revoke(names)
        await _told(before.on_revoked, names)

    async def on_lost(names: list[TopicPartition]) -> None:
        await lose(names)
        await _told(before.on_lost or before.on_revoked, names)

    return RebalanceListener(before.on_assigned, on_revoked, on_lost)


async def _told(listener: Listener | None, names: list[TopicPartition]) -> None:
    if listener is not None:
        returned = listener(names)
        if iscoroutine(returned):
            await returned
