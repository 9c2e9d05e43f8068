"""StreamsGroupDescribe (API 89): describe Kafka Streams groups.

KIP-1071.
"""

from ottla.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)


class StreamsGroupDescribeRequest(Message, versions=(0, 0), flexible_since=0):
    """Describe these Streams groups."""

    group_ids: list[str] = array("string")
    include_authorized_operations: bool = boolean()


class KeyValue(Struct):
    """A topic setting or a client tag, by name."""

    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    """An internal topic of the application."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class Subtopology(Struct):
    """One subtopology, and the topics it reads and writes."""

    subtopology_id: str = string()
    source_topics: list[str] = array("string")
    repartition_sink_topics: list[str] = array("string")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


class Topology(Struct):
    """The topology that the group runs."""

    epoch: int = int32()
    subtopologies: list[Subtopology] | None = array(Subtopology, default=None, nullable_since=0)


class Endpoint(Struct):
    """The address where a member serves interactive queries."""

    host: str = string()
    port: int = uint16()


class TaskOffset(Struct):
    """A task's place in its changelog."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class TaskIds(Struct):
    """The tasks of one subtopology, by partition."""

    subtopology_id: str = string()
    partitions: list[int] = array("int32")


class Assignment(Struct):
    """The tasks of one member, by role."""

    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class Member(Struct):
    """One Streams client, the tasks it has, and those it shall have."""

    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable_since=0)
    rack_id: str | None = string(default=None, nullable_since=0)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, nullable_since=0)
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    is_classic: bool = boolean()


class DescribedGroup(Struct):
    """The state of one Streams group, its topology and its members."""

    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: Topology | None = struct(Topology, nullable_since=0)
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


class StreamsGroupDescribeResponse(Message, versions=(0, 0), flexible_since=0):
    """The Streams groups that were asked for."""

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
