"""ShareGroupHeartbeat (API 76): join, stay in and leave a share group.

KIP-932; version 0 was for early access only. Member epoch 0 joins, -1 leaves; null means
unchanged since the last heartbeat.
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, string, struct, uuid


class ShareGroupHeartbeatRequest(Message, versions=(1, 1), flexible_since=0):
    """This member of the share group is alive, and this is new about it."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(default=None, nullable_since=0)
    subscribed_topic_names: list[str] | None = array("string", default=None, nullable_since=0)


class TopicPartitions(Struct):
    """Partitions of one topic, given to a share group's member."""

    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


class Assignment(Struct):
    """The partitions that the member shall share in."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupHeartbeatResponse(Message, versions=(1, 1), flexible_since=0):
    """The member's epoch, and its partitions if they changed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    member_id: str | None = string(default=None, nullable_since=0)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable_since=0)
