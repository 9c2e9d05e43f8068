"""Three brokers with one topic, for tests of leadership."""

from ottla.machines.controller.machine import Controller
from ottla.metadata.image import PartitionImage
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponsePartition,
    BrokerState,
)
from ottla.wire.messages.create_topics import CreatableReplicaAssignment
from tests.metadata_building import (
    add_topics,
    broker_record,
    controller_of,
    image_of,
    new_topic,
    run,
    uuid_of,
)

TOPIC_ID = uuid_of(1)


def cluster(*replicas: int, partitions: int = 1, brokers: int = 3, **configs: str) -> Controller:
    """Return a controller of these brokers with topic a, every partition on these replicas."""
    controller = controller_of(image_of(*[broker_record(number) for number in range(brokers)]))
    topic = new_topic("a", -1, -1, **configs)
    topic.assignments = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
        for number in range(partitions)
    ]
    add_topics(controller, topic)
    return controller


def partition(controller: Controller, number: int = 0) -> PartitionImage:
    return controller.image.topics["a"].partitions[number]


def alter(
    controller: Controller,
    *isr: int,
    sender: int | None = None,
    leader_epoch: int | None = None,
    partition_epoch: int | None = None,
    epoch_by_broker: dict[int, int] | None = None,
) -> AlterPartitionResponsePartition:
    """Send an ISR change as the leader; by default with the current epochs."""
    known = partition(controller)
    brokers = controller.image.brokers
    sender = known.leader if sender is None else sender
    epochs = {one: brokers[one].broker_epoch for one in isr} | (epoch_by_broker or {})
    wanted = AlterPartitionRequestPartition(
        partition_index=0,
        leader_epoch=known.leader_epoch if leader_epoch is None else leader_epoch,
        partition_epoch=known.partition_epoch if partition_epoch is None else partition_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=b, broker_epoch=e) for b, e in epochs.items()],
        leader_recovery_state=0,
    )
    request = AlterPartitionRequest(
        broker_id=sender,
        broker_epoch=brokers[sender].broker_epoch,
        topics=[AlterPartitionRequestTopic(topic_id=TOPIC_ID, partitions=[wanted])],
    )
    return run(controller, controller.alter_partition(request)).topics[0].partitions[0]


def told(answer: AlterPartitionResponsePartition) -> ErrorCode:
    return ErrorCode(answer.error_code)
