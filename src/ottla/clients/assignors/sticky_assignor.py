"""Kafka's sticky assignors: even shares, with as few partitions as possible changing hands.

The eager assignor reads former assignments from its own user data, since everything is revoked
before joining. The cooperative assignor reads the partitions that members still own, and holds
back partitions that must be revoked first: the next rebalance assigns them (KIP-429).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.clients.assignors.assignor import (
    Assignment,
    MemberSubscription,
    PreviousAssignment,
    RacksByTopic,
)
from ottla.clients.assignors.group_bytes import (
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)
from ottla.clients.assignors.sticky_sharing import share_sticky

if TYPE_CHECKING:
    from ottla.model.identifiers import TopicPartition


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
