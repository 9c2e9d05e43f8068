"""A long-lived cluster view: brokers leave and join, and metadata becomes stale."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from ottla.clients.admin.admin import Admin
from ottla.clients.cluster.cluster_client import TRANSACTION, ClusterView, keep_fresh
from ottla.clients.config.settings import ClientSettings, parse_addresses
from ottla.clients.errors import UnreachableError
from ottla.clients.threads.loop_thread import create_background_task
from ottla.concurrency.sleep import pause
from ottla.model.identifiers import TopicPartition
from ottla.testing import Broker
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

WAIT_SECONDS = 60
NAME = TopicPartition("letters", 1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"num.partitions": "2"}) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.topics.create("letters", partitions=2)
        yield running


def run(servers: str, work: Callable[[ClusterView], Awaitable[None]], **settings: Any) -> None:
    async def both() -> None:
        async with ClusterView(ClientSettings(parse_addresses(servers), **settings)) as view:
            async with asyncio.timeout(WAIT_SECONDS):
                await work(view)

    asyncio.run(both())


def test_look_ups_without_waiting_know_what_was_seen(broker: Broker) -> None:
    async def work(view: ClusterView) -> None:
        assert view.known_topic("letters") is None
        assert view.known_leader(NAME) is None
        await view.topic("letters")
        assert view.known_leader(NAME) == view.broker_ids[0]
        assert view.known_leader(TopicPartition("letters", 2)) is None
        view.forget(["letters"])
        assert view.known_leader(NAME) is None
        assert (await view.partition(NAME)).leader_id == view.broker_ids[0]

    run(broker.bootstrap_servers, work)


def test_topics_are_looked_up_again_before_they_are_too_old(broker: Broker) -> None:
    async def work(view: ClusterView) -> None:
        first = await view.topic("letters")
        taken: list[str | None] = []
        task = create_background_task(
            keep_fresh(
                view, lambda: ["letters"], lambda rows: taken.extend(row.name for row in rows)
            )
        )
        while view.known_topic("letters") is first:
            await pause(5)
        assert view.known_leader(NAME) is not None
        while not taken:
            await pause(1)
        assert set(taken) == {"letters"}
        task.cancel()

    run(broker.bootstrap_servers, work, metadata_max_age_ms=20, retry_backoff_max_ms=10)


def test_expired_metadata_is_fetched_by_the_next_call_that_needs_it(broker: Broker) -> None:
    async def work(view: ClusterView) -> None:
        first = await view.topic("letters")
        assert await view.topic("letters") is not first

    run(broker.bootstrap_servers, work, metadata_max_age_ms=0)


def test_transactions_have_coordinators_as_groups_have(broker: Broker) -> None:
    async def work(view: ClusterView) -> None:
        request = InitProducerIdRequest(transactional_id="writer", transaction_timeout_ms=60_000)

        async def ask() -> InitProducerIdResponse:
            answer = await view.ask_coordinator(
                "writer", request, InitProducerIdResponse, key_type=TRANSACTION
            )
            if answer.error_code:
                view.forget_coordinator("writer", TRANSACTION)
                raise UnreachableError("later")
            return answer

        assert (await view.retried(ask)).producer_id >= 0

    async def known_first(view: ClusterView) -> None:
        await view.refresh([])
        await work(view)

    run(broker.bootstrap_servers, known_first)


def test_when_all_known_brokers_are_gone_it_begins_again_where_it_began() -> None:
    with Broker() as first, Broker() as second:
        servers = f"{first.bootstrap_servers},{second.bootstrap_servers}"

        async def work(view: ClusterView) -> None:
            await view.refresh([])
            assert (
                view.address_of(view.broker_ids[0]) == parse_addresses(first.bootstrap_servers)[0]
            )
            await asyncio.to_thread(first.stop)
            await view.retried(lambda: view.refresh([]))
            known = view.address_of(view.broker_ids[0])
            assert known == parse_addresses(second.bootstrap_servers)[0]

        run(servers, work)


def test_without_recovery_it_waits_for_the_brokers_it_knows() -> None:
    with Broker() as first, Broker() as second:
        servers = f"{first.bootstrap_servers},{second.bootstrap_servers}"

        async def work(view: ClusterView) -> None:
            await view.refresh([])
            await asyncio.to_thread(first.stop)
            with pytest.raises(UnreachableError):
                await view.retried(lambda: view.refresh([]), timeout_ms=300)

        run(servers, work, metadata_recovery_strategy="none")


def test_a_closed_view_gives_up_at_once(broker: Broker) -> None:
    async def work(view: ClusterView) -> None:
        await view.refresh([])
        view.close()
        with pytest.raises(UnreachableError, match="closed here"):
            await view.retried(lambda: view.refresh([]), timeout_ms=10 * WAIT_SECONDS * 1000)

    run(broker.bootstrap_servers, work)
