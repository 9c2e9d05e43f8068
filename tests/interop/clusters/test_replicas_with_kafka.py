"""Our replica of the metadata log beside a Kafka controller: as an observer, and on its folder."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from ottla import Admin, ConfigResource
from ottla.metadata.metadata_version import NEWEST_METADATA_VERSION
from ottla.metadata.record_frames import batch_of
from ottla.metadata.records import ConfigRecord
from tests.clients.admin_stories import eventually
from tests.interop.clusters.kafka_cluster import FIRST_CONTROLLER_ID, KafkaCluster, kafka_cluster
from tests.interop.clusters.our_replica import (
    directory_id_of,
    image_of,
    our_replica,
    run,
    until,
)
from tests.interop.console import Console, table
from tests.interop.kafka_dump import dump
from tests.metadata_building import uuid_of
from tests.quorum_nodes import QuorumNode

OBSERVER_ID = 77
OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
_TOPIC = 2


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KafkaCluster]:
    with kafka_cluster(tmp_path / "kafka", brokers=1, settings=OFTEN) as cluster:
        cluster.start()
        yield cluster


def test_an_observer_follows_a_kafka_controller_through_its_restart(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    controller = cluster.nodes[FIRST_CONTROLLER_ID]

    (tmp_path / "ours").mkdir()

    async def story() -> None:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            for number in range(10):
                admin.topics.create(f"before-{number}")
        async with observer() as node:
            await until(node, lambda: "before-9" in image_of(node).topics)
            assert node.replica.newest_snapshot() is not None, "the log was copied from its start"
            rows = table(
                Console(cluster.bootstrap_servers)("metadata-quorum describe --replication")
            )
            (row,) = [row for row in rows if row[0] == str(OBSERVER_ID)]
            assert row[-1] == "Observer"
            epoch = node.replica.epoch
            await asyncio.to_thread(controller.kill)
            controller.launch()
            await until(node, lambda: node.replica.epoch > epoch)
            await asyncio.to_thread(create, cluster, "after")
            await until(node, lambda: "after" in image_of(node).topics)
            end_offset = node.replica.high_watermark
        async with observer() as node:
            assert node.replica.end_offset >= end_offset, "a restarted observer has its log"
            await asyncio.to_thread(create, cluster, "later")
            await until(node, lambda: "later" in image_of(node).topics)
            assert not node.failures

    def observer() -> AbstractAsyncContextManager[QuorumNode]:
        return our_replica(
            tmp_path / "ours", OBSERVER_ID, uuid_of(OBSERVER_ID), controllers=cluster.controllers
        )

    run(story())


def test_our_replica_and_a_kafka_controller_continue_each_others_log(
    cluster: KafkaCluster,
) -> None:
    """The folder changes hands twice; each side leads in an epoch of its own."""
    create(cluster, "letters")
    epochs: list[int] = []
    for retention_ms in ("1000", "2000"):
        cluster.stop()
        run(change_topic(cluster, "letters", retention_ms, epochs))
        found = dump(cluster.metadata_dir.glob("*/*.log"), "--cluster-metadata-decoder")
        assert found.complaints == []
        cluster.start()
        resource = ConfigResource.topic("letters")
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            described = admin.configs.describe(resource)[resource]
            assert described["retention.ms"].value == retention_ms
            assert admin.cluster.quorum().leader_epoch > epochs[-1]
        create(cluster, f"after-{retention_ms}")
        assert "ERROR" not in cluster.nodes[FIRST_CONTROLLER_ID].output
    assert epochs[0] < epochs[1]


async def change_topic(
    cluster: KafkaCluster, topic: str, retention_ms: str, epochs: list[int]
) -> None:
    """Open the folder of the stopped controller as its only voter, and write a setting."""
    folder = cluster.metadata_dir
    async with our_replica(
        folder,
        FIRST_CONTROLLER_ID,
        directory_id_of(folder),
        controllers=cluster.controllers,
        port=cluster.port_by_controller[FIRST_CONTROLLER_ID],
    ) as node:
        await node.leads()
        assert topic in image_of(node).topics
        record = ConfigRecord(
            resource_type=_TOPIC, resource_name=topic, name="retention.ms", value=retention_ms
        )
        offset = node.replica.propose(batch_of([record], NEWEST_METADATA_VERSION, 0))
        await node.committed(offset)
        assert image_of(node).topic_settings(topic) == {"retention.ms": retention_ms}
        epochs.append(node.replica.epoch)


def create(cluster: KafkaCluster, topic: str) -> None:
    """Create a topic, and see that a broker knows it."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.topics.create(topic)
        eventually(lambda: topic in {one.name for one in admin.topics.list()})
