"""A quorum of ours: Kafka's tools describe and change it, and a Kafka broker works in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin
from ottla.model.identifiers import uuid_to_text
from tests.clients.admin_stories import eventually
from tests.cluster.group_member import Member, wait_until_all_is_read
from tests.cluster.load import Load
from tests.interop.clusters.kafka_cluster import PROPERTIES
from tests.interop.clusters.ottla_node import OttlaNode, ottla_nodes
from tests.interop.clusters.our_replica import directory_id_of
from tests.interop.console import table
from tests.interop.kafka_node import CLUSTER_ID, KafkaServer, free_ports, run_tool

CONTROLLER, OURS, THEIRS, SECOND = 101, 11, 1, 102
PARTITIONS = 4
FEW_REPLICAS = """\
offsets.topic.replication.factor=2
transaction.state.log.replication.factor=2
transaction.state.log.min.isr=1
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[OttlaNode]]:
    """A controller and a broker of ours."""
    with ottla_nodes() as nodes:
        nodes.append(OttlaNode(tmp_path / "controller", CONTROLLER, "controller"))
        controllers = nodes[0].controllers
        nodes.append(OttlaNode(tmp_path / "broker", OURS, "broker", controllers=controllers))
        for node in nodes:
            node.start()
        yield nodes


def tool(name: str, *words: str) -> str:
    """Run a tool of Kafka's, which must succeed."""
    done = run_tool(f"org.apache.kafka.tools.{name}", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafkas_tools_describe_the_quorum_through_brokers_and_controllers(
    nodes: list[OttlaNode],
) -> None:
    controller, broker = nodes
    for way in (
        ("--bootstrap-controller", controller.controllers),
        ("--bootstrap-server", broker.bootstrap_server),
    ):
        status = tool("MetadataQuorumCommand", *way, "describe", "--status")
        assert f"LeaderId:               {CONTROLLER}" in status
        assert f"CONTROLLER://{controller.controllers}" in status
        rows = table(tool("MetadataQuorumCommand", *way, "describe", "--replication"))
        assert {(row[0], row[-1]) for row in rows} == {
            (str(CONTROLLER), "Leader"),
            (str(OURS), "Observer"),
        }
        assert "Feature: metadata.version" in tool("FeatureCommand", *way, "describe")
        assert CLUSTER_ID in tool("ClusterTool", "cluster-id", *way)
        ids = {row[0] for row in table(tool("ClusterTool", "list-endpoints", *way))}
        assert ids == {str(CONTROLLER if way[0].endswith("controller") else OURS)}


def test_kafkas_tool_adds_and_removes_a_controller(nodes: list[OttlaNode], tmp_path: Path) -> None:
    controllers = nodes[0].controllers
    second = OttlaNode(tmp_path / "second", SECOND, "controller", controllers=controllers)
    nodes.append(second)
    second.start()
    way = ("--bootstrap-controller", controllers)

    def voters() -> set[str]:
        rows = table(tool("MetadataQuorumCommand", *way, "describe", "--replication"))
        return {row[0] for row in rows if row[-1] != "Observer"}

    added = ("--command-config", str(second.config), "add-controller")
    tool("MetadataQuorumCommand", *way, *added)
    assert voters() == {str(CONTROLLER), str(SECOND)}
    directory_id = uuid_to_text(directory_id_of(second.data_dir))
    named = ("--controller-id", str(SECOND), "--controller-directory-id", directory_id)
    tool("MetadataQuorumCommand", *way, "remove-controller", *named)
    assert voters() == {str(CONTROLLER)}


def test_a_kafka_broker_leads_and_follows_beside_a_broker_of_ours(
    nodes: list[OttlaNode], tmp_path: Path
) -> None:
    """Each node dies once, or is restarted, under load."""
    controller, broker = nodes
    kafka, port = kafka_broker(tmp_path / "kafka", controller.controllers)
    servers = f"127.0.0.1:{port},{broker.bootstrap_server}"
    try:
        kafka.launch()
        kafka.await_broker(port)
        with Admin(bootstrap_servers=servers) as admin:
            placed = {number: [THEIRS, OURS][:: 1 - number % 2 * 2] for number in range(PARTITIONS)}
            admin.topics.create("load", assignments=placed)

            def is_whole() -> bool:
                rows = admin.partitions.describe("load")
                return all(set(row.in_sync_replicas) == {THEIRS, OURS} for row in rows)

            with Load(servers, "load", PARTITIONS) as load, Member(servers, "load", "r") as reader:
                eventually(is_whole)
                broker.kill()
                load.goes_on()
                broker.start()
                eventually(is_whole)
                kafka.stop()
                load.goes_on()
                kafka.launch()
                kafka.await_broker(port)
                eventually(is_whole)
                controller.kill()
                load.goes_on()
                controller.start()
                admin.topics.create("after", replication_factor=2)
                load.goes_on()
                load.__exit__(None, None, None)
                wait_until_all_is_read([reader], load.acknowledged)
        assert load.counts().is_perfect, load.counts()
        assert reader.failed == []
    finally:
        kafka.kill()


def kafka_broker(directory: Path, controllers: str) -> tuple[KafkaServer, int]:
    """Format a Kafka broker beside our controllers; return it with its port."""
    (port,) = free_ports(1)
    text = PROPERTIES.format(
        node_id=THEIRS,
        role="broker",
        bootstrap=controllers,
        listener="PLAINTEXT",
        port=port,
        directory=directory,
    )
    kafka = KafkaServer(directory, text + FEW_REPLICAS)
    kafka.format()
    return kafka, port
