"""Kafka's sticky assignors: even shares, with as few partitions as possible changing hands.

Each member keeps what it may, the rest is assigned, and then the shares are balanced. They are even
when no member could take over a partition from a member that has at least two more. Topics with the
same subscribers form one kind, so that groups with thousands of partitions are assigned quickly.

The eager assignor reads former assignments from its own user data, since everything is revoked
before joining. The cooperative assignor reads the partitions that members still own, and holds
back partitions that must be revoked first: the next rebalance assigns them (KIP-429).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ottla.clients.assignors.assignor import (
    Assignment,
    MemberSubscription,
    PreviousAssignment,
    RacksByTopic,
    in_order,
    is_rack_aware,
    subscribers_by_topic,
)
from ottla.clients.assignors.group_bytes import (
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)
from ottla.model.identifiers import TopicPartition

Kind = tuple[str, ...]
"""The subscribers of a topic, in order."""


def share_sticky(
    racks_by_topic: RacksByTopic,
    subscriptions: Mapping[str, MemberSubscription],
    previous: Mapping[str, PreviousAssignment],
) -> Assignment:
    """Assign evenly, with as few partitions as possible changing their owner."""
    wanting = subscribers_by_topic(racks_by_topic.keys(), subscriptions)
    kind_by_topic = {topic: tuple(members) for topic, members in wanting.items()}
    sharing = _Sharing(subscriptions, kind_by_topic)
    unassigned = dict.fromkeys(_partitions(racks_by_topic, sharing.kind_by_topic))
    for partition, member in kept_owners(previous).items():
        if partition in unassigned and member in kind_by_topic[partition.topic]:
            sharing.give(partition, member)
            del unassigned[partition]
    if nearness := _Nearness.of(racks_by_topic, subscriptions):
        sharing.nearness = nearness
        unassigned = sharing.give_nearby(unassigned)
    for partition in unassigned:
        sharing.give(partition, sharing.lightest(sharing.kind_by_topic[partition.topic]))
    sharing.even_out()
    return sharing.assignment()


def kept_owners(previous: Mapping[str, PreviousAssignment]) -> dict[TopicPartition, str]:
    """Return the former owners; the latest claim wins, and equal claims cancel each other."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member, (partitions, generation_id) in sorted(previous.items()):
        for partition in partitions:
            known = claims.get(partition)
            if known is None or known[0] < generation_id:
                claims[partition] = generation_id, member
            elif known[0] == generation_id:
                claims[partition] = generation_id, None
    return {name: member for name, (_, member) in claims.items() if member is not None}


def _partitions(
    racks_by_topic: RacksByTopic, kind_by_topic: Mapping[str, Kind]
) -> Iterator[TopicPartition]:
    """Yield the partitions with the fewest possible owners first."""
    for topic in sorted(kind_by_topic, key=lambda topic: (len(kind_by_topic[topic]), topic)):
        for number in range(len(racks_by_topic[topic])):
            yield TopicPartition(topic, number)


@dataclass(frozen=True, slots=True)
class _Nearness:
    """The members in a rack with a replica, by partition (KIP-881)."""

    racks_by_topic: RacksByTopic
    rack_by_member: Mapping[str, str | None]

    @classmethod
    def of(
        cls, racks_by_topic: RacksByTopic, subscriptions: Mapping[str, MemberSubscription]
    ) -> "_Nearness | None":
        """Return the object, or None if racks make no difference."""
        member_racks = {row.rack_id for row in subscriptions.values() if row.rack_id}
        every = [racks for partitions in racks_by_topic.values() for racks in partitions]
        if not every or not is_rack_aware(member_racks, every):
            return None
        return cls(racks_by_topic, {name: row.rack_id for name, row in subscriptions.items()})

    def is_near(self, member: str, partition: TopicPartition) -> bool:
        rack = self.rack_by_member[member]
        return not rack or rack in self.racks_by_topic[partition.topic][partition.partition]


@dataclass(slots=True)
class _Sharing:
    """The partial assignment. Kept partitions come first in every list."""

    subscriptions: Mapping[str, MemberSubscription]
    kind_by_topic: Mapping[str, Kind]
    nearness: _Nearness | None = None
    load_by_member: dict[str, int] = field(init=False)
    partitions_by_member: dict[str, dict[Kind, list[TopicPartition]]] = field(init=False)

    def __post_init__(self) -> None:
        self.load_by_member = dict.fromkeys(in_order(self.subscriptions), 0)
        self.partitions_by_member = {member: {} for member in self.load_by_member}

    def give(self, partition: TopicPartition, member: str) -> None:
        kind = self.kind_by_topic[partition.topic]
        self.partitions_by_member[member].setdefault(kind, []).append(partition)
        self.load_by_member[member] += 1

    def lightest(self, members: Iterable[str]) -> str:
        return min(members, key=self.load_by_member.__getitem__)

    def give_nearby(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, None]:
        """Assign to members nearby until their shares are full; return the remaining partitions."""
        assert self.nearness is not None
        left: dict[TopicPartition, None] = dict.fromkeys(partitions)
        count = len(left) + sum(self.load_by_member.values())
        share = -(-count // len(self.load_by_member))
        for partition in list(left):
            near = [
                member
                for member in self.kind_by_topic[partition.topic]
                if self.load_by_member[member] < share and self.nearness.is_near(member, partition)
            ]
            if near:
                self.give(partition, self.lightest(near))
                del left[partition]
        return left

    def even_out(self) -> None:
        """Move partitions one by one from the heaviest member, while that improves the balance."""
        while any(self._relieve(member) for member in self._heaviest_first()):
            pass  # it terminates: every move lowers the sum of the squared loads

    def assignment(self) -> Assignment:
        return {
            member: sorted(name for partitions in kinds.values() for name in partitions)
            for member, kinds in self.partitions_by_member.items()
        }

    def _heaviest_first(self) -> list[str]:
        return sorted(self.load_by_member, key=self.load_by_member.__getitem__, reverse=True)

    def _relieve(self, member: str) -> bool:
        """Move one partition from a member to the lightest member that can take it."""
        kinds = [kind for kind, mine in self.partitions_by_member[member].items() if mine]
        if not kinds:
            return False
        target = self.lightest(dict.fromkeys(name for kind in kinds for name in kind))
        if self.load_by_member[target] + 1 >= self.load_by_member[member]:
            return False
        kind = next(kind for kind in kinds if target in kind)
        self.give(self._taken_from(self.partitions_by_member[member][kind], target), target)
        self.load_by_member[member] -= 1
        return True

    def _taken_from(self, partitions: list[TopicPartition], target: str) -> TopicPartition:
        if self.nearness is not None:
            for place in reversed(range(len(partitions))):
                if self.nearness.is_near(target, partitions[place]):
                    return partitions.pop(place)
        return partitions.pop()


class StickyAssignor:
    """The eager sticky assignor."""

    name = "sticky"
    is_cooperative = False

    def user_data(self, previous: PreviousAssignment) -> bytes | None:
        """Return the member's former assignment for the leader; None if it never had one."""
        return None if previous.generation_id < 0 else encode_sticky(previous)

    def assign(
        self, racks_by_topic: RacksByTopic, subscriptions: Mapping[str, MemberSubscription]
    ) -> Assignment:
        """Assign every partition of every subscribed topic to one of the topic's subscribers."""
        previous = {name: decode_sticky(row.user_data) for name, row in subscriptions.items()}
        return share_sticky(racks_by_topic, subscriptions, previous)


class CooperativeStickyAssignor:
    """The cooperative sticky assignor."""

    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, previous: PreviousAssignment) -> bytes | None:
        """Return the generation, for leaders that do not read it in the subscription."""
        return encode_generation(previous.generation_id)

    def assign(
        self, racks_by_topic: RacksByTopic, subscriptions: Mapping[str, MemberSubscription]
    ) -> Assignment:
        """Assign all partitions that no other member owns."""
        previous = {
            name: PreviousAssignment(row.owned_partitions, _generation(row))
            for name, row in subscriptions.items()
        }
        assignment = share_sticky(racks_by_topic, subscriptions, previous)
        owners: dict[TopicPartition, set[str]] = {}
        for name, row in subscriptions.items():
            for partition in row.owned_partitions:
                owners.setdefault(partition, set()).add(name)
        return {
            name: [
                partition
                for partition in partitions
                if partition not in owners or _is_owner(name, owners[partition], previous)
            ]
            for name, partitions in assignment.items()
        }


def _generation(row: MemberSubscription) -> int:
    return row.generation_id if row.generation_id >= 0 else decode_generation(row.user_data)


def _is_owner(
    name: str,
    owners: set[str],
    previous: Mapping[str, PreviousAssignment],
) -> bool:
    """Return whether a member may keep a partition despite older claims of other members."""
    return name in owners and all(
        other == name or previous[other].generation_id < previous[name].generation_id
        for other in owners
    )
