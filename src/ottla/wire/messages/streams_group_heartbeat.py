"""StreamsGroupHeartbeat (API 88): join, stay in and leave a Kafka Streams group.

KIP-1071. Member epoch 0 joins and must bring the topology; -1 leaves, -2 leaves for a static
member that will return. Null means unchanged since the last heartbeat.
"""

from ottla.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)


class KeyValue(Struct):
    """A named value: a topic setting or a client tag."""

    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    """An internal topic that the application needs."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class CopartitionGroup(Struct):
    """Source topics that must have the same number of partitions."""

    source_topics: list[int] = array("int16")
    source_topic_regex: list[int] = array("int16")
    repartition_source_topics: list[int] = array("int16")


class Subtopology(Struct):
    """A connected part of the topology, and the topics around it."""

    subtopology_id: str = string()
    source_topics: list[str] = array("string")
    source_topic_regex: list[str] = array("string")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array("string")
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class Topology(Struct):
    """The application's processing graph, as far as the broker must know it."""

    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


class TaskIds(Struct):
    """Tasks of one subtopology, one for each partition."""

    subtopology_id: str = string()
    partitions: list[int] = array("int32")


class Endpoint(Struct):
    """The address where an instance serves interactive queries."""

    host: str = string()
    port: int = uint16()


class TaskOffset(Struct):
    """How far a task's changelog goes, or has been restored."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class StreamsGroupHeartbeatRequest(Message, versions=(0, 0), flexible_since=0):
    """This Streams client is alive, and this is new about it."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable_since=0)
    rack_id: str | None = string(default=None, nullable_since=0)
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = struct(Topology, nullable_since=0)
    active_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable_since=0)
    standby_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable_since=0)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable_since=0)
    process_id: str | None = string(default=None, nullable_since=0)
    user_endpoint: Endpoint | None = struct(Endpoint, nullable_since=0)
    client_tags: list[KeyValue] | None = array(KeyValue, default=None, nullable_since=0)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, default=None, nullable_since=0)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, default=None, nullable_since=0)
    shutdown_application: bool = boolean()


class Status(Struct):
    """Something that the group's members should know about its condition."""

    status_code: int = int8()
    status_detail: str = string()


class TopicPartition(Struct):
    """Partitions of one topic, as found at an instance."""

    topic: str = string()
    partitions: list[int] = array("int32")


class EndpointToPartitions(Struct):
    """The partitions that can be queried at one instance."""

    user_endpoint: Endpoint = struct(Endpoint)
    active_partitions: list[TopicPartition] = array(TopicPartition)
    standby_partitions: list[TopicPartition] = array(TopicPartition)


class StreamsGroupHeartbeatResponse(Message, versions=(0, 0), flexible_since=0):
    """The client's epoch, and its tasks if they changed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag: int = int32()
    task_offset_interval_ms: int = int32()
    status: list[Status] | None = array(Status, nullable_since=0)
    active_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable_since=0)
    standby_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable_since=0)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable_since=0)
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, default=None, nullable_since=0
    )
