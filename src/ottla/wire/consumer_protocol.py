"""The bytes that consumers of a classic group exchange inside JoinGroup and SyncGroup.

The broker forwards them without parsing, except for the topics of a subscription.
"""

from ottla.wire.schema import Message, Struct, array, int32, octets, string


class OwnedPartitions(Struct):
    """The partitions of one topic that the consumer owns so far."""

    topic: str = string(since=1)
    partitions: list[int] = array("int32", since=1)


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    """The metadata that a consumer sends to the leader of its group."""

    topics: list[str] = array("string")
    user_data: bytes | None = octets(default=None, nullable_since=0)
    owned_partitions: list[OwnedPartitions] = array(OwnedPartitions, since=1, ignorable=True)
    generation_id: int = int32(default=-1, since=2, ignorable=True)
    rack_id: str | None = string(default=None, since=3, nullable_since=3, ignorable=True)


class AssignedPartitions(Struct):
    """The assigned partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array("int32")


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    """The assignment that the leader of the group computes for a consumer."""

    assigned_partitions: list[AssignedPartitions] = array(AssignedPartitions)
    user_data: bytes | None = octets(default=None, nullable_since=0)


class StickyAssignment(Message, versions=(0, 1)):
    """User data that the sticky assignor adds to a subscription. It begins without a version."""

    previous_assignment: list[AssignedPartitions] = array(AssignedPartitions)
    generation_id: int = int32(default=-1, since=1, ignorable=True)
