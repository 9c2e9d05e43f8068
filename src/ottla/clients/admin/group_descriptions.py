"""Descriptions of groups: state, members and their partitions."""

from dataclasses import dataclass
from typing import Final

from ottla.model.identifiers import TopicPartition
from ottla.wire.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.messages import consumer_group_describe, describe_groups
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import read

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member and its partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group's state and members."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]
    group_type: str = CLASSIC


def described_classic(row: describe_groups.DescribedGroup) -> GroupDescription:
    """Describe a group of the classic protocol, in which members compute the assignment."""
    is_of_consumers = row.protocol_type == CONSUMER
    members = (
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            assigned_partitions(member.member_assignment) if is_of_consumers else (),
        )
        for member in row.members
    )
    return GroupDescription(
        row.group_id, row.group_state, row.protocol_type, row.protocol_data, tuple(members)
    )


def described_consumer(row: consumer_group_describe.DescribedGroup) -> GroupDescription:
    """Describe a group of Kafka 4's protocol, in which brokers compute the assignment."""
    members = (
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            tuple(
                TopicPartition(topic.topic_name, partition)
                for topic in member.assignment.topic_partitions
                for partition in topic.partitions
            ),
        )
        for member in row.members
    )
    return GroupDescription(
        row.group_id, row.group_state, CONSUMER, row.assignor_name, tuple(members), CONSUMER
    )


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Decode the assignment of a consumer; empty if it is not a consumer's assignment."""
    version = int.from_bytes(assignment[:2], "big", signed=True)
    first, last = ConsumerProtocolAssignment.versions
    if len(assignment) < 2 or version < first:
        return ()
    try:
        read_assignment, _ = read(
            ConsumerProtocolAssignment, min(version, last), memoryview(assignment), 2
        )
    except ProtocolError:
        return ()
    return tuple(
        TopicPartition(row.topic, partition)
        for row in read_assignment.assigned_partitions
        for partition in row.partitions
    )
