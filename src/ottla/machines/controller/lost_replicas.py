"""AssignReplicasToDirs: brokers report the log dirs of their replicas, and lost replicas.

An Ottla broker reports replicas that are lost, damaged or on a full disk, and need not report the
log dirs of the others. A Kafka broker with several log dirs reports where each replica is.

A lost replica may miss records when it returns, and is not eligible to lead. If no other replica
has all its records, nothing changes, for its disk may be repaired; unless the topic prefers
availability (`unclean.leader.election.enable`), and another replica is live.

A replica on a full disk is intact. It leaves the ISR, and its leadership, only if another member
of the ISR can lead and the ISR stays large enough (`min.insync.replicas`): a smaller ISR could not
commit anything either, and would stop readers, too. A replica outside the ISR is never elected for
it, even if it is eligible: it may have left because its own disk is full.

A damaged replica lacks a range of offsets, and has all other records. It leaves the ISR if another
member of the ISR can lead, and never by an unclean election. It may still be eligible to lead: if
too few replicas are in sync to commit without it, it is better than no leader.
"""

from functools import partial
from typing import Final

from ottla.machines.controller.brokers import check_broker_epoch
from ottla.machines.controller.leadership import Leadership, Place
from ottla.machines.controller.partition_change import Election
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import (
    DAMAGED_DIRECTORY,
    FULL_DIRECTORY,
    LOST_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    MetadataRecord,
    PartitionChangeRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId
from ottla.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectory,
    AssignReplicasToDirsResponsePartition,
    AssignReplicasToDirsResponseTopic,
)


def lose_replicas(
    image: ClusterImage, settings: ControllerSettings, request: AssignReplicasToDirsRequest
) -> Decision[MetadataRecord, AssignReplicasToDirsResponse]:
    """Remove replicas from the ISR; each succeeds or fails by itself.

    ApiError STALE_BROKER_EPOCH if the sender is an earlier incarnation of its broker.
    """
    broker_id = BrokerId(request.broker_id)
    check_broker_epoch(image, broker_id, request.broker_epoch)
    leadership = Leadership(image, settings, leaving=frozenset([broker_id]))
    known = {*_RULE_BY_DIRECTORY, *image.brokers[broker_id].log_dirs}
    records: list[MetadataRecord] = []

    def lose(directory_id: bytes, topic_id: bytes, number: int) -> ErrorCode:
        if directory_id not in known:
            return ErrorCode.INVALID_REQUEST
        try:
            place = leadership.place(topic_id, number)
            if broker_id not in place.partition.replicas:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            leave = _RULE_BY_DIRECTORY.get(directory_id, partial(_assign, directory_id))
            record = leave(leadership, place, broker_id)
        except ApiError as error:
            return error.code
        records.extend([] if record is None else [record])
        return ErrorCode.NONE

    directories = [
        AssignReplicasToDirsResponseDirectory(
            id=directory.id,
            topics=[
                AssignReplicasToDirsResponseTopic(
                    topic_id=topic.topic_id,
                    partitions=[
                        AssignReplicasToDirsResponsePartition(
                            partition_index=one.partition_index,
                            error_code=lose(directory.id, topic.topic_id, one.partition_index),
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in directory.topics
            ],
        )
        for directory in request.directories
    ]
    return Decision(tuple(records), AssignReplicasToDirsResponse(directories=directories))


def is_counted_on(partition: PartitionImage, broker_id: BrokerId) -> bool:
    """Return whether a broker's replica matters: it leads, or may be elected."""
    is_complete = broker_id in {*partition.isr, *partition.eligible_leader_replicas}
    is_needed = partition.leader == broker_id or not _is_last(partition, broker_id)
    return is_complete and is_needed and len(partition.replicas) > 1


def can_leave(partition: PartitionImage, broker_id: BrokerId, min_isr: int) -> bool:
    """Return whether a broker is in the ISR of a partition, which stays large enough without it."""
    needed = max(min(min_isr, len(partition.replicas)), 1)
    return broker_id in partition.isr and len(partition.isr) > needed


def _assign(
    directory_id: bytes, _leadership: Leadership, place: Place, broker_id: BrokerId
) -> PartitionChangeRecord | None:
    """Take note of the log dir of a replica."""
    partition = place.partition
    known = partition.directories or (UNASSIGNED_DIRECTORY,) * len(partition.replicas)
    directories = [
        directory_id if replica == broker_id else directory
        for replica, directory in zip(partition.replicas, known, strict=True)
    ]
    if tuple(directories) == partition.directories:
        return None
    return PartitionChangeRecord(
        topic_id=place.topic.topic_id, partition_id=place.number, directories=directories
    )


def _lose(
    leadership: Leadership, place: Place, broker_id: BrokerId
) -> PartitionChangeRecord | None:
    if not is_counted_on(place.partition, broker_id):
        return None
    record = leadership.without(place, broker_id, frozenset([broker_id]))
    is_led = record is not None and record.leader not in {None, NO_LEADER}
    return record if is_led or not _is_last(place.partition, broker_id) else None


def _leave_full(
    leadership: Leadership, place: Place, broker_id: BrokerId
) -> PartitionChangeRecord | None:
    change = leadership.change(place, Election.ONLINE)
    if not can_leave(place.partition, broker_id, change.min_isr):
        return None
    change.isr = tuple(one for one in change.isr if one != broker_id)
    return change.record() if any(map(leadership.can_lead, change.isr)) else None


def _leave_damaged(
    leadership: Leadership, place: Place, broker_id: BrokerId
) -> PartitionChangeRecord | None:
    staying = tuple(one for one in place.partition.isr if one != broker_id)
    if broker_id not in place.partition.isr or not any(map(leadership.can_lead, staying)):
        return None
    change = leadership.change(place, Election.ONLINE)
    change.isr = staying
    return change.record()


_RULE_BY_DIRECTORY: Final = {
    LOST_DIRECTORY: _lose,
    FULL_DIRECTORY: _leave_full,
    DAMAGED_DIRECTORY: _leave_damaged,
}


def _is_last(partition: PartitionImage, broker_id: BrokerId) -> bool:
    """Return whether a broker is the only one with all of a partition."""
    return {*partition.isr, *partition.eligible_leader_replicas} <= {broker_id}
