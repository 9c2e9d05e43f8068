"""Kafka's range assignor: in each topic, every member gets consecutive partitions.

Topics with the same subscribers and partition count are assigned alike, so that one member gets the
partitions with the same number. If members and replicas have racks, partitions go first to members
in a replica's rack (KIP-881), as long as shares stay even and such topics stay alike.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from ottla.clients.assignors.assignor import (
    Assignment,
    MemberSubscription,
    PreviousAssignment,
    RacksByTopic,
    is_rack_aware,
    subscribers_by_topic,
)
from ottla.model.identifiers import TopicPartition


class RangeAssignor:
    """Assigns each topic separately; the first members get one more if it is not even."""

    name = "range"
    is_cooperative = False

    def user_data(self, previous: PreviousAssignment) -> bytes | None:  # noqa: ARG002
        """Return None: former assignments have no influence."""
        return None

    def assign(
        self, racks_by_topic: RacksByTopic, subscriptions: Mapping[str, MemberSubscription]
    ) -> Assignment:
        """Assign every partition of every subscribed topic to one of the topic's subscribers."""
        assignment: Assignment = {member: [] for member in subscriptions}
        rack_by_member = {name: row.rack_id for name, row in subscriptions.items() if row.rack_id}
        wanting = subscribers_by_topic(racks_by_topic.keys(), subscriptions)
        shares = [
            _Shares(topic, racks_by_topic[topic], subscribers, rack_by_member)
            for topic, subscribers in sorted(wanting.items())
            if racks_by_topic[topic]
        ]
        if any(share.is_rack_aware for share in shares):
            _share_by_rack(shares)
        for share in shares:
            share.give_ranges(lambda _member, _partition: True)
            for member, partitions in share.partitions_by_member.items():
                names = [TopicPartition(share.topic, number) for number in sorted(partitions)]
                assignment[member] += names
        return assignment


class _Shares:
    """The partial assignment of one topic."""

    def __init__(
        self,
        topic: str,
        partition_racks: Sequence[frozenset[str]],
        members: Sequence[str],
        rack_by_member: Mapping[str, str],
    ) -> None:
        self.topic = topic
        self.members = members
        self.partitions_by_member: dict[str, list[int]] = {member: [] for member in members}
        self._racks = partition_racks
        self._rack_by_member = {name: rack_by_member.get(name) for name in members}
        self._left = dict.fromkeys(range(len(partition_racks)))
        self._share, self._one_more = divmod(len(partition_racks), len(members))
        member_racks = {rack for rack in self._rack_by_member.values() if rack}
        self.is_rack_aware = is_rack_aware(member_racks, partition_racks)

    @property
    def partition_count(self) -> int:
        return len(self._racks)

    def is_near(self, member: str, partition: int) -> bool:
        rack = self._rack_by_member[member]
        return rack is None or rack in self._racks[partition]

    def room(self, member: str) -> int:
        """Return how many more partitions the member may get."""
        return max(0, self._share + (self._one_more > 0) - len(self.partitions_by_member[member]))

    def give(self, member: str, partitions: Sequence[int]) -> None:
        mine = self.partitions_by_member[member]
        mine += partitions
        if len(mine) > self._share:
            self._one_more -= 1
        for partition in partitions:
            del self._left[partition]

    def give_ranges(self, may_have: Callable[[str, int], bool]) -> None:
        for member in self.members:
            fitting = (number for number in self._left if may_have(member, number))
            if chosen := list(islice(fitting, self.room(member))):
                self.give(member, chosen)


def _share_by_rack(shares: Sequence[_Shares]) -> None:
    alike: dict[tuple[tuple[str, ...], int], list[_Shares]] = {}
    for share in shares:
        alike.setdefault((tuple(share.members), share.partition_count), []).append(share)
    for topics in alike.values():
        if len(topics) > 1:
            _share_alike_by_rack(topics)
        elif topics[0].is_rack_aware:
            topics[0].give_ranges(topics[0].is_near)


def _share_alike_by_rack(shares: Sequence[_Shares]) -> None:
    """Assign the partitions of one number, in all these topics, to a member near all of them."""
    for partition in range(shares[0].partition_count):
        members = (
            member
            for member in shares[0].members
            if all(share.room(member) and share.is_near(member, partition) for share in shares)
        )
        if (chosen := next(members, None)) is not None:
            for share in shares:
                share.give(chosen, [partition])
