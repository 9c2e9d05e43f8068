"""AlterPartition (API 56): change the in-sync replicas of partitions.

Sent by partition leaders to the controller (KIP-497), at first under the name AlterIsr. Since
version 2 topics are named by id (KIP-841); since 3 each in-sync replica comes with its broker
epoch (KIP-903).
"""

from ottla.wire.schema import Message, Struct, array, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    """An in-sync replica, in one incarnation of its broker."""

    broker_id: int = int32(since=3)
    broker_epoch: int = int64(default=-1, since=3)


class AlterPartitionRequestPartition(Struct):
    """The in-sync replicas that the leader proposes for a partition."""

    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array("int32", until=3)
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, since=3)
    leader_recovery_state: int = int8()
    partition_epoch: int = int32()


class AlterPartitionRequestTopic(Struct):
    """The changes to one topic's partitions."""

    topic_id: bytes = uuid(ignorable=True)
    partitions: list[AlterPartitionRequestPartition] = array(AlterPartitionRequestPartition)


class AlterPartitionRequest(Message, versions=(2, 3), flexible_since=0):
    """Change the in-sync replicas of these partitions."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[AlterPartitionRequestTopic] = array(AlterPartitionRequestTopic)


class AlterPartitionResponsePartition(Struct):
    """The state of one partition after the change."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array("int32")
    leader_recovery_state: int = int8(ignorable=True)
    partition_epoch: int = int32()


class AlterPartitionResponseTopic(Struct):
    """The state of one topic's partitions after the change."""

    topic_id: bytes = uuid(ignorable=True)
    partitions: list[AlterPartitionResponsePartition] = array(AlterPartitionResponsePartition)


class AlterPartitionResponse(Message, versions=(2, 3), flexible_since=0):
    """One result per partition."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[AlterPartitionResponseTopic] = array(AlterPartitionResponseTopic)
