"""Kafka's brokers are replaced by Ottla's, one by one, while clients write and read."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla import Admin
from tests.clients.admin_stories import eventually
from tests.clients.cli_calls import call, rows
from tests.cluster.committed_readers import by_librdkafka
from tests.cluster.group_member import Member, wait_until_all_is_read
from tests.cluster.load import Load
from tests.interop.clusters.java_clients import JavaClient, java_consumer, java_producer
from tests.interop.clusters.kafka_cluster import KafkaCluster, kafka_cluster
from tests.interop.clusters.ottla_node import OttlaNode, ottla_nodes
from tests.interop.clusters.transactional_writer import TransactionalWriter
from tests.interop.console import Console

PARTITIONS = 4
INTERNAL = {"__consumer_offsets", "__transaction_state"}
OURS = (11, 12)
SENT, READ = "producer_send_success", "record_data"


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaCluster]:
    with kafka_cluster(tmp_path / "kafka", brokers=2) as cluster:
        cluster.start()
        yield cluster


@pytest.fixture
def ottla(kafka: KafkaCluster, tmp_path: Path) -> Iterator[dict[int, OttlaNode]]:
    with ottla_nodes() as nodes:
        for number in OURS:
            folder = tmp_path / f"ottla-{number}"
            nodes.append(OttlaNode(folder, number, "broker", controllers=kafka.controllers))
            nodes[-1].start()
        yield dict(zip(OURS, nodes, strict=True))


def test_brokers_are_replaced_one_by_one_under_load(
    kafka: KafkaCluster, ottla: dict[int, OttlaNode], tmp_path: Path
) -> None:
    call("migrate", "check", "--bootstrap-server", kafka.bootstrap_servers)
    servers = ",".join([kafka.bootstrap_servers, *(one.bootstrap_server for one in ottla.values())])
    with Admin(bootstrap_servers=servers) as admin, ExitStack() as stack:
        placed = {number: [1 + number % 2, 2 - number % 2] for number in range(PARTITIONS)}
        admin.topics.create(["load", "paid", "java"], assignments=placed)
        load = stack.enter_context(Load(servers, "load", PARTITIONS))
        payer = stack.enter_context(TransactionalWriter(servers, "paid"))
        reader = stack.enter_context(Member(servers, "load", "readers"))
        consumed = stack.enter_context(java_consumer(servers, "java", tmp_path))
        produced = stack.enter_context(java_producer(servers, "java", tmp_path))
        eventually(lambda: bool(reader.delivered) and bool(payer.committed))
        goes_on(produced, consumed)

        move_by_kafkas_tool(kafka, tmp_path, "load")
        load.goes_on()
        for number in (1, 2):
            assert_in_service(servers, number, *OURS)
            call(
                "broker", "drain", str(number), "--to", "11,12", "--yes", "--wait", brokers=servers
            )
            load.goes_on()
            kafka.nodes[number].stop()
            call("broker", "remove", str(number), "--yes", brokers=servers)
            load.goes_on()
            before = len(payer.committed)
            eventually(lambda before=before: len(payer.committed) > before)
            goes_on(produced, consumed)
        remaining = {number for row in admin.partitions.describe() for number in row.replicas}
        assert remaining == set(OURS)
        load.__exit__(None, None, None)
        wait_until_all_is_read([reader], load.acknowledged)

    left = ",".join(one.bootstrap_server for one in ottla.values())
    assert load.counts().is_perfect, load.counts()
    assert (reader.failed, payer.failed) == ([], [])
    assert values_of("paid", left) == sorted(payer.committed)
    # The producer ends before the consumer, and its last records may be acknowledged unread.
    assert (produced.errors(), consumed.errors()) == ([], [])
    written = [value.encode() for value in produced.values(SENT)]
    assert values_of("java", left) == sorted(written)


def goes_on(produced: JavaClient, consumed: JavaClient) -> None:
    """Wait until the Java consumer has read a record that is written from now on."""
    before = len(produced.values(SENT))
    eventually(lambda: len(produced.values(SENT)) > before)
    last = produced.values(SENT)[-1]
    eventually(lambda: last in consumed.values(READ))


def values_of(topic: str, servers: str) -> list[bytes]:
    """Return all committed values of a topic, sorted."""
    found = by_librdkafka(servers, topic, PARTITIONS)
    return sorted(value for values in found for value in values)


def assert_in_service(servers: str, *numbers: int) -> None:
    """Check that `ottla broker list` shows brokers that are not fenced."""
    shown = {row["id"]: row["fenced"] for row in rows("broker", "list", brokers=servers)}
    assert not any(shown[number] for number in numbers)


def move_by_kafkas_tool(kafka: KafkaCluster, folder: Path, topic: str) -> None:
    """Move a topic to Ottla's brokers by `kafka-reassign-partitions`."""
    topics, plan = folder / "topics.json", folder / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    console = Console(kafka.bootstrap_servers)
    tool = "reassign-partitions"
    line = f"{tool} --generate --topics-to-move-json-file {topics} --broker-list 11,12"
    plan.write_text(console(line).splitlines()[-1])
    console(f"{tool} --execute --reassignment-json-file {plan}")
    verify = f"{tool} --verify --reassignment-json-file {plan}"
    eventually(lambda: "still in progress" not in console(verify))
