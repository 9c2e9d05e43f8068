"""A cluster moves from ZooKeeper to a quorum, and goes on where it was."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from ottla.testing.child_process import ProcessGroup
from ottla.testing.cluster import Cluster
from tests.cluster.load import WAIT_SECONDS_MAX
from tests.cluster.quorum_nodes import CONTROLLER, NodeProcess
from tests.cluster.watching import SETTINGS

TOPIC = "moved"
PARTITIONS = 6
RECORDS = 600
RETENTION = {"retention.ms": "123456789"}


def create_topic(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topic = NewTopic(TOPIC, PARTITIONS, 3, config=RETENTION)
    admin.create_topics([topic], operation_timeout=30, request_timeout=30)[TOPIC].result()


def described(servers: str) -> object:
    """Return the cluster id, the replicas of the topic, and its settings."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    found = admin.list_topics(TOPIC, timeout=30)
    replicas = {number: one.replicas for number, one in found.topics[TOPIC].partitions.items()}
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    config = admin.describe_configs([resource], request_timeout=30)[resource].result()
    return found.cluster_id, replicas, {name: config[name].value for name in RETENTION}


def produce(servers: str, first: int) -> list[str]:
    """Write records with these numbers, each acknowledged by all replicas in sync."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    failed: list[object] = []

    def answered(error: object, _: object) -> None:
        failed.extend([] if error is None else [error])

    values = [str(number) for number in range(first, first + RECORDS)]
    for value in values:
        producer.produce(TOPIC, value, value, on_delivery=answered)
    assert producer.flush(WAIT_SECONDS_MAX) == 0
    assert failed == []
    return values


def read(servers: str, count: int) -> Counter[str]:
    """Read so many records as the group, commit, and leave."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "readers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    found: Counter[str] = Counter()
    while found.total() < count:
        messages = consumer.consume(count - found.total(), timeout=WAIT_SECONDS_MAX)
        assert messages, found.total()
        found.update(str(one.value(), "utf-8") for one in messages if one.error() is None)
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def convert(zookeeper: str, controller: NodeProcess) -> "subprocess.CompletedProcess[str]":
    address = controller.address(CONTROLLER)
    options = ["--zookeeper", zookeeper, "--yes", *controller.options(address)]
    command = [sys.executable, "-m", "ottla.cli.main", "cluster", "convert", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_cluster_moves_from_zookeeper_to_a_quorum(needs_zookeeper: None, tmp_path: Path) -> None:
    group = ProcessGroup()
    controller = NodeProcess(9, "controller", tmp_path, group, {})
    with Cluster(3, SETTINGS, data_dir=tmp_path / "old", zookeeper=True) as old:
        create_topic(old.bootstrap_servers)
        before = described(old.bootstrap_servers)
        written = produce(old.bootstrap_servers, 0)
        seen = read(old.bootstrap_servers, RECORDS // 2)
        refused = convert(old.zookeeper_connect, controller)
        assert refused.returncode == 1
        assert "1, 2, 3 are running: stop all brokers first" in refused.stderr
        folders = {number: broker.data_dir for number, broker in old.brokers.items()}
        for broker in old.brokers.values():
            broker.stop()
        done = convert(old.zookeeper_connect, controller)
        assert done.returncode == 0, done.stderr
        again = convert(old.zookeeper_connect, controller)
        assert "has the metadata of a quorum" in again.stderr
    brokers = [NodeProcess(number, "broker", tmp_path, group, SETTINGS) for number in folders]
    nodes = [controller, *brokers]
    try:
        for broker in brokers:
            broker.data_dir = folders[broker.id]
        for node in nodes:
            node.launch(controller.address(CONTROLLER))
        for node in nodes:
            node.wait_until_up()
        servers = ",".join(one.address("PLAINTEXT") for one in brokers)
        assert described(servers) == before
        written += produce(servers, RECORDS)
        seen += read(servers, len(written) - seen.total())
        assert seen == Counter(written)
        for node in reversed(nodes):
            node.stop()
    finally:
        group.close()
        for node in nodes:
            node.release_ports()
