"""ElectLeaders: elections on request (KIP-460)."""

from collections.abc import Iterable

from ottla.machines.controller.leadership import Leadership, Place
from ottla.machines.controller.partition_change import Election
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import NO_LEADER, MetadataRecord, PartitionChangeRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    PartitionResult,
    ReplicaElectionResult,
)

_KINDS = {0: Election.PREFERRED, 1: Election.UNCLEAN}


def elect_leaders(
    image: ClusterImage, settings: ControllerSettings, request: ElectLeadersRequest
) -> Decision[MetadataRecord, list[ReplicaElectionResult]]:
    """Hold elections in these partitions, or in every partition that needs one.

    ApiError INVALID_REQUEST for an unknown kind of election.
    """
    kind = _KINDS.get(request.election_type)
    if kind is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"election type {request.election_type}")
    leadership = Leadership(image, settings)
    records: list[MetadataRecord] = []
    results = []
    for name, numbers in _named(image, request):
        answers = []
        for number in numbers:
            answer = PartitionResult(partition_id=number)
            try:
                records.append(_elect(leadership, kind, name, number))
            except ApiError as error:
                answer.error_code, answer.error_message = error.code, error.detail
            is_noise = answer.error_code == ErrorCode.ELECTION_NOT_NEEDED
            if request.topic_partitions is not None or not is_noise:
                answers.append(answer)
        if answers:
            results.append(ReplicaElectionResult(topic=name, partition_result=answers))
    return Decision(tuple(records), results)


def _named(
    image: ClusterImage, request: ElectLeadersRequest
) -> Iterable[tuple[str, Iterable[int]]]:
    if request.topic_partitions is None:
        return [(topic.name, range(len(topic.partitions))) for topic in image.topics.values()]
    return [(one.topic, one.partitions) for one in request.topic_partitions]


def _elect(leadership: Leadership, kind: Election, name: str, number: int) -> PartitionChangeRecord:
    topic = leadership.image.topics.get(name)
    partition = None if topic is None else topic.partition(number)
    if topic is None or partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no {name}-{number}")
    preferred = partition.replicas[0]
    is_led = partition.leader != NO_LEADER
    if partition.leader == preferred if kind is Election.PREFERRED else is_led:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"{partition.leader} leads {name}-{number}")
    record = leadership.change(Place(topic, number, partition), kind).record()
    if kind is Election.PREFERRED and (record is None or record.leader != preferred):
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {preferred} is not in sync"
        )
    if record is None:
        raise ApiError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {name}-{number} is there"
        )
    return record
