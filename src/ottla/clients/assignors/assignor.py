"""An assignor: a rule by which the leader of a group distributes the partitions.

A custom assignor is any object with these four members; pass it to the consumer in
`partition.assignment.strategy` in place of a name. The members of a group must have at least one
assignor in common.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.model.identifiers import TopicPartition

RacksByTopic = Mapping[str, Sequence[frozenset[str]]]
"""Every topic's partitions in order; each is the set of racks with a replica."""
Assignment = dict[str, list[TopicPartition]]
"""The partitions of every member, by its id."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The subscription that a member sent to the leader."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    """The generation of the owned partitions; -1 if the member does not send it."""
    rack_id: str | None = None
    instance_id: str | None = None


class PreviousAssignment(NamedTuple):
    """The last assignment of this member, though it may have been revoked since."""

    partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1


class Assignor(Protocol):
    """An assignment rule. It is stateless: the same arguments give the same assignment."""

    @property
    def name(self) -> str:
        """Return the name under which the members of a group agree on it."""
        ...

    @property
    def is_cooperative(self) -> bool:
        """Return whether it never assigns a partition that another member still owns (KIP-429)."""
        ...

    def user_data(self, previous: PreviousAssignment) -> bytes | None:
        """Return the user data that this member adds to its subscription for the leader."""
        ...

    def assign(
        self, racks_by_topic: RacksByTopic, subscriptions: Mapping[str, MemberSubscription]
    ) -> Assignment:
        """Assign every partition of every subscribed topic to one of the topic's subscribers."""
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
    """Return the subscribers of each topic, in order; topics without subscribers are left out."""
    found: dict[str, list[str]] = {}
    for member in in_order(subscriptions):
        for topic in set(subscriptions[member].topics).intersection(topics):
            found.setdefault(topic, []).append(member)
    return found


def is_rack_aware(member_racks: set[str], partition_racks: Sequence[frozenset[str]]) -> bool:
    """Return whether racks can influence the assignment (KIP-881).

    They cannot if no member is in a rack with a replica, or if every partition is in every rack.
    """
    every_rack = frozenset().union(*partition_racks)
    return not member_racks.isdisjoint(every_rack) and any(
        racks != every_rack for racks in partition_racks
    )
