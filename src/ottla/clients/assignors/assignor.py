"""What an assignor is: a rule by which the leader of a group shares out partitions.

An own one is any object with these four members; give it to the consumer in
`partition.assignment.strategy` in place of a name. Every member of a group must know at least one
assignor that all the others know.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.model.identifiers import TopicPartition

RacksByTopic = Mapping[str, Sequence[frozenset[str]]]
"""Every topic's partitions in order, each as the racks that have a replica of it."""
Assignment = dict[str, list[TopicPartition]]
"""The partitions of every member, by its id."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member has told the leader."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    """The generation in which it was given what it owns; -1 where it does not say."""
    rack_id: str | None = None
    instance_id: str | None = None


class PreviousAssignment(NamedTuple):
    """What this member was given last, though it may have been revoked since."""

    partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1


class Assignor(Protocol):
    """A rule. It keeps no state: the same arguments give the same assignment."""

    @property
    def name(self) -> str:
        """Return the name under which the members of a group agree on it."""
        ...

    @property
    def is_cooperative(self) -> bool:
        """Return whether it never gives away what another member still owns (KIP-429)."""
        ...

    def user_data(self, previous: PreviousAssignment) -> bytes | None:
        """Return what this member adds to its subscription for the leader to know."""
        ...

    def assign(
        self, racks_by_topic: RacksByTopic, subscriptions: Mapping[str, MemberSubscription]
    ) -> Assignment:
        """Give every partition of every subscribed topic to one of the topic's subscribers."""
        ...


def in_order(subscriptions: Mapping[str, MemberSubscription]) -> list[str]:
    """Sort members as Kafka does: static ones by instance id, then the others by member id."""

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = subscriptions[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    return sorted(subscriptions, key=place)


def subscribers_by_topic(
    topics: Collection[str], subscriptions: Mapping[str, MemberSubscription]
) -> dict[str, list[str]]:
    """Return who wants each of these topics, in order, without those that nobody wants."""
    found: dict[str, list[str]] = {}
    for member in in_order(subscriptions):
        for topic in set(subscriptions[member].topics).intersection(topics):
            found.setdefault(topic, []).append(member)
    return found


def is_rack_aware(member_racks: set[str], partition_racks: Sequence[frozenset[str]]) -> bool:
    """Return whether looking at racks can help (KIP-881).

    It cannot where no member is near any replica, or where every partition is in every rack.
    """
    every_rack = frozenset().union(*partition_racks)
    return not member_racks.isdisjoint(every_rack) and any(
        racks != every_rack for racks in partition_racks
    )
