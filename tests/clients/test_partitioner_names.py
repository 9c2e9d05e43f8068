"""The same key goes to the same partition as with other libraries, by librdkafka's names too."""

from collections.abc import Iterator

import pytest
from aiokafka.partitioner import DefaultPartitioner
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import Producer as OurProducer
from ottla.clients.records.partitioner import find_partitioner, make_partitioner, partition_for_key
from ottla.runtime.randomness import SystemRandomness
from ottla.testing import Broker
from tests.clients.drivers.kafka_python import KafkaProducer

PARTITIONS = 7
KEYS = [b"x" * length + bytes([length * 37 & 255]) for length in range(40)]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("letters", PARTITIONS, 1)])["letters"].result(60)
        yield broker.bootstrap_servers


@pytest.mark.parametrize(
    "name",
    ["murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "fnv1a"],
)
def test_a_key_goes_where_librdkafka_puts_it(servers: str, name: str) -> None:
    theirs: dict[bytes, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        theirs[message.key()] = message.partition()

    producer = Producer({"bootstrap.servers": servers, "partitioner": name})
    for key in KEYS:
        producer.produce("letters", key=key, on_delivery=delivered)
    assert producer.flush(60) == 0
    partitioner = make_partitioner(find_partitioner(name), SystemRandomness())
    ours = {
        key: partition_for_key(key, PARTITIONS)
        if partitioner is None
        else partitioner("letters", key, PARTITIONS)
        for key in KEYS
    }
    assert ours == theirs


def test_a_key_goes_where_kafka_python_and_aiokafka_put_it(servers: str) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)
    sent = {key: producer.send("letters", key=key, value=b"") for key in KEYS}
    theirs = {key: future.get(60).partition for key, future in sent.items()}
    producer.close()
    numbers = list(range(PARTITIONS))
    assert {key: DefaultPartitioner()(key, numbers, numbers) for key in KEYS} == theirs
    with OurProducer(bootstrap_servers=servers) as ours:
        deliveries = {key: ours.send("letters", key=key) for key in KEYS}
        assert {key: one.result(60).partition for key, one in deliveries.items()} == theirs
