"""Transactions by the admin client: listed, described, fenced, aborted."""

from collections.abc import Iterator

import pytest

from ottla import (
    Admin,
    ErrorCode,
    ItemsFailedError,
    TopicPartition,
    TransactionFilter,
    TransactionStatus,
)
from ottla.testing import Broker
from tests.clients.admin_stories import refused
from tests.clients.transactional_producers import Librdkafka


@pytest.fixture
def admin(story_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=story_servers) as admin:
        yield admin


@pytest.fixture
def producer(admin: Admin, story_servers: str, topic: str) -> Iterator[Librdkafka]:
    """A producer with an open transaction; its transactional id is the topic's name."""
    admin.topics.create(topic)
    producer = Librdkafka(story_servers, topic)
    producer.begin()
    producer.send(topic, [b"one", b"two"])
    yield producer
    producer.close()


@pytest.mark.usefixtures("producer")
def test_an_open_transaction_is_listed_and_described(admin: Admin, topic: str) -> None:
    (listed,) = admin.transactions.list(TransactionFilter(id_pattern=topic))
    assert (listed.transactional_id, listed.state) == (topic, TransactionStatus.ONGOING)
    wanted = TransactionFilter(states=[TransactionStatus.EMPTY], producer_ids=[listed.producer_id])
    assert admin.transactions.list(wanted) == ()
    with pytest.raises(ItemsFailedError, match="there is no transactional id 'nobody'") as failure:
        admin.transactions.describe(["nobody", topic])
    found = failure.value.done[topic]
    assert found.partitions == (TopicPartition(topic, 0),)
    assert (found.producer_id, found.state) == (listed.producer_id, "Ongoing")
    assert found.start_ms is not None


@pytest.mark.usefixtures("producer")
def test_producers_are_described_where_they_write(admin: Admin, topic: str) -> None:
    name, missing = TopicPartition(topic, 0), TopicPartition(topic, 9)
    with pytest.raises(ItemsFailedError) as failure:
        admin.producers.describe([name, missing])
    assert list(failure.value.failed) == [missing]
    (found,) = failure.value.done[name]
    assert (found.start_offset, found.last_sequence) == (0, 1)
    assert admin.transactions.hanging([found]) == ()
    assert admin.producers.open_since(name, 0) == found
    broker_id = admin.topics.describe(topic)[topic].partitions[0].leader
    assert admin.producers.describe([name], broker_id=broker_id) == {name: (found,)}


@pytest.mark.usefixtures("producer")
def test_a_fenced_producer_can_no_longer_commit(admin: Admin, topic: str) -> None:
    before = admin.transactions.describe(topic)[topic]
    fenced = admin.transactions.fence([topic, f"{topic}-new"])
    assert fenced[topic].producer_id == before.producer_id
    assert fenced[topic].epoch > before.producer_epoch
    assert admin.transactions.describe(topic)[topic].state == TransactionStatus.EMPTY
    assert f"{topic}-new" in admin.transactions.describe(f"{topic}-new")


@pytest.mark.usefixtures("producer")
def test_a_transaction_is_terminated_and_an_unknown_id_creates_none(
    admin: Admin, topic: str
) -> None:
    admin.transactions.terminate(topic)
    (producer,) = admin.producers.describe([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
    assert producer.start_offset is None
    code, _ = refused(lambda: admin.transactions.terminate("nobody"))
    assert code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert admin.transactions.list(TransactionFilter(id_pattern="nobody")) == ()


@pytest.mark.usefixtures("producer")
def test_a_marker_ends_what_a_producer_left_open(admin: Admin, topic: str) -> None:
    name = TopicPartition(topic, 0)
    found = admin.producers.open_since(name, 0)
    admin.producers.abort(name, found.producer_id, found.producer_epoch, found.coordinator_epoch)
    (after,) = admin.producers.describe([name])[name]
    assert after.start_offset is None


def test_a_broker_that_allows_short_transactions_only_terminates_them_too() -> None:
    with Broker({"transaction.max.timeout.ms": "2000"}) as broker:
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            producer = Librdkafka(servers, "short", timeout_ms=2_000)
            before = admin.transactions.describe("short")["short"]
            admin.transactions.terminate("short")
            assert admin.transactions.describe("short")["short"].producer_epoch > (
                before.producer_epoch
            )
            producer.close()
