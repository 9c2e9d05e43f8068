"""Kafka's round-robin assignor: all partitions in order, assigned to the members in turn."""

from collections.abc import Mapping
from itertools import cycle

from ottla.clients.assignors.assignor import (
    Assignment,
    MemberSubscription,
    PreviousAssignment,
    RacksByTopic,
    in_order,
    subscribers_by_topic,
)
from ottla.model.identifiers import TopicPartition


class RoundRobinAssignor:
    """Assigns all topics together; members without a subscription to a topic are skipped."""

    name = "roundrobin"
    is_cooperative = False

    def user_data(self, previous: PreviousAssignment) -> bytes | None:  # noqa: ARG002
        """Return None: former assignments have no influence."""
        return None

    def assign(
        self, racks_by_topic: RacksByTopic, subscriptions: Mapping[str, MemberSubscription]
    ) -> Assignment:
        """Assign every partition of every subscribed topic to one of the topic's subscribers."""
        assignment: Assignment = {member: [] for member in subscriptions}
        wanting = subscribers_by_topic(racks_by_topic.keys(), subscriptions)
        members = cycle(in_order(subscriptions))
        for topic, subscribers in sorted(wanting.items()):
            chosen = frozenset(subscribers)
            for partition in range(len(racks_by_topic[topic])):
                member = next(name for name in members if name in chosen)
                assignment[member].append(TopicPartition(topic, partition))
        return assignment
