"""AlterReplicaLogDirs (API 34): move replicas to other log directories of a broker.

Concerns only the broker that receives it (KIP-113). A replica is copied in the background and
swapped in when it has caught up.
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, string


class AlterReplicaLogDirTopic(Struct):
    """The partitions of one topic to move."""

    name: str = string()
    partitions: list[int] = array("int32")


class AlterReplicaLogDir(Struct):
    """A directory, and the replicas to move there."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Message, versions=(0, 2), flexible_since=2):
    """Move these replicas on this broker."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    """Whether the move of one replica was begun."""

    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Struct):
    """Whether the moves of one topic's replicas were begun."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Message, versions=(0, 2), flexible_since=2):
    """The outcome of the moves."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
