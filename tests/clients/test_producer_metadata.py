"""A producer's topic metadata: kept fresh while in use, and dropped afterwards."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from ottla.clients.cluster.cluster_metadata import ClusterMetadata
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.state.errors import DeliveryTimeoutError
from ottla.concurrency.sleep import pause
from ottla.testing import Broker
from ottla.wire.messages.metadata import MetadataResponse
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


def test_a_deleted_topic_is_not_created_again_without_permission(servers: str, topic: str) -> None:
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


def test_the_metadata_of_an_unused_topic_is_not_refreshed(servers: str, topic: str) -> None:
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


@pytest.fixture
def lose_leader(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Alter all further metadata: this partition has no leader."""

    def lose(partition: int) -> None:
        take = ClusterMetadata.take

        def altered(
            self: ClusterMetadata, answer: MetadataResponse, now: float, *, is_whole: bool
        ) -> None:
            for topic in answer.topics:
                for row in topic.partitions:
                    if row.partition_index == partition:
                        row.leader_id = -1
            take(self, answer, now, is_whole=is_whole)

        monkeypatch.setattr(ClusterMetadata, "take", altered)

    return lose


def test_a_partition_without_leader_holds_up_no_other_one(
    servers: str, topic: str, lose_leader: Callable[[int], None]
) -> None:
    make_topic(servers, topic, partitions=2)

    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=servers, request_timeout_ms=1000, delivery_timeout_ms=2000
        ) as producer:
            await producer._core.partition_count(topic)
            lose_leader(1)
            producer._core.view.forget([topic])
            told: asyncio.Queue[Exception | None] = asyncio.Queue()
            await producer.send(
                topic, b"after", partition=0, on_delivery=lambda error, _: told.put_nowait(error)
            )
            assert await told.get() is None

    asyncio.run(work())


def test_records_without_a_key_leave_a_partition_that_has_lost_its_leader(
    servers: str, topic: str, lose_leader: Callable[[int], None]
) -> None:
    make_topic(servers, topic, partitions=2)

    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=servers,
            request_timeout_ms=1000,
            delivery_timeout_ms=2000,
            retry_backoff_ms=1,
        ) as producer:
            await producer._core.partition_count(topic)
            producer._core.view.forget([topic])
            stuck = await producer.send(topic, b"stuck")
            lose_leader(stuck.partition)
            while producer._core.view.known_topic(topic) is None:
                await pause(1)
            later = [await producer.send(topic, b"later") for _ in range(20)]
            assert {row.partition for row in later} == {1 - stuck.partition}
            await producer.flush()
            with pytest.raises(DeliveryTimeoutError):
                await stuck
            assert [(await row).offset >= 0 for row in later] == 20 * [True]

    asyncio.run(work())


def test_leaders_are_looked_up_again_when_a_connection_ends_that_answers_nothing(
    servers: str, topic: str
) -> None:
    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=servers, acks=0, enable_idempotence=False
        ) as producer:
            await (await producer.send(topic, b"before"))
            view = producer._core.view
            assert view.known_topic(topic) is not None
            connection = await view.connection_to(view.broker_ids[0])
            connection.close()
            assert view.known_topic(topic) is None
            await (await producer.send(topic, b"after"))
            assert view.known_topic(topic) is not None

    asyncio.run(work())
