"""Partitions that move to other brokers (KIP-455).

While a partition moves it has its old and its new replicas; once all of these are in sync, the old
ones are removed (`partition_change`). A reassignment can be cancelled until then.
"""

from collections.abc import Iterable, Sequence

from ottla.machines.controller.assignment import invalid_assignment
from ottla.machines.controller.leadership import Leadership, Place
from ottla.machines.controller.partition_change import PartitionChange
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def reassign_partitions(
    image: ClusterImage, settings: ControllerSettings, request: AlterPartitionReassignmentsRequest
) -> Decision[MetadataRecord, AlterPartitionReassignmentsResponse]:
    """Decide on moves, and on ending moves; each partition succeeds or fails by itself."""
    leadership = Leadership(image, settings)
    records: list[MetadataRecord] = []
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answer = ReassignablePartitionResponse(partition_index=wanted.partition_index)
            try:
                change = leadership.change(_place(image, topic.name, wanted.partition_index))
                _decide(image, change, wanted, may_resize=request.allow_replication_factor_change)
                record = change.record()
                records += [record] if record is not None else []
            except ApiError as error:
                answer.error_code, answer.error_message = error.code, error.detail
            answers.append(answer)
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, responses=topics
    )
    return Decision(tuple(records), response)


def ongoing_reassignments(
    image: ClusterImage, wanted: Sequence[ListPartitionReassignmentsTopics] | None
) -> list[OngoingTopicReassignment]:
    """Return the moves under way: of these partitions, or of all."""
    found = []
    for topic, numbers in _named(image, wanted):
        moving = [
            OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            for number in numbers
            if (partition := image.topics[topic].partition(number)) is not None
            and (partition.adding_replicas or partition.removing_replicas)
        ]
        if moving:
            found.append(OngoingTopicReassignment(name=topic, partitions=moving))
    return found


def _named(
    image: ClusterImage, wanted: Sequence[ListPartitionReassignmentsTopics] | None
) -> Iterable[tuple[str, Iterable[int]]]:
    if wanted is None:
        return [(topic.name, range(len(topic.partitions))) for topic in image.topics.values()]
    return [(one.name, one.partition_indexes) for one in wanted if one.name in image.topics]


def _place(image: ClusterImage, name: str, number: int) -> Place:
    topic = image.topics.get(name)
    partition = None if topic is None else topic.partition(number)
    if topic is None or partition is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name} has a partition {number}"
        )
    return Place(topic, number, partition)


def _decide(
    image: ClusterImage, change: PartitionChange, wanted: ReassignablePartition, *, may_resize: bool
) -> None:
    if wanted.replicas is None:
        _take_back(change)
        return
    target = tuple(map(BrokerId, wanted.replicas))
    _check_target(image, target)
    staying = set(change.replicas) - set(change.adding)
    if not may_resize and len(target) != len(staying):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{len(target)} replicas, and there are {len(staying)}",
        )
    present = change.replicas
    change.adding = tuple(one for one in target if one not in present)
    change.removing = tuple(one for one in present if one not in target)
    change.replicas = (*target, *change.removing)


def _take_back(change: PartitionChange) -> None:
    """Restore the replicas from before the reassignment."""
    if not change.adding and not change.removing:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition does not move")
    in_sync = tuple(one for one in change.isr if one not in change.adding)
    if not in_sync:
        raise invalid_assignment(
            "none of the brokers before the move is in sync: taking it back would lose data"
        )
    change.replicas = tuple(one for one in change.replicas if one not in change.adding)
    change.isr, change.adding, change.removing = in_sync, (), ()


def _check_target(image: ClusterImage, replicas: Sequence[BrokerId]) -> None:
    if not replicas:
        raise invalid_assignment("a partition needs a replica")
    if len(set(replicas)) != len(replicas):
        raise invalid_assignment(f"two replicas on one broker: {list(replicas)}")
    unknown = [one for one in replicas if one not in image.brokers]
    if unknown:
        raise invalid_assignment(f"no broker {unknown[0]} is registered")
