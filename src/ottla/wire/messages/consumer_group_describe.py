"""ConsumerGroupDescribe (API 69): describe consumer groups of the new protocol.

The counterpart of DescribeGroups for KIP-848. Version 1 adds the member type: 0 for classic, 1
for the new protocol, -1 if unknown (KIP-1099).
"""

from ottla.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    struct,
    uuid,
)


class ConsumerGroupDescribeRequest(Message, versions=(0, 1), flexible_since=0):
    """Describe these consumer groups."""

    group_ids: list[str] = array("string")
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    """Partitions of one topic, assigned to a consumer."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array("int32")


class Assignment(Struct):
    """The partitions assigned to a consumer."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    """One consumer, the partitions it has, and those it shall have."""

    member_id: str = string()
    instance_id: str | None = string(default=None, nullable_since=0)
    rack_id: str | None = string(default=None, nullable_since=0)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")
    subscribed_topic_regex: str | None = string(default=None, nullable_since=0)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    member_type: int = int8(default=-1, since=1, ignorable=True)


class DescribedGroup(Struct):
    """The state of one consumer group, and its members."""

    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


class ConsumerGroupDescribeResponse(Message, versions=(0, 1), flexible_since=0):
    """The consumer groups that were asked for."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
