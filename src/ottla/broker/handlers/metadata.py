"""Metadata v0-v13: the brokers, the topics, and the leaders of their partitions.

A null list of topics means all topics; in version 0 an empty list does, too. A missing topic is
created if the client allows it and `auto.create.topics.enable` is set; with Kafka, clients have to
retry, here the response already contains it. A topic that is named twice is described once. Topics
can be named by id since version 12; ids in versions 10 and 11 are INVALID_REQUEST. Other requests
run between topics; all topics are described from the image at the arrival of the request.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.broker.controller.topic_creation import TopicCreation
from ottla.broker.describing.authorized_operations import NOT_ASKED, ON_CLUSTER, ON_TOPIC
from ottla.broker.describing.metadata_view import MetadataView
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.yield_budget import TimeSlices
from ottla.metadata.image import BrokerImage, ClusterImage, TopicImage
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID, BrokerId, TopicPartition
from ottla.model.topic_names import CONSUMER_OFFSETS_TOPIC, INTERNAL_TOPICS, check_topic_name
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

VERSIONS = range(14)
IDS_SINCE: Final = 12


class _Described(NamedTuple):
    topic: TopicImage
    brokers: Mapping[BrokerId, BrokerImage]
    here: tuple[TopicPartition, ...]
    lost: list[TopicPartition]
    partitions: list[MetadataResponsePartition]


class DescribedTopics:
    """A cache of topics' partitions in responses. Returned lists must not be changed.

    Clients with many partitions ask again and again, and mostly nothing has changed. An entry is
    valid for one state of the topic's partitions, of the brokers, and of the disks here.
    """

    def __init__(self, view: MetadataView) -> None:
        self._view = view
        self._by_id: dict[bytes, _Described] = {}

    @property
    def kept_count(self) -> int:
        """How many topics are remembered."""
        return len(self._by_id)

    def partitions_of(
        self, image: ClusterImage, topic: TopicImage
    ) -> list[MetadataResponsePartition]:
        """Describe the partitions of a topic, of an image that the view has given just now."""
        known = self._by_id.get(topic.topic_id)
        if (
            known is not None
            and known.topic is topic
            and known.brokers is image.brokers
            and known.lost == self._view.lost_of(known.here)
        ):
            return known.partitions
        made = self._describe(image, topic)
        if image is self._view.published():  # else the lease may have expired for a moment
            self._by_id[topic.topic_id] = made
            if len(self._by_id) > len(image.topics):
                topics = image.topics_by_id
                self._by_id = {one: kept for one, kept in self._by_id.items() if one in topics}
        return made.partitions

    def _describe(self, image: ClusterImage, topic: TopicImage) -> _Described:
        names = [TopicPartition(topic.name, number) for number in range(len(topic.partitions))]
        replicas = zip(names, topic.partitions, strict=True)
        here = tuple(name for name, one in replicas if self._view.node_id in one.replicas)
        lost = self._view.lost_of(here)
        partitions = [self._partition(image, topic, name) for name in names]
        return _Described(topic, image.brokers, here, lost, partitions)

    def _partition(
        self, image: ClusterImage, topic: TopicImage, name: TopicPartition
    ) -> MetadataResponsePartition:
        partition = topic.partitions[name.partition]
        state = self._view.state_of(image, name, partition)
        return MetadataResponsePartition(
            error_code=state.error_code,
            partition_index=name.partition,
            leader_id=state.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=list(state.offline_replicas),
        )


@dataclass(frozen=True, slots=True)
class MetadataHandler:
    """Answers Metadata."""

    view: MetadataView
    creation: TopicCreation
    make_offsets_topic: Callable[[], Awaitable[None]]
    described: DescribedTopics
    slices: TimeSlices

    async def handle(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        """Describe the requested topics, and create missing ones where that is allowed."""
        wanted = request.topics
        if wanted is None or (context.api_version == 0 and not wanted):
            image = self.view.image
            topics = await self._each(
                self._described(image, topic) for topic in image.topics.values()
            )
        elif context.api_version < IDS_SINCE and any(map(_is_by_id, wanted)):
            return MetadataResponse(topics=[_refused(topic) for topic in wanted])
        else:
            is_creating = request.allow_auto_topic_creation and self.creation.is_automatic
            topics = await self._find_all(wanted, is_creating=is_creating)
        if request.include_topic_authorized_operations:
            for topic in topics:
                topic.topic_authorized_operations = ON_TOPIC
        is_asked = request.include_cluster_authorized_operations
        return MetadataResponse(
            brokers=self._brokers(context.listener),
            cluster_id=self.view.image.cluster_id,
            controller_id=self.view.node_id,
            topics=topics,
            cluster_authorized_operations=ON_CLUSTER if is_asked else NOT_ASKED,
        )

    def _brokers(self, listener: str) -> list[MetadataResponseBroker]:
        return [
            MetadataResponseBroker(
                node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker, endpoint in self.view.brokers(listener)
            if not broker.is_fenced
        ]

    async def _find_all(
        self, wanted: Sequence[MetadataRequestTopic], *, is_creating: bool
    ) -> list[MetadataResponseTopic]:
        image = self.view.image
        keys = dict.fromkeys(map(_key, wanted))
        topics = await self._each(self._find(image, name, topic_id) for name, topic_id in keys)
        missing = [
            str(topic.name)
            for topic in topics
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        if not is_creating or not missing:
            return topics
        made = dict(zip(missing, await self._create(missing), strict=True))
        return [made.get(topic.name or "", topic) for topic in topics]

    async def _each(self, topics: Iterable[MetadataResponseTopic]) -> list[MetadataResponseTopic]:
        budget = self.slices.begin(steps_per_look=1)
        found: list[MetadataResponseTopic] = []
        for topic in topics:
            found.append(topic)
            await budget.yield_if_spent()
        return found

    def _find(
        self, image: ClusterImage, name: str | None, topic_id: bytes
    ) -> MetadataResponseTopic:
        topic = image.topics_by_id.get(topic_id) if name is None else image.topics.get(name)
        if topic is not None:
            return self._described(image, topic)
        if name is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
            return MetadataResponseTopic(error_code=unknown, name=None, topic_id=topic_id)
        return MetadataResponseTopic(
            error_code=_code_of_missing(name), name=name, is_internal=name in INTERNAL_TOPICS
        )

    async def _create(self, names: list[str]) -> list[MetadataResponseTopic]:
        """Create topics, and describe each result."""
        if CONSUMER_OFFSETS_TOPIC in names:  # which is made by other settings
            await self._make_offsets_topic()
        others = [name for name in names if name not in INTERNAL_TOPICS]
        code_by_name = await self._create_with_defaults(others)
        image = self.view.image
        answers = [self._find(image, name, ZERO_UUID) for name in names]
        for answer in answers:
            if answer.error_code:
                answer.error_code = code_by_name.get(str(answer.name), answer.error_code)
        return answers

    async def _create_with_defaults(self, names: list[str]) -> dict[str, ErrorCode]:
        try:
            codes = await self.creation.create_automatically(names)
        except ApiError as error:  # the metadata log refuses
            return dict.fromkeys(names, error.code)
        return dict(zip(names, codes, strict=True))

    async def _make_offsets_topic(self) -> None:
        try:
            await self.make_offsets_topic()
        except ApiError:
            return  # it does not exist, as the response says

    def _described(self, image: ClusterImage, topic: TopicImage) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=self.described.partitions_of(image, topic),
        )


def _key(wanted: MetadataRequestTopic) -> tuple[str | None, bytes]:
    """Return a topic's key: its id if there is one, since Java leaves the name empty then."""
    return (wanted.name if wanted.topic_id == ZERO_UUID else None), wanted.topic_id


def _is_by_id(wanted: MetadataRequestTopic) -> bool:
    return wanted.name is None or wanted.topic_id != ZERO_UUID


def _refused(wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=wanted.name or "")


def _code_of_missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except ApiError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
