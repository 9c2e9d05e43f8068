"""Transactions of three libraries' producers: atomic, and one producer per transactional id."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from tests.clients.plain_socket import PlainSocket
from tests.clients.transactional_producers import (
    PRODUCERS,
    SECONDS_MAX,
    Librdkafka,
    TransactionalProducer,
)

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.max.timeout.ms": "100000",
    "transaction.state.log.num.partitions": "3",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as running:
        yield running


@pytest.fixture(params=PRODUCERS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> type[TransactionalProducer]:
    """Each client library, one after another."""
    found: type[TransactionalProducer] = request.param
    return found


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: Broker) -> str:
    """A topic that no other test uses."""
    name = request.node.name.replace("[", "-").replace("]", "")
    make_topic(broker.bootstrap_servers, name)
    return name


def make_topic(servers: str, name: str, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics([NewTopic(name, 1, replicas)])[name]
    made.result(SECONDS_MAX)


def read(servers: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Return all that a new reader is shown now."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: list[bytes] = []
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, "the broker says nothing"
            if message.error() is not None:
                return found
            value = message.value()
            assert value is not None
            found.append(value)


def read_until(servers: str, topic: str, wanted: list[bytes]) -> None:
    """Read until all expected records are visible: markers follow a little after the commit."""
    wait_until(lambda: read(servers, topic), lambda found: found == wanted)


def wait_until(find: Callable[[], object], is_enough: Callable[[object], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_enough(found := find()):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def committed_offset(servers: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    with closing(consumer):
        (found,) = consumer.committed([TopicPartition(topic, 0)], SECONDS_MAX)
        return int(found.offset)


def wait_for_state(broker: Broker, transactional_id: str, wanted: str) -> None:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

    def state() -> str:
        with PlainSocket(broker) as client:
            (found,) = client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
        assert found.error_code in {0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        return str(found.transaction_state)

    wait_until(state, lambda found: found == wanted)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    broker: Broker, kind: type[TransactionalProducer], topic: str
) -> None:
    servers = broker.bootstrap_servers
    with closing(kind(servers, topic)) as producer:
        producer.begin()
        producer.send(topic, [b"first", b"second"])
        assert read(servers, topic) == []
        producer.commit()
        producer.begin()
        producer.send(topic, [b"regretted"])
        producer.abort()
        producer.begin()
        producer.send(topic, [b"third"])
        producer.commit()
        read_until(servers, topic, [b"first", b"second", b"third"])
        everything = read(servers, topic, "read_uncommitted")
        assert everything == [b"first", b"second", b"regretted", b"third"]


def test_a_zombie_is_fenced_by_its_successor(
    broker: Broker, kind: type[TransactionalProducer], topic: str
) -> None:
    servers = broker.bootstrap_servers
    zombie = kind(servers, topic)
    zombie.begin()
    zombie.send(topic, [b"of a zombie"])
    with closing(Librdkafka(servers, topic)) as successor:
        successor.begin()
        successor.send(topic, [b"of its successor"])
        with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
            zombie.commit()
        successor.commit()
    read_until(servers, topic, [b"of its successor"])
    zombie.close()


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    broker: Broker, kind: type[TransactionalProducer], topic: str
) -> None:
    servers = broker.bootstrap_servers
    group = f"group-{topic}"
    with closing(kind(servers, topic)) as producer:
        producer.begin()
        producer.send(topic, [b"one"])
        producer.send_offset(topic, 17, group)
        producer.commit()
        wait_until(lambda: committed_offset(servers, group, topic), lambda found: found == 17)
        producer.begin()
        producer.send_offset(topic, 99, group)
        producer.abort()
        wait_for_state(broker, topic, "CompleteAbort")
        assert committed_offset(servers, group, topic) == 17


def test_two_producers_interleave_and_each_has_its_own_end(broker: Broker, topic: str) -> None:
    servers = broker.bootstrap_servers
    with (
        closing(Librdkafka(servers, f"{topic}-1")) as first,
        closing(Librdkafka(servers, f"{topic}-2")) as second,
    ):
        first.begin()
        second.begin()
        for number in range(10):
            first.send(topic, [b"kept %d" % number])
            second.send(topic, [b"dropped %d" % number])
        first.commit()
        read_until(servers, topic, [b"kept 0"])  # the other transaction is open after this record
        second.abort()
        read_until(servers, topic, [b"kept %d" % number for number in range(10)])


def test_a_transaction_that_takes_too_long_is_aborted(broker: Broker, topic: str) -> None:
    servers = broker.bootstrap_servers
    with closing(Librdkafka(servers, topic, timeout_ms=1_000)) as producer:
        producer.begin()
        producer.send(topic, [b"too late"])
        wait_for_state(broker, topic, "CompleteAbort")
        with pytest.raises(KafkaException):
            producer.commit()
    assert read(servers, topic) == []
    assert read(servers, topic, "read_uncommitted") == [b"too late"]


def test_a_timeout_above_the_limit_of_the_broker_is_refused(broker: Broker) -> None:
    with PlainSocket(broker) as client:
        request = InitProducerIdRequest(transactional_id="slow", transaction_timeout_ms=100_001)
        answer = client.ask(ApiKey.INIT_PRODUCER_ID, 5, request)
    assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_operators_see_transactions_that_are_open(broker: Broker, topic: str) -> None:
    with closing(Librdkafka(broker.bootstrap_servers, topic)) as producer:
        producer.begin()
        producer.send(topic, [b"open"])
        with PlainSocket(broker) as client:
            wanted = ListTransactionsRequest(state_filters=["Ongoing", "Whatever"])
            listed = client.ask(ApiKey.LIST_TRANSACTIONS, 2, wanted)
            assert listed.unknown_state_filters == ["Whatever"]
            (found,) = [one for one in listed.transaction_states if one.transactional_id == topic]
            asked = DescribeTransactionsRequest(transactional_ids=[topic, "nobody"])
            described, unknown = client.ask(
                ApiKey.DESCRIBE_TRANSACTIONS, 0, asked
            ).transaction_states
            assert [(one.topic, one.partitions) for one in described.topics] == [(topic, [0])]
            assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            partitions = TopicRequest(name=topic, partition_indexes=[0])
            answer = client.ask(
                ApiKey.DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=[partitions])
            )
            (active,) = answer.topics[0].partitions[0].active_producers
            assert active.producer_id == found.producer_id == described.producer_id
            assert active.current_txn_start_offset == 0
        producer.abort()


def test_a_broker_that_restarts_before_the_commit_loses_nothing(tmp_path: Path) -> None:
    with Broker(SETTINGS, data_dir=str(tmp_path)) as broker:
        servers = broker.bootstrap_servers
        make_topic(servers, "t")
        with closing(Librdkafka(servers, "copier")) as producer:
            producer.begin()
            producer.send("t", [b"before"])
            broker.restart()
            wait_for_state(broker, "copier", "Ongoing")
            producer.send("t", [b"after"])
            producer.commit()
        broker.restart()
        read_until(servers, "t", [b"before", b"after"])
        wait_for_state(broker, "copier", "CompleteCommit")


def test_a_copier_that_sometimes_aborts_copies_everything_once_and_in_order(
    broker: Broker, topic: str
) -> None:
    count = 3_000
    servers = broker.bootstrap_servers
    target = f"{topic}-copy"
    make_topic(servers, target)
    with closing(Librdkafka(servers, f"{topic}-source")) as source:
        source.begin()
        source.send(topic, [b"%d" % number for number in range(count)])
        source.commit()
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": topic,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    with closing(consumer), closing(Librdkafka(servers, topic)) as producer:
        consumer.subscribe([topic])
        _copy(consumer, producer, target, count)
    read_until(servers, target, [b"copy of %d" % number for number in range(count)])
    assert committed_offset(servers, topic, topic) >= count


def _copy(consumer: Consumer, producer: Librdkafka, target: str, count: int) -> None:
    copied = tries = 0
    deadline = time.monotonic() + SECONDS_MAX
    while copied < count:
        assert time.monotonic() < deadline, f"{copied} of {count} are copied"
        values = [one.value() for one in consumer.consume(300, 0.5) if one.error() is None]
        if not values:
            continue
        tries += 1
        producer.begin()
        producer.send(target, [b"copy of " + (value or b"") for value in values])
        producer.send_offsets_of(consumer)
        if tries % 3 == 0:
            producer.abort()
            for partition in consumer.committed(consumer.assignment(), SECONDS_MAX):
                partition.offset = max(partition.offset, 0)
                consumer.seek(partition)
        else:
            producer.commit()
            copied += len(values)
