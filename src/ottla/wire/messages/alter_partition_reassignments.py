"""AlterPartitionReassignments (API 45): move partitions to other brokers.

Null replicas cancel a move that is under way (KIP-455). Since version 1 the sender can forbid a
change of the replication factor (KIP-860).
"""

from ottla.wire.schema import Message, Struct, array, boolean, int16, int32, string


class ReassignablePartition(Struct):
    """The target replicas of a partition."""

    partition_index: int = int32()
    replicas: list[int] | None = array("int32", default=None, nullable_since=0)


class ReassignableTopic(Struct):
    """The partitions of one topic that shall move between brokers."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Message, versions=(0, 1), flexible_since=0):
    """Begin these moves, or cancel them."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean(default=True, since=1)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    """Whether the move of one partition was accepted."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)


class ReassignableTopicResponse(Struct):
    """Whether the moves in one topic were accepted."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Message, versions=(0, 1), flexible_since=0):
    """The outcome of the reassignment."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(default=True, since=1, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable_since=0)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
