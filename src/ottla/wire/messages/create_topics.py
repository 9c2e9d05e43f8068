"""CreateTopics (API 19): create topics.

Since version 4, -1 for the partition count or the replication factor takes the broker's default
(KIP-464). The settings come back since version 5 (KIP-525), the topic's id since 7. Given
assignments, both numbers must be -1.
"""

from ottla.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string, uuid


class CreatableReplicaAssignment(Struct):
    """The brokers that shall hold one new partition."""

    partition_index: int = int32()
    broker_ids: list[int] = array("int32")


class CreatableTopicConfig(Struct):
    """A setting that the new topic shall have."""

    name: str = string()
    value: str | None = string(nullable_since=0)


class CreatableTopic(Struct):
    """A topic to create."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Message, versions=(0, 7), flexible_since=5):
    """Create these topics, or only check that it could be done."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(since=1)


class CreatableTopicConfigs(Struct):
    """A setting that the created topic has, and where it comes from."""

    name: str = string(since=5)
    value: str | None = string(since=5, nullable_since=5)
    read_only: bool = boolean(since=5)
    config_source: int = int8(default=-1, since=5, ignorable=True)
    is_sensitive: bool = boolean(since=5)


class CreatableTopicResult(Struct):
    """The topic that was created, or why it was not."""

    name: str = string()
    topic_id: bytes = uuid(since=7, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(since=1, nullable_since=0, ignorable=True)
    topic_config_error_code: int = int16(since=5, ignorable=True, tag=0)
    num_partitions: int = int32(default=-1, since=5, ignorable=True)
    replication_factor: int = int16(default=-1, since=5, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, since=5, nullable_since=5, ignorable=True
    )


class CreateTopicsResponse(Message, versions=(0, 7), flexible_since=5):
    """One result per topic."""

    throttle_time_ms: int = int32(since=2, ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
