"""Kafka's round-robin assignor: one partition after the other, one member after the other."""

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
    """Shares out all topics together; members that do not want a topic are passed over."""

    name = "roundrobin"
    is_cooperative = False

    def user_data(self, previous: PreviousAssignment) -> bytes | None:  # noqa: ARG002
        """Return None: former assignments do not matter."""
        return None

    def assign(
        self, racks_by_topic: RacksByTopic, subscriptions: Mapping[str, MemberSubscription]
    ) -> Assignment:
        """Give every partition of every subscribed topic to one of the topic's subscribers."""
        assignment: Assignment = {member: [] for member in subscriptions}
        wanting = subscribers_by_topic(racks_by_topic.keys(), subscriptions)
        members = cycle(in_order(subscriptions))
        for topic, subscribers in sorted(wanting.items()):
            chosen = frozenset(subscribers)
            for partition in range(len(racks_by_topic[topic])):
                member = next(name for name in members if name in chosen)
                assignment[member].append(TopicPartition(topic, partition))
        return assignment
