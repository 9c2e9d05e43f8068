"""ShareGroupDescribe (API 77): describe share groups.

KIP-932; version 0 was for early access only.
"""

from ottla.wire.schema import Message, Struct, array, boolean, int16, int32, string, struct, uuid


class ShareGroupDescribeRequest(Message, versions=(1, 1), flexible_since=0):
    """Describe these share groups."""

    group_ids: list[str] = array("string")
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    """Partitions of one topic that a member shares in."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array("int32")


class Assignment(Struct):
    """All the partitions that a member shares in."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    """One member of a share group, and its partitions."""

    member_id: str = string()
    rack_id: str | None = string(default=None, nullable_since=0)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")
    assignment: Assignment = struct(Assignment)


class DescribedGroup(Struct):
    """The state of one share group, and its members."""

    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


class ShareGroupDescribeResponse(Message, versions=(1, 1), flexible_since=0):
    """The share groups that were asked for."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
