"""The metrics of Kafka's beans, on the controller and on other brokers."""

from ottla.broker.metrics.jmx import jmx_families
from ottla.broker.metrics.snapshot import PartitionFacts
from ottla.metadata.image import ClusterImage
from tests.metadata_building import run
from tests.unit.broker.metrics.snapshots import snapshot_of
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
    """Return the metrics, without labelled ones, of a broker with one partition of the topic."""
    facts = PartitionFacts(topics=["a"], numbers=[0], insync_mins=[2])
    snapshot = snapshot_of(image, facts, node_id=node_id, is_controller=is_controller)
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
