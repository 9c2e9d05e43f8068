"""Share groups (KIP-932), in `__consumer_offsets`."""

from ottla.wire.schema import Message, Struct, array, int8, int32, int64, string, uuid


class ShareGroupMemberMetadataKey(Message, versions=(0, 0)):
    """Names a member of a share group."""

    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(Message, versions=(0, 0), flexible_since=0):
    """The metadata of a share group's member."""

    rack_id: str | None = string(nullable_since=0)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")


class ShareGroupMetadataKey(Message, versions=(0, 0)):
    """Names a share group."""

    group_id: str = string()


class ShareGroupMetadataValue(Message, versions=(0, 0), flexible_since=0):
    """The epoch of a share group."""

    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupTargetAssignmentMetadataKey(Message, versions=(0, 0)):
    """Names the target assignment of a share group."""

    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(Message, versions=(0, 0), flexible_since=0):
    """The epoch for which a share group's target assignment was computed."""

    assignment_epoch: int = int32()


class ShareGroupTargetAssignmentMemberKey(Message, versions=(0, 0)):
    """Names the part of a share group's target assignment that is one member's."""

    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    """Partitions of one topic, by their numbers."""

    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


class ShareGroupTargetAssignmentMemberValue(Message, versions=(0, 0), flexible_since=0):
    """The target assignment of a share group's member."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ShareGroupCurrentMemberAssignmentKey(Message, versions=(0, 0)):
    """The key of a share group member's current assignment."""

    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    """Partitions of one topic, by their numbers."""

    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


class ShareGroupCurrentMemberAssignmentValue(Message, versions=(0, 0), flexible_since=0):
    """The current assignment of a share group's member."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupStatePartitionMetadataKey(Message, versions=(0, 0)):
    """The key of a share group's initialized and deleted share states."""

    group_id: str = string()


class TopicPartitionsInfo(Struct):
    """Partitions of one topic, with its name at the time."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array("int32")


class TopicInfo(Struct):
    """A topic, with its name at the time."""

    topic_id: bytes = uuid()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataValue(Message, versions=(0, 0), flexible_since=0):
    """The topics with share state that is being initialized, is ready, or is being deleted."""

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
