"""What the metrics of Kafka's beans say of a cluster, on the controller and elsewhere."""

from collections import Counter

from ottla.broker.metrics.jmx import jmx_families
from ottla.broker.metrics.snapshot import (
    LoopFacts,
    PartitionFacts,
    ReplicationFacts,
    Snapshot,
    TransactionFacts,
)
from ottla.metadata.image import ClusterImage
from ottla.replication.traffic import Traffic
from tests.metadata_building import run
from tests.unit.machines.controller.cluster import cluster

PREFIX = "kafka_controller_kafkacontroller_"
CLUSTER = {
    "activecontrollercount": 1,
    "offlinepartitionscount": 0,
    "preferredreplicaimbalancecount": 2,
    "globaltopiccount": 1,
    "globalpartitioncount": 2,
    "activebrokercount": 2,
    "fencedbrokercount": 1,
}


def values(image: ClusterImage, node_id: int, *, is_controller: bool) -> dict[str, float]:
    """Return what a broker with one partition of the topic tells, but for what has labels."""
    facts = PartitionFacts(topics=["a"], numbers=[0], insync_mins=[2])
    snapshot = Snapshot(
        node_id=node_id,
        start_seconds=0,
        is_controller=is_controller,
        image=image,
        partitions=facts,
        groups=[],
        transactions=TransactionFacts(Counter(), 0),
        traffic=Traffic(),
        traffic_by_topic={},
        meters={},
        errors={},
        connections_by_listener={},
        accepted_connections=0,
        closed_by_reason={},
        offline_folders=0,
        cold_reads=0,
        cold_bytes=0,
        replication=ReplicationFacts(
            isr_expands=3, isr_shrinks=4, isr_failures=5, elections=6, unclean_elections=1
        ),
        loop=LoopFacts(0, 0, 1),
    )
    return {
        family.name + sample.suffix: sample.value
        for family in jmx_families(snapshot)
        for sample in family.samples
        if not sample.labels
    }


def test_the_controller_tells_of_the_whole_cluster() -> None:
    controller = cluster(0, 1, partitions=2)
    run(controller, controller.fence_broker(0))
    told = values(controller.image, 1, is_controller=True)
    assert {name: told[PREFIX + name] for name in CLUSTER} == CLUSTER
    run(controller, controller.fence_broker(1))
    assert values(controller.image, 2, is_controller=True)[PREFIX + "offlinepartitionscount"] == 2


def test_other_brokers_tell_nothing_that_would_be_counted_twice() -> None:
    controller = cluster(0, 1, partitions=2)
    run(controller, controller.fence_broker(0))
    told = values(controller.image, 1, is_controller=False)
    assert {told[PREFIX + name] for name in CLUSTER if not name.endswith("brokercount")} == {0}


def test_a_leader_tells_how_its_replicas_are() -> None:
    controller = cluster(0, 1)
    run(controller, controller.fence_broker(1))
    told = values(controller.image, 0, is_controller=False)
    expected = {
        "underreplicatedpartitions": 1,
        "underminisrpartitioncount": 1,
        "reassigningpartitions": 0,
        "isrexpands_total": 3,
        "isrshrinks_total": 4,
        "failedisrupdates_total": 5,
    }
    assert {name: told[f"kafka_server_replicamanager_{name}"] for name in expected} == expected
    stats = "kafka_controller_controllerstats_"
    assert told[f"{stats}leaderelectionrateandtimems_count"] == 6
    assert told[f"{stats}uncleanleaderelections_total"] == 1
