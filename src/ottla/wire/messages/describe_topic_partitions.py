"""DescribeTopicPartitions (API 75): describe topics' partitions, a page at a time.

KIP-966. It also shows the eligible leader replicas, which Metadata does not. A null next cursor
means that nothing is left.
"""

from ottla.wire.schema import Message, Struct, array, boolean, int16, int32, string, struct, uuid


class TopicRequest(Struct):
    """A topic to describe the partitions of."""

    name: str = string()


class Cursor(Struct):
    """The place where the next page begins."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(Message, versions=(0, 0), flexible_since=0):
    """Describe these topics, from the cursor on."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable_since=0)


class DescribeTopicPartitionsResponsePartition(Struct):
    """Leader, replicas, ISR and eligible leader replicas of a partition."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = array("int32")
    isr_nodes: list[int] = array("int32")
    eligible_leader_replicas: list[int] | None = array("int32", default=None, nullable_since=0)
    last_known_elr: list[int] | None = array("int32", default=None, nullable_since=0)
    offline_replicas: list[int] = array("int32", ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    """A topic and its partitions on this page."""

    error_code: int = int16()
    name: str | None = string(nullable_since=0)
    topic_id: bytes = uuid(ignorable=True)
    is_internal: bool = boolean(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-2147483648)


class DescribeTopicPartitionsResponse(Message, versions=(0, 0), flexible_since=0):
    """A page of partitions."""

    throttle_time_ms: int = int32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable_since=0)
