"""Streams groups (KIP-1071), in `__consumer_offsets`."""

from ottla.wire.schema import (
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)


class StreamsGroupMetadataKey(Message, versions=(0, 0)):
    """Names a streams group."""

    group_id: str = string()


class LastAssignmentConfig(Struct):
    """A setting that the last assignment was computed with."""

    key: str = string()
    value: str = string()


class StreamsGroupMetadataValue(Message, versions=(0, 0), flexible_since=0):
    """The epoch of a streams group and the metadata hash that it has validated."""

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(
        LastAssignmentConfig, nullable_since=0, tag=1
    )


class StreamsGroupMemberMetadataKey(Message, versions=(0, 0)):
    """Names a member of a streams group."""

    group_id: str = string()
    member_id: str = string()


class Endpoint(Struct):
    """The address where a member serves interactive queries."""

    host: str = string()
    port: int = uint16()


class KeyValue(Struct):
    """A tag that a client carries."""

    key: str = string()
    value: str = string()


class StreamsGroupMemberMetadataValue(Message, versions=(0, 0), flexible_since=0):
    """The metadata of a streams group's member."""

    instance_id: str | None = string(nullable_since=0)
    rack_id: str | None = string(nullable_since=0)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable_since=0)
    client_tags: list[KeyValue] = array(KeyValue)


class StreamsGroupTargetAssignmentMetadataKey(Message, versions=(0, 0)):
    """Names the target assignment of a streams group."""

    group_id: str = string()


class StreamsGroupTargetAssignmentMetadataValue(Message, versions=(0, 0), flexible_since=0):
    """The epoch for which a streams group's target assignment was computed."""

    assignment_epoch: int = int32()


class StreamsGroupTargetAssignmentMemberKey(Message, versions=(0, 0)):
    """Names the part of a streams group's target assignment that is one member's."""

    group_id: str = string()
    member_id: str = string()


class TaskIds(Struct):
    """Tasks of one subtopology, by their partitions."""

    subtopology_id: str = string()
    partitions: list[int] = array("int32")


class StreamsGroupTargetAssignmentMemberValue(Message, versions=(0, 0), flexible_since=0):
    """The target tasks of a streams group's member."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class StreamsGroupCurrentMemberAssignmentKey(Message, versions=(0, 0)):
    """Names the tasks that a member of a streams group runs now."""

    group_id: str = string()
    member_id: str = string()


class AssignedTaskIds(Struct):
    """Tasks of one subtopology, with the epoch in which each was assigned."""

    subtopology_id: str = string()
    partitions: list[int] = array("int32")
    assignment_epochs: list[int] | None = array("int32", nullable_since=0, tag=0)


class StreamsGroupCurrentMemberAssignmentValue(Message, versions=(0, 0), flexible_since=0):
    """The tasks that a member runs now, and those it has yet to give back."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[AssignedTaskIds] = array(AssignedTaskIds)
    standby_tasks: list[AssignedTaskIds] = array(AssignedTaskIds)
    warmup_tasks: list[AssignedTaskIds] = array(AssignedTaskIds)
    active_tasks_pending_revocation: list[AssignedTaskIds] = array(AssignedTaskIds)
    standby_tasks_pending_revocation: list[AssignedTaskIds] = array(AssignedTaskIds)
    warmup_tasks_pending_revocation: list[AssignedTaskIds] = array(AssignedTaskIds)


class StreamsGroupTopologyKey(Message, versions=(0, 0)):
    """Names the topology of a streams group."""

    group_id: str = string()


class TopicConfig(Struct):
    """A setting of an internal topic."""

    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    """A topic, with its name at the time."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[TopicConfig] = array(TopicConfig)


class CopartitionGroup(Struct):
    """Topics that must have the same number of partitions."""

    source_topics: list[int] = array("int16")
    source_topic_regex: list[int] = array("int16")
    repartition_source_topics: list[int] = array("int16")


class Subtopology(Struct):
    """A part of a topology that runs as one kind of task."""

    subtopology_id: str = string()
    source_topics: list[str] = array("string")
    source_topic_regex: list[str] = array("string")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array("string")
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class StreamsGroupTopologyValue(Message, versions=(0, 0), flexible_since=0):
    """The topology of a streams group."""

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)
