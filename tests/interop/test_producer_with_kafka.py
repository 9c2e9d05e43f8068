"""Our own producer with an Apache Kafka broker: transactions of both versions, and bulk calls."""

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from ottla.clients.producer.producer import Producer
from ottla.clients.producer.transactions.transaction_errors import (
    FatalTransactionError,
    ProducerFencedError,
    TransactionAbortableError,
)
from tests.clients.test_transactions import (
    committed_offset,
    make_topic,
    read,
    read_until,
    wait_for_state,
)
from tests.clients.test_transactions_of_ours import (
    SAFE_DOWNGRADE,
    UPGRADE,
    Gone,
    RegretError,
    begin_again,
    regret,
    set_level,
)
from tests.clients.transactional_producers import Librdkafka
from tests.interop.kafka_node import KafkaNode, kafka_node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    with kafka_node(tmp_path_factory.mktemp("kafka")) as running:
        yield running.start()


@pytest.fixture(params=[2, 1], ids=["version-2", "version-1"])
def servers(request: pytest.FixtureRequest, node: KafkaNode) -> Iterator[str]:
    """A broker with each version of the protocol."""
    if request.param == 1:
        set_level(node, 1, SAFE_DOWNGRADE)
    yield node.bootstrap_server
    if request.param == 1:
        set_level(node, 2, UPGRADE)


@pytest.fixture
def topic(request: pytest.FixtureRequest, servers: str) -> str:
    name: str = request.node.name.replace("[", "-").replace("]", "")
    make_topic(servers, name)
    return name


def make(servers: str, transactional_id: str, **settings: Any) -> Producer:
    return Producer(bootstrap_servers=servers, transactional_id=transactional_id, **settings)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(servers: str, topic: str) -> None:
    with make(servers, topic) as producer:
        for number in range(20):
            with producer.transaction():
                producer.send(topic, b"%d" % number)
                producer.send_offsets_to_transaction({(topic, 0): number}, topic)
            with pytest.raises(RegretError):
                regret(producer, lambda: producer.send(topic, b"dropped").result())
    read_until(servers, topic, [b"%d" % number for number in range(20)])
    assert committed_offset(servers, topic, topic) == 19
    assert len(read(servers, topic, "read_uncommitted")) == 40


def test_a_zombie_is_fenced(servers: str, topic: str) -> None:
    with make(servers, topic) as zombie:
        zombie.init_transactions()
        zombie.begin_transaction()
        zombie.send(topic, b"of a zombie").result()
        successor = Librdkafka(servers, topic)
        successor.begin()
        successor.send(topic, [b"of its successor"])
        with pytest.raises(ProducerFencedError):
            zombie.commit_transaction()
        with pytest.raises(FatalTransactionError):
            zombie.begin_transaction()
        successor.commit()
        successor.close()
    read_until(servers, topic, [b"of its successor"])


def test_after_an_error_the_next_transaction_goes_well(servers: str, topic: str) -> None:
    with make(servers, topic) as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            producer.send(topic, b"spoiled").result()
            with pytest.raises(TransactionAbortableError):
                producer.send_offsets_to_transaction({(topic, 0): 1}, Gone())
            producer.abort_transaction()
            with producer.transaction():
                producer.send(topic, b"%d" % number)
    read_until(servers, topic, [b"0", b"1", b"2"])


def test_a_transaction_that_takes_too_long_is_begun_again(node: KafkaNode) -> None:
    servers, topic = node.bootstrap_server, "too-long"
    make_topic(servers, topic)
    with make(servers, topic, transaction_timeout_ms=100) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"too late").result()
        wait_for_state(node, topic, "CompleteAbort")
        begin_again(producer, topic)
    read_until(servers, topic, [b"in time"])


def test_bulk_calls_are_taken(node: KafkaNode) -> None:
    make_topic(node.bootstrap_server, "bulk")
    values = [os.urandom(100) for _ in range(50_000)]
    with Producer(bootstrap_servers=node.bootstrap_server, compression_type="lz4") as producer:
        first = producer.send_many("bulk", values).result(60)
        second = producer.send_arrow("bulk", pa.table({"value": pa.array(values)})).result(60)
    assert first.offsets == {0: (0, 49_999, 50_000)}
    assert second.offsets == {0: (50_000, 99_999, 50_000)}
    assert read(node.bootstrap_server, "bulk") == values * 2
