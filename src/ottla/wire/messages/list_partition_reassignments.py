"""ListPartitionReassignments (API 46): list the partition moves under way.

Null topics ask for every move (KIP-455).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, string


class ListPartitionReassignmentsTopics(Struct):
    """The partitions of a topic to list the reassignments of."""

    name: str = string()
    partition_indexes: list[int] = array("int32")


class ListPartitionReassignmentsRequest(Message, versions=(0, 0), flexible_since=0):
    """List the moves of these partitions."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, default=None, nullable_since=0
    )


class OngoingPartitionReassignment(Struct):
    """A partition under reassignment: replicas, adding replicas and removing replicas."""

    partition_index: int = int32()
    replicas: list[int] = array("int32")
    adding_replicas: list[int] = array("int32")
    removing_replicas: list[int] = array("int32")


class OngoingTopicReassignment(Struct):
    """The partitions of one topic on the move."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Message, versions=(0, 0), flexible_since=0):
    """The moves under way."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
