"""AlterPartition: leaders propose an ISR, and the controller decides.

A proposal counts only if its sender leads, in the epoch that it names, and knows the current
partition epoch: compare and set. A new member must be registered with the same broker epoch with
which the leader saw it catch up.
"""

from collections.abc import Sequence
from typing import Final

from ottla.machines.controller.brokers import check_broker_epoch
from ottla.machines.controller.leadership import Leadership, Place
from ottla.machines.controller.partition_change import RECOVERED, RECOVERING
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import MetadataRecord, PartitionChangeRecord
from ottla.metadata.replay import merged
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
    BrokerState,
)

EPOCH_UNKNOWN: Final = -1


def alter_partition(
    image: ClusterImage, settings: ControllerSettings, request: AlterPartitionRequest
) -> Decision[MetadataRecord, AlterPartitionResponse]:
    """Decide on proposed ISRs; each partition succeeds or fails by itself.

    ApiError STALE_BROKER_EPOCH if the sender is an earlier incarnation of its broker.
    """
    check_broker_epoch(image, BrokerId(request.broker_id), request.broker_epoch)
    leadership = Leadership(image, settings)
    records: list[MetadataRecord] = []
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            try:
                place = leadership.place(topic.topic_id, wanted.partition_index)
                record = _decide(leadership, place, BrokerId(request.broker_id), wanted)
                answers.append(_answer(place, record))
                records += [record] if record is not None else []
            except ApiError as error:
                answers.append(
                    AlterPartitionResponsePartition(
                        partition_index=wanted.partition_index, error_code=error.code
                    )
                )
        topics.append(AlterPartitionResponseTopic(topic_id=topic.topic_id, partitions=answers))
    return Decision(tuple(records), AlterPartitionResponse(topics=topics))


def _decide(
    leadership: Leadership,
    place: Place,
    leader: BrokerId,
    wanted: AlterPartitionRequestPartition,
) -> PartitionChangeRecord | None:
    members = _members(wanted)
    _check_sender(place.partition, leader, wanted)
    _check_members(leadership, place.partition, leader, members, wanted)
    change = leadership.change(place)
    change.isr = tuple(BrokerId(member.broker_id) for member in members)
    change.recovery_state = wanted.leader_recovery_state
    return change.record()


def _members(wanted: AlterPartitionRequestPartition) -> Sequence[BrokerState]:
    """Return the proposed ISR; before version 3 it has no broker epochs."""
    return wanted.new_isr_with_epochs or [
        BrokerState(broker_id=one, broker_epoch=EPOCH_UNKNOWN) for one in wanted.new_isr
    ]


def _check_sender(
    partition: PartitionImage, leader: BrokerId, wanted: AlterPartitionRequestPartition
) -> None:
    """Raise ApiError unless the sender leads, and knows the partition as it is."""
    ahead = (wanted.leader_epoch, wanted.partition_epoch)
    if wanted.leader_epoch > partition.leader_epoch or (
        wanted.partition_epoch > partition.partition_epoch
    ):
        raise ApiError(ErrorCode.NOT_CONTROLLER, f"{ahead} is not known here yet")
    if wanted.leader_epoch < partition.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    if leader != partition.leader:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{leader} does not lead")
    if wanted.partition_epoch < partition.partition_epoch:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION)


def _check_members(
    leadership: Leadership,
    partition: PartitionImage,
    leader: BrokerId,
    members: Sequence[BrokerState],
    wanted: AlterPartitionRequestPartition,
) -> None:
    """Raise ApiError unless these replicas can be in sync together."""
    in_sync = [member.broker_id for member in members]
    if len(set(in_sync)) != len(in_sync) or not set(in_sync) <= set(partition.replicas):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{in_sync} of {partition.replicas}")
    if leader not in in_sync:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the leader {leader} is not in {in_sync}")
    if wanted.leader_recovery_state == RECOVERING and len(in_sync) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a recovering leader is in sync alone")
    if wanted.leader_recovery_state == RECOVERING and partition.leader_recovery_state == RECOVERED:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the leader has recovered already")
    for member in members:
        broker_id = BrokerId(member.broker_id)
        broker = leadership.image.brokers.get(broker_id)
        is_same_life = broker is not None and member.broker_epoch in {
            EPOCH_UNKNOWN,
            broker.broker_epoch,
        }
        if not is_same_life or not leadership.can_lead(broker_id):
            raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"broker {broker_id}")


def _answer(place: Place, record: PartitionChangeRecord | None) -> AlterPartitionResponsePartition:
    after = place.partition if record is None else merged(place.partition, record)
    has_new_leader = after.leader_epoch != place.partition.leader_epoch
    return AlterPartitionResponsePartition(
        partition_index=place.number,
        error_code=ErrorCode.NEW_LEADER_ELECTED if has_new_leader else ErrorCode.NONE,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        leader_recovery_state=after.leader_recovery_state,
        partition_epoch=after.partition_epoch,
    )
