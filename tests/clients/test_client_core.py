"""Our own clients' view of a cluster against a real broker that stops and starts."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import parse_settings
from ottla.clients.errors import UnreachableError
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


def test_the_first_broker_that_answers_is_enough(broker: Broker) -> None:
    async def work(view: ClusterView) -> None:
        assert (await AsyncAdmin.over(view).cluster.describe()).brokers[0].port == broker.port

    run(broker, work, bootstrap_servers=f"127.0.0.1:1,{broker.bootstrap_servers}")


def test_a_broker_that_is_gone_is_waited_for_no_longer_than_was_said(broker: Broker) -> None:
    async def work(view: ClusterView) -> None:
        admin = AsyncAdmin.over(view)
        await view.refresh(None)
        await asyncio.to_thread(broker.stop)
        try:
            with pytest.raises(UnreachableError):
                await admin.topics.list()
        finally:
            await asyncio.to_thread(broker.start)

    run(broker, work, default_api_timeout_ms="2000")
