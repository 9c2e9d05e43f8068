"""Consumer groups (KIP-848), in `__consumer_offsets`."""

from ottla.wire.schema import (
    Message,
    Struct,
    array,
    int8,
    int32,
    int64,
    octets,
    string,
    struct,
    uuid,
)


class ConsumerGroupMetadataKey(Message, versions=(0, 0)):
    """Names a consumer group."""

    group_id: str = string()


class ConsumerGroupMetadataValue(Message, versions=(0, 0), flexible_since=0):
    """The epoch of a consumer group."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(Message, versions=(0, 0)):
    """Names the partitions that a consumer group has seen."""

    group_id: str = string()


class PartitionMetadata(Struct):
    """The racks of one partition."""

    partition: int = int32()
    racks: list[str] = array("string")


class TopicMetadata(Struct):
    """A topic as its subscribers have seen it."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(Message, versions=(0, 0), flexible_since=0):
    """The topics that a consumer group subscribes to, as it has seen them."""

    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Message, versions=(0, 0)):
    """Names a member of a consumer group."""

    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    """An assignment protocol that a classic member offers."""

    name: str = string()
    metadata: bytes = octets()


class ClassicMemberMetadata(Struct):
    """The stored state of a member that uses the classic protocol."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Message, versions=(0, 0), flexible_since=0):
    """The metadata of a consumer group's member."""

    instance_id: str | None = string(nullable_since=0)
    rack_id: str | None = string(nullable_since=0)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")
    subscribed_topic_regex: str | None = string(nullable_since=0)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable_since=0)
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable_since=0, tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions=(0, 0)):
    """Names the target assignment of a consumer group."""

    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions=(0, 0), flexible_since=0):
    """The epoch for which the target assignment was computed."""

    assignment_epoch: int = int32()


class ConsumerGroupTargetAssignmentMemberKey(Message, versions=(0, 0)):
    """Names the part of a target assignment that is one member's."""

    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    """Partitions of one topic, by their numbers."""

    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


class ConsumerGroupTargetAssignmentMemberValue(Message, versions=(0, 0), flexible_since=0):
    """The target assignment of a member."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions=(0, 0)):
    """The key of a consumer group member's current assignment."""

    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    """Partitions of one topic, by their numbers."""

    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions=(0, 0), flexible_since=0):
    """The partitions that a member owns and the partitions that it has yet to revoke."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(Message, versions=(0, 0)):
    """Names a regular expression that a consumer group subscribes to."""

    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Message, versions=(0, 0), flexible_since=0):
    """The topics that a regular expression has been resolved to."""

    topics: list[str] = array("string")
    version: int = int64()
    timestamp: int = int64()
