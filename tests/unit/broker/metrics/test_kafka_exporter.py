"""The metrics of kafka_exporter in a cluster where no broker hosts every partition."""

from ottla.broker.metrics.kafka_exporter import kafka_exporter_families
from ottla.broker.metrics.snapshot import GroupFacts, PartitionFacts
from tests.unit.broker.metrics.snapshots import snapshot_of
from tests.unit.machines.controller.cluster import cluster

HERE = PartitionFacts(
    topics=["led", "led", "copied", "spread"],
    numbers=[0, 1, 0, 0],
    are_led=[True, True, False, False],
    labels=["led-0", "led-1", "copied-0", "spread-0"],
    log_start_offsets=[1, 2, 3, 4],
    high_watermarks=[11, 22, 33, 44],
)
OFFSETS = (("led", 0, 10), ("led", 1, 20), ("copied", 0, 30), ("spread", 0, 40), ("spread", 1, 50))


def told(name: str) -> dict[str, float]:
    snapshot = snapshot_of(cluster(0).image, HERE, [GroupFacts("g", "Stable", 1, OFFSETS)])
    (family,) = [one for one in kafka_exporter_families(snapshot) if one.name == name]
    return {sample.labels: sample.value for sample in family.samples}


def test_only_the_leader_tells_where_a_partition_begins_and_ends() -> None:
    assert told("kafka_topic_partition_current_offset") == {"led-0": 11, "led-1": 22}
    assert told("kafka_topic_partition_oldest_offset") == {"led-0": 1, "led-1": 2}


def test_the_lag_is_told_of_every_partition_that_is_here() -> None:
    group = 'consumergroup="g",topic="{}",partition="{}"'.format
    assert told("kafka_consumergroup_lag") == {
        group("led", 0): 1,
        group("led", 1): 2,
        group("copied", 0): 3,
        group("spread", 0): 4,
    }


def test_a_sum_of_lags_is_whole_or_is_not_told() -> None:
    group = 'consumergroup="g",topic="{}"'.format
    assert told("kafka_consumergroup_lag_sum") == {group("led"): 3, group("copied"): 3}
    assert told("kafka_consumergroup_current_offset_sum")[group("spread")] == 90
