"""CreateTopics, CreatePartitions and DeleteTopics: each topic succeeds or fails by itself."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from ottla.machines.controller.assignment import (
    check_assignment,
    invalid_assignment,
    partition_records,
)
from ottla.machines.controller.effective_configs import (
    ConfigSource,
    SourcedValue,
    sourced_defaults,
    topic_defaults,
)
from ottla.machines.controller.limits import check_config_size, check_partition_room
from ottla.machines.controller.placement import place
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage, ResourceType, TopicImage
from ottla.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID, BrokerId
from ottla.model.settings.settings import shown
from ottla.model.settings.topic_config import TopicConfig
from ottla.model.topic_names import CLUSTER_METADATA_TOPIC, check_topic_name, folded
from ottla.wire.messages.create_partitions import (
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
)
from ottla.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicState

USE_DEFAULT: Final = -1


# -- creating -------------------------------------------------------------------------------------


def create_topics(
    image: ClusterImage,
    settings: ControllerSettings,
    topics: Sequence[CreatableTopic],
    topic_ids: Sequence[bytes],
    start: int,
    *,
    validate_only: bool = False,
) -> Decision[MetadataRecord, list[CreatableTopicResult]]:
    """Decide on new topics, with an id for each, and where placing begins, drawn at random.

    There is one result per name, in the order of the request.
    """
    creation = _Creation(image, settings, start)
    count_by_name = Counter(topic.name for topic in topics)
    result_by_name: dict[str, CreatableTopicResult] = {}
    for topic, topic_id in zip(topics, topic_ids, strict=True):
        try:
            if count_by_name[topic.name] > 1:
                raise _refused("the topic is named more than once")
            result = creation.create(topic, topic_id)
        except ApiError as error:
            result = CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.detail
            )
        if validate_only:
            result.topic_id = ZERO_UUID
        result_by_name[topic.name] = result
    records = () if validate_only else tuple(creation.records)
    return Decision(records, list(result_by_name.values()))


class _Creation:
    """The results and records of one request so far."""

    def __init__(self, image: ClusterImage, settings: ControllerSettings, start: int) -> None:
        self.records: list[MetadataRecord] = []
        self._image = image
        self._settings = settings
        self._start = start
        self._defaults = topic_defaults(image, settings)
        self._described_defaults: list[CreatableTopicConfigs] | None = None
        self._name_by_folded: dict[str, str] = {}
        self._partition_count = 0

    def create(self, topic: CreatableTopic, topic_id: bytes) -> CreatableTopicResult:
        """Add the records of one topic; ApiError leaves everything as it was."""
        assert topic_id not in self._image.topics_by_id, "an id that was drawn twice"
        self._check_name(topic.name)
        own = _own_settings(topic)
        if own:
            TopicConfig.parse(own, self._defaults)
        placed = self._placed(topic)
        self._partition_count += len(placed)
        if (key := folded(topic.name)) is not None:
            self._name_by_folded[key] = topic.name
        self.records.append(TopicRecord(name=topic.name, topic_id=topic_id))
        self.records += [_config_record(topic.name, name, own[name]) for name in own]
        self.records += partition_records(self._image, topic_id, 0, placed)
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(placed),
            replication_factor=len(placed[0]),
            configs=self._described(own),
        )

    def _check_name(self, name: str) -> None:
        check_topic_name(name)
        if name == CLUSTER_METADATA_TOPIC:
            raise _refused(f"{name} is kept by the controllers themselves")
        if name in self._image.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
        key = folded(name)
        if key is None:
            return
        clashing = self._image.topic_name_by_folded.get(key) or self._name_by_folded.get(key)
        if clashing is not None:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name} and the topic {clashing} differ only in '.' and '_'",
            )

    # -- partitions -----------------------------------------------------------------------------

    def _placed(self, topic: CreatableTopic) -> Sequence[Sequence[BrokerId]]:
        """Return the brokers of each partition."""
        if topic.assignments:
            if (topic.num_partitions, topic.replication_factor) != (USE_DEFAULT, USE_DEFAULT):
                raise _refused(
                    "with an assignment, the partitions and the replication factor must be -1"
                )
            self._check_room(len(topic.assignments))
            return self._assigned(topic.assignments)
        count, factor = topic.num_partitions, topic.replication_factor
        if count == USE_DEFAULT:
            count = self._settings.num_partitions
        elif count < 1:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, f"{count} partitions; at least 1 is needed"
            )
        if factor == USE_DEFAULT:
            factor = self._settings.default_replication_factor
        self._check_room(count)
        return place(self._image.brokers.values(), count, factor, self._start)

    def _check_room(self, count: int) -> None:
        check_partition_room(self._image, self._partition_count + count)

    def _assigned(self, assignments: list[CreatableReplicaAssignment]) -> list[list[BrokerId]]:
        brokers_by_number = {
            one.partition_index: list(map(BrokerId, one.broker_ids)) for one in assignments
        }
        if brokers_by_number.keys() != set(range(len(assignments))):
            raise invalid_assignment("the partitions must be 0, 1, 2 and so on, each of them once")
        factor = len(brokers_by_number[0])
        placed = [brokers_by_number[number] for number in range(len(assignments))]
        for number, replicas in enumerate(placed):
            check_assignment(self._image, number, replicas, factor)
        return placed

    # -- settings -------------------------------------------------------------------------------

    def _described(self, own: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """Return all settings; topics that have none of their own share the list."""
        if self._described_defaults is None:
            sourced = sorted(sourced_defaults(self._image, self._settings).items())
            self._described_defaults = [_described(name, one) for name, one in sourced]
        if not own:
            return self._described_defaults
        return [
            _described(one.name, SourcedValue(own[one.name], ConfigSource.TOPIC))
            if one.name in own
            else one
            for one in self._described_defaults
        ]


def _own_settings(topic: CreatableTopic) -> dict[str, str]:
    own: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{shown(config.name)} needs a value")
        check_config_size(config.name, config.value)
        own[config.name] = config.value
    return own


def _config_record(topic: str, name: str, text: str) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ResourceType.TOPIC, resource_name=topic, name=name, value=text
    )


def _described(name: str, sourced: SourcedValue) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(name=name, value=sourced.value, config_source=sourced.source)


# -- deleting -------------------------------------------------------------------------------------


def delete_topics(
    image: ClusterImage, wanted: Sequence[DeleteTopicState]
) -> Decision[MetadataRecord, list[DeletableTopicResult]]:
    """Decide on topics to delete, each by its name or by its id.

    A duplicate name or id is an error, reported once; so is a topic that is named by both.
    """
    count_by_wanted = Counter((one.name, one.topic_id) for one in wanted)
    result_by_wanted: dict[tuple[str | None, bytes], DeletableTopicResult] = {}
    doomed: dict[bytes, None] = {}
    for one in wanted:
        key = (one.name, one.topic_id)
        try:
            if count_by_wanted[key] > 1:
                raise _refused("the topic is named more than once")
            topic = _wanted_topic(image, one)
            if topic.topic_id in doomed:
                raise _refused("the topic is named by its name and by its id")
        except ApiError as error:
            result = DeletableTopicResult(
                name=one.name,
                topic_id=one.topic_id,
                error_code=error.code,
                error_message=error.detail,
            )
        else:
            doomed[topic.topic_id] = None
            result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
        result_by_wanted[key] = result
    records = tuple(RemoveTopicRecord(topic_id=topic_id) for topic_id in doomed)
    return Decision(records, list(result_by_wanted.values()))


def _wanted_topic(image: ClusterImage, wanted: DeleteTopicState) -> TopicImage:
    has_id = wanted.topic_id != ZERO_UUID
    if wanted.name is None:
        if not has_id:
            raise _refused("neither a name nor an id is given")
        topic = image.topics_by_id.get(wanted.topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        return topic
    if has_id:
        raise _refused("a name and an id are given: give only one")
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic has this name")
    return topic


def _refused(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, detail)


# -- growing --------------------------------------------------------------------------------------


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
            topic = _growing_topic(image, wanted.name, count_by_name[wanted.name])
            placed = _placed_in_growth(image, topic, wanted, start, len(records))
            records += partition_records(image, topic.topic_id, len(topic.partitions), placed)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.detail
        result_by_name[wanted.name] = result
    return Decision(() if validate_only else tuple(records), list(result_by_name.values()))


def _growing_topic(image: ClusterImage, name: str, times_named: int) -> TopicImage:
    if times_named > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
    topic = image.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic has this name")
    return topic


def _placed_in_growth(
    image: ClusterImage,
    topic: TopicImage,
    wanted: CreatePartitionsTopic,
    start: int,
    taken_count: int,
) -> Sequence[Sequence[BrokerId]]:
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
    placed = [list(map(BrokerId, one.broker_ids)) for one in wanted.assignments]
    for number, replicas in enumerate(placed, present):
        check_assignment(image, number, replicas, factor)
    return placed
