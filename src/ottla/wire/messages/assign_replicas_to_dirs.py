"""AssignReplicasToDirs (API 73): report the log directories of replicas to the controller.

Sent by brokers with several log directories (KIP-858), so that the controller can move
leadership away when a directory fails.
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, int64, uuid


class AssignReplicasToDirsRequestPartition(Struct):
    """A replica in the directory."""

    partition_index: int = int32()


class AssignReplicasToDirsRequestTopic(Struct):
    """The replicas of one topic in the directory."""

    topic_id: bytes = uuid()
    partitions: list[AssignReplicasToDirsRequestPartition] = array(
        AssignReplicasToDirsRequestPartition
    )


class AssignReplicasToDirsRequestDirectory(Struct):
    """A log directory and the replicas in it."""

    id: bytes = uuid()
    topics: list[AssignReplicasToDirsRequestTopic] = array(AssignReplicasToDirsRequestTopic)


class AssignReplicasToDirsRequest(Message, versions=(0, 0), flexible_since=0):
    """This is where the broker keeps these replicas."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[AssignReplicasToDirsRequestDirectory] = array(
        AssignReplicasToDirsRequestDirectory
    )


class AssignReplicasToDirsResponsePartition(Struct):
    """Whether the place of one replica was noted."""

    partition_index: int = int32()
    error_code: int = int16()


class AssignReplicasToDirsResponseTopic(Struct):
    """Whether the places of one topic's replicas were noted."""

    topic_id: bytes = uuid()
    partitions: list[AssignReplicasToDirsResponsePartition] = array(
        AssignReplicasToDirsResponsePartition
    )


class AssignReplicasToDirsResponseDirectory(Struct):
    """How it went for one directory."""

    id: bytes = uuid()
    topics: list[AssignReplicasToDirsResponseTopic] = array(AssignReplicasToDirsResponseTopic)


class AssignReplicasToDirsResponse(Message, versions=(0, 0), flexible_since=0):
    """How it went for all the directories."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[AssignReplicasToDirsResponseDirectory] = array(
        AssignReplicasToDirsResponseDirectory
    )
