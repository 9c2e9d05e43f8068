"""CreatePartitions (API 37): give topics more partitions.

The count is the new total, not the increase, and can only grow (KIP-195). Null assignments
leave the placement to the broker.
"""

from ottla.wire.schema import Message, Struct, array, boolean, int16, int32, string


class CreatePartitionsAssignment(Struct):
    """The brokers that shall hold one added partition."""

    broker_ids: list[int] = array("int32")


class CreatePartitionsTopic(Struct):
    """A topic to grow, and how far."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable_since=0
    )


class CreatePartitionsRequest(Message, versions=(0, 3), flexible_since=2):
    """Grow these topics, or only check that it could be done."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    """Whether one topic grew."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)


class CreatePartitionsResponse(Message, versions=(0, 3), flexible_since=2):
    """One result per topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
