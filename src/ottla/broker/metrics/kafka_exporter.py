"""The metrics of kafka_exporter, by its names: topics, partitions, groups and their lag.

The leader of a partition reports its offsets. The coordinator of a group reports its lag, but only
for partitions with a replica on the same broker.
"""

from collections.abc import Callable, Iterator
from itertools import compress

from ottla.broker.metrics.exposition import Family, Sample, column, gauge, labels
from ottla.broker.metrics.snapshot import GroupFacts, PartitionFacts, Snapshot
from ottla.metadata.image import PartitionImage

_EndOffsets = dict[str, dict[int, int]]
"""By topic and partition."""


def kafka_exporter_families(snapshot: Snapshot) -> Iterator[Family]:
    """Yield all metrics of kafka_exporter for a cluster."""
    yield from _brokers(snapshot)
    yield from _offsets(snapshot.partitions)
    yield from _replicas(snapshot)
    yield from _groups(snapshot)


def _brokers(snapshot: Snapshot) -> Iterator[Family]:
    brokers = snapshot.image.brokers.values()
    topics = snapshot.image.topics.values()
    yield gauge("kafka_brokers", "Brokers in the cluster.", len(brokers))
    yield gauge(
        "kafka_broker_info",
        "Where each broker is.",
        [
            Sample(labels(id=broker.broker_id, address=f"{end.host}:{end.port}"), 1)
            for broker in brokers
            for end in broker.endpoints[:1]
        ],
    )
    yield gauge(
        "kafka_topic_partitions",
        "Partitions of a topic.",
        [Sample(labels(topic=topic.name), len(topic.partitions)) for topic in topics],
    )


def _offsets(partitions: PartitionFacts) -> Iterator[Family]:
    led = partitions.are_led
    texts = list(compress(partitions.labels, led))
    yield gauge(
        "kafka_topic_partition_current_offset",
        "The offset that the next record visible to consumers gets.",
        column(texts, compress(partitions.high_watermarks, led)),
    )
    yield gauge(
        "kafka_topic_partition_oldest_offset",
        "The offset of the oldest record.",
        column(texts, compress(partitions.log_start_offsets, led)),
    )


def _replicas(snapshot: Snapshot) -> Iterator[Family]:
    topics = snapshot.image.topics.values()
    texts = [
        labels(topic=topic.name, partition=number)
        for topic in topics
        for number in range(len(topic.partitions))
    ]

    def family(name: str, documentation: str, value: Callable[[PartitionImage], int]) -> Family:
        values = (value(state) for topic in topics for state in topic.partitions)
        return gauge(f"kafka_topic_partition_{name}", documentation, column(texts, values))

    yield family("leader", "The broker that leads.", lambda state: state.leader)
    yield family("replicas", "Replicas of a partition.", lambda state: len(state.replicas))
    yield family("in_sync_replica", "Replicas that are in sync.", lambda state: len(state.isr))
    yield family(
        "leader_is_preferred",
        "1 if the first of the replicas leads.",
        lambda state: int(state.replicas[:1] == (state.leader,)),
    )
    yield family(
        "under_replicated_partition",
        "1 if not all replicas are in sync.",
        lambda state: int(len(state.isr) < len(state.replicas)),
    )


def _groups(snapshot: Snapshot) -> Iterator[Family]:
    end_offsets = _end_offsets(snapshot.partitions)
    groups = snapshot.groups
    yield gauge(
        "kafka_consumergroup_members",
        "Members of a group.",
        [Sample(labels(consumergroup=group.group_id), group.member_count) for group in groups],
    )
    yield gauge(
        "kafka_consumergroup_current_offset",
        "The offset that a group has committed.",
        (
            Sample(_group_labels(group, topic, partition), offset)
            for group in groups
            for topic, partition, offset in group.offsets
        ),
    )
    yield gauge(
        "kafka_consumergroup_lag",
        "Records that a group has still to read, in partitions that are on this broker.",
        (
            Sample(_group_labels(group, topic, partition), lag)
            for group in groups
            for topic, partition, lag in _lags(group, end_offsets)
        ),
    )
    yield gauge(
        "kafka_consumergroup_current_offset_sum",
        "The committed offsets of a group, over all partitions of a topic.",
        (sample for group in groups for sample in _sums(group, group.offsets)),
    )
    yield gauge(
        "kafka_consumergroup_lag_sum",
        "The lag of a group, over all partitions of a topic, where all are on this broker.",
        (sample for group in groups for sample in _sums(group, _whole_lags(group, end_offsets))),
    )


def _end_offsets(partitions: PartitionFacts) -> _EndOffsets:
    found: _EndOffsets = {}
    for topic, number, end_offset in zip(
        partitions.topics, partitions.numbers, partitions.high_watermarks, strict=True
    ):
        found.setdefault(topic, {})[number] = end_offset
    return found


def _group_labels(group: GroupFacts, topic: str, partition: int) -> str:
    return labels(consumergroup=group.group_id, topic=topic, partition=partition)


def _lags(group: GroupFacts, end_offsets: _EndOffsets) -> tuple[tuple[str, int, int], ...]:
    return tuple(
        (topic, partition, max(end_offset - offset, 0))
        for topic, partition, offset in group.offsets
        if (end_offset := end_offsets.get(topic, {}).get(partition)) is not None
    )


def _whole_lags(group: GroupFacts, end_offsets: _EndOffsets) -> tuple[tuple[str, int, int], ...]:
    """Leave those topics out of which a partition is not here: a part of a sum misleads."""
    incomplete = {
        topic
        for topic, partition, _ in group.offsets
        if partition not in end_offsets.get(topic, {})
    }
    return tuple(row for row in _lags(group, end_offsets) if row[0] not in incomplete)


def _sums(group: GroupFacts, values: tuple[tuple[str, int, int], ...]) -> Iterator[Sample]:
    sum_by_topic: dict[str, int] = {}
    for topic, _, value in values:
        sum_by_topic[topic] = sum_by_topic.get(topic, 0) + value
    for topic, total in sum_by_topic.items():
        yield Sample(labels(consumergroup=group.group_id, topic=topic), total)
