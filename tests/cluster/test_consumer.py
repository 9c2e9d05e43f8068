"""Ottla's consumer in a cluster: it reads in its own rack, and while brokers die."""

import time
from collections.abc import Iterator
from threading import Thread

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import Consumer
from ottla.testing import Cluster

RACKS = {1: "prague", 2: "berlin", 3: "prague"}
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
PARTITIONS = 4
RECORDS = 2000
SECONDS_MAX = 120


@pytest.fixture(scope="module")
def cluster(needs_zookeeper: None) -> Iterator[Cluster]:
    settings = {"replica.selector.class": SELECTOR, "min.insync.replicas": "2"}
    with Cluster(
        brokers=len(RACKS), racks=list(RACKS.values()), settings=settings, zookeeper=True
    ) as running:
        yield running


def new_topic(cluster: Cluster, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(SECONDS_MAX)
    return name


def send(cluster: Cluster, topic: str, pause_s: float = 0.0) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "log_level": 0,
        }
    )
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
        time.sleep(pause_s)
    assert producer.flush(SECONDS_MAX) == 0


def read_all(consumer: Consumer) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    deadline = time.monotonic() + SECONDS_MAX
    while sum(map(len, found.values())) < RECORDS:
        assert time.monotonic() < deadline, {n: len(values) for n, values in found.items()}
        for record in consumer.poll():
            found[record.partition].append(record.value)
    return found


def consumer_of(cluster: Cluster, topic: str, **settings: str | int) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **settings
    )
    consumer.assign([(topic, number) for number in range(PARTITIONS)])
    return consumer


EXPECTED = {
    number: [b"%d" % n for n in range(RECORDS) if n % PARTITIONS == number]
    for number in range(PARTITIONS)
}


def test_a_consumer_reads_from_brokers_of_its_own_rack(cluster: Cluster) -> None:
    topic = new_topic(cluster, "near")
    send(cluster, topic)
    with consumer_of(cluster, topic, client_rack="berlin") as consumer:
        assert read_all(consumer) == EXPECTED
        leaders = {row.partition: row.leader for row in consumer.partitions_for(topic)}
        replicas = {
            name.partition: partition.read_replica
            for name, partition in consumer.core.state.assigned.items()
        }
        for number, leader in leaders.items():
            assert replicas[number] == (-1 if leader == 2 else 2)


def test_nothing_is_lost_and_nothing_comes_twice_while_leaders_die(cluster: Cluster) -> None:
    topic = new_topic(cluster, "unsteady")
    with consumer_of(cluster, topic, fetch_max_wait_ms=100) as consumer:
        sending = Thread(target=send, args=(cluster, topic, 0.002))
        sending.start()
        killing = Thread(target=kill_in_turn, args=(cluster,))
        killing.start()
        found = read_all(consumer)
        killing.join()
        sending.join()
    assert found == EXPECTED


def kill_in_turn(cluster: Cluster) -> None:
    for number in (1, 2):
        cluster.brokers[number].kill()
        cluster.brokers[number].start()
        cluster.wait_until_ready()
