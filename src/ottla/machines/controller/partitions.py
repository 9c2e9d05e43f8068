"""CreatePartitions: topics grow, each by itself."""

from collections import Counter
from collections.abc import Sequence

from ottla.machines.controller.assignment import (
    check_assignment,
    invalid_assignment,
    partition_records,
)
from ottla.machines.controller.limits import check_partition_room
from ottla.machines.controller.placement import place
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.create_partitions import (
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def create_partitions(
    image: ClusterImage,
    topics: Sequence[CreatePartitionsTopic],
    start: int,
    *,
    validate_only: bool = False,
) -> Decision[MetadataRecord, list[CreatePartitionsTopicResult]]:
    """Decide on more partitions; where placing begins was drawn at random.

    There is one result per name, in the order of the request.
    """
    records: list[MetadataRecord] = []
    count_by_name = Counter(topic.name for topic in topics)
    result_by_name: dict[str, CreatePartitionsTopicResult] = {}
    for wanted in topics:
        result = CreatePartitionsTopicResult(name=wanted.name)
        try:
            topic = _wanted_topic(image, wanted.name, count_by_name[wanted.name])
            placed = _placed(image, topic, wanted, start, len(records))
            records += partition_records(image, topic.topic_id, len(topic.partitions), placed)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.detail
        result_by_name[wanted.name] = result
    return Decision(() if validate_only else tuple(records), list(result_by_name.values()))


def _wanted_topic(image: ClusterImage, name: str, times_named: int) -> TopicImage:
    if times_named > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
    topic = image.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic has this name")
    return topic


def _placed(
    image: ClusterImage,
    topic: TopicImage,
    wanted: CreatePartitionsTopic,
    start: int,
    taken_count: int,
) -> Sequence[Sequence[int]]:
    """Return the brokers of each new partition."""
    present = len(topic.partitions)
    added = wanted.count - present
    if added <= 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} has {present} partitions; {wanted.count} are not more",
        )
    check_partition_room(image, taken_count + added)
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        return place(image.brokers.values(), added, factor, start)
    if len(wanted.assignments) != added:
        raise invalid_assignment(
            f"{added} partitions are to be added, and {len(wanted.assignments)} assigned"
        )
    placed = [one.broker_ids for one in wanted.assignments]
    for number, replicas in enumerate(placed, present):
        check_assignment(image, number, replicas, factor)
    return placed
