"""Metadata (API 3): learn the brokers, the topics and their leaders.

A null list asks for all topics, an empty one for none; in version 0 empty meant all. Topics can
be asked for by id since version 12. It may create missing topics, and since version 4 the
client can forbid that.
"""

from ottla.wire.schema import Message, Struct, array, boolean, int16, int32, string, uuid


class MetadataRequestTopic(Struct):
    """A topic to describe, by name or by id."""

    topic_id: bytes = uuid(since=10, ignorable=True)
    name: str | None = string(nullable_since=10)


class MetadataRequest(Message, versions=(0, 13), flexible_since=9):
    """Describe the cluster and these topics."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable_since=1)
    allow_auto_topic_creation: bool = boolean(default=True, since=4)
    include_cluster_authorized_operations: bool = boolean(since=8, until=11)
    include_topic_authorized_operations: bool = boolean(since=8)


class MetadataResponseBroker(Struct):
    """Where one broker can be reached."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, since=1, nullable_since=1, ignorable=True)


class MetadataResponsePartition(Struct):
    """Leader, replicas and ISR of a partition."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, since=7, ignorable=True)
    replica_nodes: list[int] = array("int32")
    isr_nodes: list[int] = array("int32")
    offline_replicas: list[int] = array("int32", since=5, ignorable=True)


class MetadataResponseTopic(Struct):
    """The shape of one topic."""

    error_code: int = int16()
    name: str | None = string(nullable_since=12)
    topic_id: bytes = uuid(since=10, ignorable=True)
    is_internal: bool = boolean(since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(default=-2147483648, since=8)


class MetadataResponse(Message, versions=(0, 13), flexible_since=9):
    """The cluster as this broker sees it."""

    throttle_time_ms: int = int32(since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(default=None, since=2, nullable_since=2, ignorable=True)
    controller_id: int = int32(default=-1, since=1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(default=-2147483648, since=8, until=11)
    error_code: int = int16(since=13, ignorable=True)
