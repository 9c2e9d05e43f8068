"""kafka-python's assignors, called with the same input."""

import warnings
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
    from kafka.structs import TopicPartition as TheirPartition

from ottla.clients.assignors.assignor import Assignment, MemberSubscription
from ottla.clients.assignors.group_bytes import encode_subscription
from ottla.model.identifiers import TopicPartition

__all__ = [
    "RangePartitionAssignor",
    "RoundRobinPartitionAssignor",
    "StickyPartitionAssignor",
    "TheirPartition",
    "assigned_by",
]


class Cluster:
    """The cluster interface that kafka-python's assignors need."""

    def __init__(self, partitions_by_topic: Mapping[str, int]) -> None:
        self._partitions = partitions_by_topic

    def topics(self) -> set[str]:
        return set(self._partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        number = self._partitions.get(topic)
        return None if number is None else set(range(number))


def assigned_by(
    assignor: Any, topics: Mapping[str, int], subscriptions: Mapping[str, MemberSubscription]
) -> Assignment:
    """Let kafka-python decode Ottla's subscriptions and assign the partitions."""
    rows = [
        SimpleNamespace(
            member_id=name,
            group_instance_id=row.instance_id,
            metadata=ConsumerProtocolSubscription.decode(encode_subscription(row)),
        )
        for name, row in sorted(subscriptions.items())
    ]
    return {
        name: sorted(
            TopicPartition(topic, number)
            for topic, numbers in assignment.assigned_partitions
            for number in numbers
        )
        for name, assignment in assignor.assign(Cluster(topics), rows).items()
    }
