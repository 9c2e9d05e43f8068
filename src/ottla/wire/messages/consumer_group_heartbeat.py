"""ConsumerGroupHeartbeat (API 68): join, stay in and leave a consumer group of the new protocol.

KIP-848; it replaces JoinGroup, SyncGroup and Heartbeat. Member epoch 0 joins, -1 leaves, -2
leaves for a static member that will return; null means unchanged. Version 1 adds regex
subscriptions, and members make their own id (KIP-1082).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, string, struct, uuid


class TopicPartitions(Struct):
    """Partitions of one topic, owned by or given to a consumer."""

    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


class ConsumerGroupHeartbeatRequest(Message, versions=(0, 1), flexible_since=0):
    """This consumer is alive, and this is new about it."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable_since=0)
    rack_id: str | None = string(default=None, nullable_since=0)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array("string", default=None, nullable_since=0)
    subscribed_topic_regex: str | None = string(default=None, since=1, nullable_since=1)
    server_assignor: str | None = string(default=None, nullable_since=0)
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions, default=None, nullable_since=0
    )


class Assignment(Struct):
    """The partitions that the consumer shall read."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Message, versions=(0, 1), flexible_since=0):
    """The consumer's epoch, and its partitions if they changed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    member_id: str | None = string(default=None, nullable_since=0)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable_since=0)
