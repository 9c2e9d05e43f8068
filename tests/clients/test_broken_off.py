"""Members with calls that fail or are interrupted while partitions are assigned and revoked."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.errors import ClientClosedError
from ottla.model.identifiers import TopicPartition
from tests.clients.driver import HEARTBEAT_MS, SESSION_MS
from tests.clients.group_members import Post, closing_members, poll_until
from tests.clients.test_consumer_groups import member_count

PATIENCE_SECONDS = 240


@asynccontextmanager
async def joined(servers: str, group: str, **settings: Any) -> AsyncIterator[AsyncConsumer]:
    defaults = {
        "auto_offset_reset": "earliest",
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
    }
    made = AsyncConsumer(bootstrap_servers=servers, group_id=group, **(defaults | settings))
    async with asyncio.timeout(PATIENCE_SECONDS), made as consumer:
        yield consumer


async def read_until(consumer: AsyncConsumer, is_so: Callable[[], object]) -> int:
    """Poll until the condition holds; return the number of records."""
    number = 0
    while not is_so():
        number += len(await consumer.poll(timeout=0.05))
    return number


async def read_some(consumer: AsyncConsumer) -> None:
    while not await consumer.poll(timeout=0.05):
        pass


class Slow:
    """A listener that is broken off the first time."""

    def __init__(self) -> None:
        self.is_called = asyncio.Event()
        self.heard: list[list[TopicPartition]] = []

    async def on_revoked(self, names: list[TopicPartition]) -> None:
        if not self.is_called.is_set():
            self.is_called.set()
            await asyncio.Event().wait()
        self.heard.append(names)

    async def break_off(self, call: Any) -> None:
        task = asyncio.ensure_future(call)
        await self.is_called.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_what_was_not_given_back_is_read_on(story_servers: str, topic: str) -> None:
    kept, going = (Post(story_servers, name, 1) for name in (topic, f"{topic}-going"))
    going.send(1)

    async def story() -> None:
        slow = Slow()
        both = [topic, f"{topic}-going"]
        strategy = "cooperative-sticky"
        async with joined(story_servers, topic, partition_assignment_strategy=strategy) as consumer:
            await consumer.subscribe(both, on_revoked=slow.on_revoked)
            await read_some(consumer)
            await consumer.subscribe([topic], on_revoked=slow.on_revoked)
            await slow.break_off(read_until(consumer, lambda: False))
            await consumer.subscribe(both, on_revoked=slow.on_revoked)
            await asyncio.to_thread(going.send, 1)
            await read_some(consumer)
            assert slow.heard == []
        assert slow.heard == [sorted(kept.all() + going.all())]

    asyncio.run(story())


def test_an_unsubscribe_interrupted_during_a_join_joins_again(
    story_servers: str, topic: str
) -> None:
    Post(story_servers, topic, 1)

    async def story() -> None:
        async with joined(story_servers, topic) as late:
            async with joined(story_servers, topic) as silent:
                await silent.subscribe([topic])
                await read_until(silent, silent.assignment)
                await late.subscribe([topic])
                await late.poll(timeout=HEARTBEAT_MS / 1000)  # waits for the silent member
                unsubscribing = asyncio.ensure_future(late.unsubscribe())
                await asyncio.sleep(0)
                unsubscribing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await unsubscribing
                await late.poll(timeout=0)
            await read_until(late, late.assignment)

    asyncio.run(story())


def test_an_interrupted_unsubscribe_leaves_the_consumer_reading(
    story_servers: str, topic: str
) -> None:
    post = Post(story_servers, topic, 1)
    post.send(1)

    async def story() -> None:
        slow = Slow()
        async with joined(story_servers, topic) as consumer:
            await consumer.subscribe([topic], on_revoked=slow.on_revoked)
            await read_some(consumer)
            await slow.break_off(consumer.unsubscribe())
            await asyncio.to_thread(post.send, 1)
            await read_some(consumer)

    asyncio.run(story())


@pytest.mark.parametrize("end", ["unsubscribe", "close"])
def test_a_member_leaves_although_a_callback_fails(
    story_servers: str, topic: str, end: str
) -> None:
    post = Post(story_servers, topic, 1)
    post.send(1)
    told: list[object] = []

    def fail(_offsets: object, error: Exception | None) -> None:
        told.append(error)
        raise LookupError("no place to write it down")

    async def story() -> None:
        heard: list[list[TopicPartition]] = []
        async with joined(story_servers, topic) as consumer:
            await consumer.subscribe([topic], on_revoked=heard.append)
            await read_some(consumer)
            for _ in range(2):
                await consumer.commit_async(on_commit=fail)
            with pytest.raises(LookupError):
                await (consumer.close() if end == "close" else consumer.unsubscribe())
            assert heard == [post.all()]
            assert told == [None, None]
            assert member_count(story_servers, topic) == 0

    asyncio.run(story())


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_listener_that_closes_the_consumer_is_called_once_for_each_partition(
    story_servers: str, topic: str, strategy: str
) -> None:
    going, staying = (Post(story_servers, f"{topic}-{name}", 1) for name in ("a", "b"))
    heard: list[TopicPartition] = []

    def on_revoked(names: list[TopicPartition]) -> None:
        heard.extend(names)
        member.consumer.close()

    with closing_members() as make:
        member = make(story_servers, topic, partition_assignment_strategy=strategy)
        member.subscribe([f"{topic}-a", f"{topic}-b"], on_revoked=on_revoked)
        poll_until([member], lambda: len(member.share) == 2)
        member.subscribe([f"{topic}-b"], on_revoked=on_revoked)
        with pytest.raises(ClientClosedError):
            poll_until([member], lambda: False)
        assert heard == going.all() + staying.all()
        assert member_count(story_servers, topic) == 0


@pytest.mark.parametrize("moment", ["assigned", "revoked"])
@pytest.mark.parametrize("end", ["unsubscribe", "close"])
def test_a_consumer_that_closes_in_a_listener_does_not_join_again(
    story_servers: str, topic: str, moment: str, end: str
) -> None:
    post = Post(story_servers, topic, 1)

    async def story() -> None:
        heard: list[tuple[str, list[TopicPartition]]] = []

        async def hear(what: str, names: list[TopicPartition]) -> None:
            heard.append((what, names))
            if what == moment:
                await getattr(consumer, end)()

        async with joined(story_servers, topic) as consumer:
            await consumer.subscribe(
                [topic],
                on_assigned=lambda names: hear("assigned", names),
                on_revoked=lambda names: hear("revoked", names),
            )
            if moment == "revoked":
                await read_until(consumer, consumer.assignment)
                await consumer.enforce_rebalance()
            if end == "close":
                with pytest.raises(ClientClosedError):
                    await read_until(consumer, lambda: False)
            else:
                assert await consumer.poll(timeout=None) == []
                assert consumer.subscription() == set()
            assert heard == [("assigned", post.all()), ("revoked", post.all())]
            assert member_count(story_servers, topic) == 0

    asyncio.run(story())


@pytest.mark.parametrize("end", ["unsubscribe", "close"])
def test_a_listener_may_unsubscribe_in_any_call(story_servers: str, topic: str, end: str) -> None:
    post = Post(story_servers, topic, 1)
    heard: list[list[TopicPartition]] = []

    def on_revoked(names: list[TopicPartition]) -> None:
        heard.append(names)
        member.consumer.unsubscribe()

    with closing_members() as make:
        member = make(story_servers, topic)
        member.subscribe([topic], on_revoked=on_revoked)
        poll_until([member], lambda: bool(member.share))
        getattr(member.consumer, end)()
        assert heard == [post.all()]
        assert member_count(story_servers, topic) == 0


@pytest.mark.parametrize("end", ["unsubscribe", "close"])
def test_another_task_that_ends_it_waits_for_the_listener(
    story_servers: str, topic: str, end: str
) -> None:
    post = Post(story_servers, topic, 1)
    post.send(3)

    async def story() -> None:
        is_called, may_commit = asyncio.Event(), asyncio.Event()
        heard: list[list[TopicPartition]] = []

        async def on_revoked(names: list[TopicPartition]) -> None:
            heard.append(names)
            is_called.set()
            await may_commit.wait()
            await consumer.commit()

        async with joined(story_servers, topic, enable_auto_commit=False) as consumer:
            await consumer.subscribe([topic], on_revoked=on_revoked)
            await read_some(consumer)
            await consumer.enforce_rebalance()
            polling = asyncio.ensure_future(consumer.poll(timeout=0))
            await is_called.wait()
            ending = asyncio.ensure_future(getattr(consumer, end)())
            await asyncio.sleep(0)
            may_commit.set()
            await ending
            await asyncio.gather(polling, return_exceptions=True)
        assert heard == [post.all()]
        async with joined(story_servers, topic) as other:
            (stored,) = (await other.committed(post.all())).values()
            assert stored.offset == 3

    asyncio.run(story())


def test_a_poll_whose_listeners_unsubscribe_and_close_ends(story_servers: str, topic: str) -> None:
    going, staying = (Post(story_servers, f"{topic}-{name}", 1) for name in ("a", "b"))

    async def story() -> None:
        heard: list[TopicPartition] = []

        async def on_revoked(names: list[TopicPartition]) -> None:
            heard.extend(names)
            await (consumer.unsubscribe() if len(heard) == 1 else consumer.close())

        settings = {"partition_assignment_strategy": "cooperative-sticky"}
        async with joined(story_servers, topic, **settings) as consumer:
            await consumer.subscribe([f"{topic}-a", f"{topic}-b"], on_revoked=on_revoked)
            await read_until(consumer, lambda: len(consumer.assignment()) == 2)
            await consumer.subscribe([f"{topic}-b"], on_revoked=on_revoked)
            with pytest.raises(ClientClosedError):
                await consumer.poll(timeout=None)
            assert heard == going.all() + staying.all()

    asyncio.run(story())


def test_a_listener_may_go_on_by_hand(story_servers: str, topic: str) -> None:
    post = Post(story_servers, topic, 1)

    async def story() -> None:
        async def on_revoked(names: list[TopicPartition]) -> None:
            await consumer.unsubscribe()
            consumer.assign(names)

        async with joined(story_servers, topic) as consumer:
            await consumer.subscribe([topic], on_revoked=on_revoked)
            await read_until(consumer, consumer.assignment)
            await consumer.enforce_rebalance()
            await consumer.poll(timeout=0)
            assert consumer.assignment() == set(post.all())
            await asyncio.to_thread(post.send, 1)
            await read_some(consumer)

    asyncio.run(story())
