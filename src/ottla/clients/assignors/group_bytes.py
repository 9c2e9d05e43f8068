"""Encoding of the subscriptions and assignments of group members.

Malformed bytes count as absent, because a leader must serve every member.
"""

from collections.abc import Iterable
from typing import Final

from ottla.clients.assignors.assignor import MemberSubscription, PreviousAssignment
from ottla.model.identifiers import TopicPartition, numbers_by_topic
from ottla.wire.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedPartitions,
    StickyAssignment,
)
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import read
from ottla.wire.writing import encode

_VERSION_BYTES: Final = 2
_NO_GENERATION: Final = -1


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """Encode a subscription in the latest version; JoinGroup carries the instance id."""
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            OwnedPartitions(topic=topic, partitions=numbers)
            for topic, numbers in numbers_by_topic(subscription.owned_partitions).items()
        ],
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    version = message.versions[1]
    return version.to_bytes(_VERSION_BYTES, "big") + encode(message, version)


def decode_subscription(metadata: bytes, instance_id: str | None) -> MemberSubscription:
    """Decode a subscription of any version; ProtocolError for other bytes."""
    version = int.from_bytes(metadata[:_VERSION_BYTES], "big", signed=True)
    first, last = ConsumerProtocolSubscription.versions
    if len(metadata) < _VERSION_BYTES or version < first:
        raise ProtocolError("a member's subscription has no version")
    message, _ = read(
        ConsumerProtocolSubscription, min(version, last), memoryview(metadata), _VERSION_BYTES
    )
    return MemberSubscription(
        topics=tuple(message.topics),
        user_data=message.user_data,
        owned_partitions=tuple(
            TopicPartition(row.topic, number)
            for row in message.owned_partitions
            for number in row.partitions
        ),
        generation_id=message.generation_id,
        rack_id=message.rack_id or None,
        instance_id=instance_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode the assignment of a member."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedPartitions(topic=topic, partitions=numbers)
            for topic, numbers in numbers_by_topic(partitions).items()
        ]
    )
    version = message.versions[1]
    return version.to_bytes(_VERSION_BYTES, "big") + encode(message, version)


def encode_sticky(previous: PreviousAssignment) -> bytes:
    """Encode the user data of the sticky assignor."""
    message = StickyAssignment(
        previous_assignment=[
            AssignedPartitions(topic=topic, partitions=numbers)
            for topic, numbers in numbers_by_topic(previous.partitions).items()
        ],
        generation_id=previous.generation_id,
    )
    return encode(message, message.versions[1])


def decode_sticky(user_data: bytes | None) -> PreviousAssignment:
    """Decode the user data, which has no generation in old clients.

    kafka-python writes a version before it, which other clients would read as a huge count.
    """
    given = user_data or b""
    attempts = [(1, given), (0, given)]
    if given[:_VERSION_BYTES] == b"\0\1":
        attempts.append((1, given[_VERSION_BYTES:]))
    for version, octets in attempts:
        try:
            message, _ = read(StickyAssignment, version, memoryview(octets), 0)
        except ProtocolError:
            continue
        partitions = tuple(
            TopicPartition(row.topic, number)
            for row in message.previous_assignment
            for number in row.partitions
        )
        return PreviousAssignment(partitions, message.generation_id)
    return PreviousAssignment()


def encode_generation(generation_id: int) -> bytes:
    """Encode the user data of the cooperative assignor."""
    return generation_id.to_bytes(4, "big", signed=True)


def decode_generation(user_data: bytes | None) -> int:
    """Decode the generation; -1 if there is none."""
    if user_data is None or len(user_data) < 4:
        return _NO_GENERATION
    return int.from_bytes(user_data[:4], "big", signed=True)
