"""Racks: copies are spread over them, and consumers read in their own."""

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster

RACKS = {1: "prague", 2: "berlin", 3: "prague", 4: "berlin"}
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
PARTITIONS = 8
RECORDS = 500
SECONDS_MAX = 240


@pytest.fixture(scope="module")
def cluster(needs_zookeeper: None) -> Iterator[Cluster]:
    settings = {"replica.selector.class": SELECTOR}
    with Cluster(
        brokers=len(RACKS), racks=list(RACKS.values()), settings=settings, zookeeper=True
    ) as running:
        yield running


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    created = admin.create_topics([NewTopic("letters", PARTITIONS, 2)])
    created["letters"].result(SECONDS_MAX)
    return "letters"


def test_no_partition_has_all_its_copies_in_one_rack(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    partitions = admin.list_topics(topic, SECONDS_MAX).topics[topic].partitions
    assert len(partitions) == PARTITIONS
    for partition in partitions.values():
        assert {RACKS[number] for number in partition.replicas} == {"prague", "berlin"}


@pytest.mark.parametrize("rack", ["prague", "berlin"])
def test_a_consumer_reads_everything_from_brokers_of_its_own_rack(
    cluster: Cluster, topic: str, rack: str
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(SECONDS_MAX) == 0
    brokers: dict[int, int] = {}

    def note(statistics: str) -> None:
        for index, partition in json.loads(statistics)["topics"][topic]["partitions"].items():
            if int(index) >= 0:
                brokers[int(index)] = partition["broker"]

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"readers-in-{rack}",
            "client.rack": rack,
            "statistics.interval.ms": 100,
            "stats_cb": note,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    read = 0
    deadline = time.monotonic() + SECONDS_MAX
    while read < RECORDS or {RACKS.get(broker) for broker in brokers.values()} != {rack}:
        assert time.monotonic() < deadline, f"{read} read, from {brokers}"
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None
            read += 1
    consumer.close()
    assert len(brokers) == PARTITIONS
