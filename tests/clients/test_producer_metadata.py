"""What a producer knows of its topics: kept fresh, and forgotten when nobody needs it."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from ottla.clients.pausing import pause
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.clients.producer.errors import DeliveryTimeoutError
from ottla.clients.producer.producer import Producer
from ottla.testing import Broker
from tests.clients.consumer_stories import delete_topic, make_topic

SECONDS = 60


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"num.partitions": "1"}) as broker:
        yield broker.bootstrap_servers


def is_there(servers: str, topic: str) -> bool:
    found = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=SECONDS).topics
    return topic in found


def test_a_topic_that_was_deleted_is_made_again_by_the_next_record(
    servers: str, topic: str
) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(topic, b"before").result(SECONDS)
        delete_topic(servers, topic)
        assert producer.send(topic, b"after").result(SECONDS).offset == 0
    assert is_there(servers, topic)


def test_a_topic_that_was_deleted_stays_so_where_nobody_may_make_it(
    servers: str, topic: str
) -> None:
    make_topic(servers, topic)
    with Producer(
        bootstrap_servers=servers,
        allow_auto_create_topics=False,
        linger_ms=0,
        request_timeout_ms=3000,
        delivery_timeout_ms=3000,
    ) as producer:
        producer.send(topic, b"before").result(SECONDS)
        delete_topic(servers, topic)
        with pytest.raises(DeliveryTimeoutError, match="UNKNOWN_TOPIC"):
            producer.send(topic, b"after").result(SECONDS)
    assert not is_there(servers, topic)


def test_a_deleted_topic_is_not_made_again_by_looking_at_it(servers: str, topic: str) -> None:
    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=servers, metadata_max_age_ms=10, retry_backoff_max_ms=50
        ) as producer:
            await (await producer.send(topic, b"before"))
            view = producer._core.view
            await asyncio.to_thread(delete_topic, servers, topic)
            deadline = time.monotonic() + SECONDS
            while view.known_topic(topic) is not None and time.monotonic() < deadline:
                await pause(10)
            assert view.known_topic(topic) is None

    asyncio.run(work())
    assert not is_there(servers, topic)


def test_a_topic_that_nobody_sends_to_is_not_looked_at_any_more(servers: str, topic: str) -> None:
    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=servers,
            metadata_max_age_ms=10,
            metadata_max_idle_ms=200,
            retry_backoff_max_ms=50,
        ) as producer:
            await (await producer.send(topic, b"before"))
            view = producer._core.view
            assert view.known_topic(topic) is not None
            deadline = time.monotonic() + SECONDS
            while view.known_topic(topic) is not None and time.monotonic() < deadline:
                await pause(10)
            assert view.known_topic(topic) is None
            assert (await (await producer.send(topic, b"after"))).offset == 1
            assert view.known_topic(topic) is not None

    asyncio.run(work())
