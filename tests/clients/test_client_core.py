"""Our own client core against a real broker that stops, starts and refuses."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from ottla.clients.admin import Admin
from ottla.clients.cluster_view import ClusterView
from ottla.clients.errors import UnreachableError
from ottla.clients.fetcher import Fetcher, FetcherSettings
from ottla.clients.producer import Delivered, Producer, ProducerSettings
from ottla.clients.settings import parse_settings
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandomness
from ottla.testing import Broker

FAST = {"retry.backoff.ms": "10", "retry.backoff.max.ms": "50"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"num.partitions": "1"}) as running:
        yield running


def run(broker: Broker, work: Callable[[ClusterView], Awaitable[None]], **settings: str) -> None:
    async def both() -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        async with ClusterView(parse_settings(FAST | named, broker.bootstrap_servers)) as view:
            await work(view)

    asyncio.run(both())


def producer_over(
    view: ClusterView, delivered: list[Delivered] | None = None, **how: int
) -> Producer:
    on_delivery = None if delivered is None else delivered.append
    settings = ProducerSettings(**how)  # type: ignore[arg-type]
    return Producer(view, SystemClock(), SystemRandomness(), settings, on_delivery)


async def next_values(fetcher: Fetcher) -> list[bytes | None]:
    while True:
        found = [record.value for row in await fetcher.poll() for record in row.records()]
        if found:
            return found


async def values(view: ClusterView, name: TopicPartition, count: int) -> list[bytes | None]:
    fetcher = Fetcher(view, {name: 0}, FetcherSettings(wait_ms=10))
    found: list[bytes | None] = []
    while len(found) < count:
        found += await next_values(fetcher)
    await fetcher.close()
    return found


def test_a_producer_and_a_fetcher_go_on_when_the_broker_comes_back(broker: Broker) -> None:
    async def work(view: ClusterView) -> None:
        producer = producer_over(view)
        name = TopicPartition("restarted", 0)
        await producer.send("restarted", b"before")
        await producer.flush()
        fetcher = Fetcher(view, {name: 0}, FetcherSettings(wait_ms=10))
        assert await next_values(fetcher) == [b"before"]
        await asyncio.to_thread(broker.restart)
        await producer.send("restarted", b"after")
        await producer.flush()
        assert await next_values(fetcher) == [b"after"]
        await fetcher.close()

    run(broker, work)


def test_order_is_kept_through_many_small_batches(broker: Broker) -> None:
    async def work(view: ClusterView) -> None:
        delivered: list[Delivered] = []
        producer = producer_over(view, delivered, batch_bytes=200, waiting_batches_max=4)
        sent = [b"%d" % number for number in range(500)]
        for value in sent:
            await producer.send("ordered", value)
        await producer.flush()
        assert len(delivered) > 20
        assert sum(row.record_count for row in delivered) == 500
        assert await values(view, TopicPartition("ordered", 0), 500) == sent

    run(broker, work)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_records_arrive_however_many_have_to_say_so(broker: Broker, acks: int) -> None:
    async def work(view: ClusterView) -> None:
        producer = producer_over(view, acks=acks)
        await producer.send(f"acks{acks}", b"letter")
        await producer.flush()
        assert await values(view, TopicPartition(f"acks{acks}", 0), 1) == [b"letter"]

    run(broker, work)


def test_a_refused_batch_ends_the_producer(broker: Broker) -> None:
    async def work(view: ClusterView) -> None:
        configs = {"max.message.bytes": "100"}
        await Admin.over(view).topics.create(["narrow"], configs=configs)
        producer = producer_over(view)
        await producer.send("narrow", b"x" * 200)
        with pytest.raises(ApiError) as refused:
            await producer.flush()
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(ApiError):
            await producer.send("narrow", b"x")

    run(broker, work)


def test_a_partition_that_is_not_there_is_told_at_once(broker: Broker) -> None:
    async def work(view: ClusterView) -> None:
        with pytest.raises(ApiError, match="there is no 9"):
            await producer_over(view).send("numbered", b"x", partition=9)

    run(broker, work)


def test_an_offset_that_is_not_there_is_told(broker: Broker) -> None:
    async def work(view: ClusterView) -> None:
        await Admin.over(view).topics.create(["short"])
        fetcher = Fetcher(view, {TopicPartition("short", 0): 47})
        assert await fetcher.poll() == []
        with pytest.raises(ApiError, match="does not have offset 47"):
            await fetcher.poll()

    run(broker, work)


def test_the_first_broker_that_answers_is_enough(broker: Broker) -> None:
    async def work(view: ClusterView) -> None:
        assert (await Admin.over(view).cluster.describe()).brokers[0].port == broker.port

    run(broker, work, bootstrap_servers=f"127.0.0.1:1,{broker.bootstrap_servers}")


def test_a_broker_that_is_gone_is_waited_for_no_longer_than_was_said(broker: Broker) -> None:
    async def work(view: ClusterView) -> None:
        admin = Admin.over(view)
        await admin.topics.list_all()
        await asyncio.to_thread(broker.stop)
        try:
            with pytest.raises(UnreachableError):
                await admin.topics.list_all()
        finally:
            await asyncio.to_thread(broker.start)

    run(broker, work, default_api_timeout_ms="100")
