"""Metadata v0-v13: the brokers, the topics, and who leads their partitions.

No list of topics asks for all of them; in version 0 an empty one does, too. A topic that does not
exist is made if the client allows it and `auto.create.topics.enable` does, and is then answered
with LEADER_NOT_AVAILABLE once, as clients expect. Authorized operations are not computed yet.
"""

from dataclasses import dataclass

from ottla.broker.endpoints import Endpoints
from ottla.broker.request_context import RequestContext
from ottla.broker.topic_creation import TopicCreation
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

VERSIONS = range(14)
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


@dataclass(frozen=True, slots=True)
class MetadataHandler:
    """Answers Metadata."""

    node_id: int
    creation: TopicCreation
    endpoints: Endpoints

    async def handle(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        """Describe what was asked for, and make what may be made."""
        image = self.creation.store.image
        wanted = request.topics
        if wanted is None or (context.api_version == 0 and not wanted):
            topics = [_described(topic) for topic in image.topics.values()]
        else:
            topics = [self._find(image, topic) for topic in wanted]
            if request.allow_auto_topic_creation:
                await self._create_missing(topics)
        host, port = self.endpoints.advertised(context.listener)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=self.node_id, host=host, port=port)],
            cluster_id=image.cluster_id,
            controller_id=self.node_id,
            topics=topics,
        )

    def _find(self, image: ClusterImage, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
        if wanted.name is not None:
            topic = image.topics.get(wanted.name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            topic = image.topics_by_id.get(wanted.topic_id)
            code = ErrorCode.UNKNOWN_TOPIC_ID
        if topic is not None:
            return _described(topic)
        name = wanted.name if wanted.name is not None or wanted.topic_id != ZERO_UUID else ""
        return MetadataResponseTopic(error_code=code, name=name, topic_id=wanted.topic_id)

    async def _create_missing(self, topics: list[MetadataResponseTopic]) -> None:
        """Make the topics that were asked for by name and not found; answer what came of it."""
        missing = [
            topic
            for topic in topics
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.name
        ]
        codes = await self.creation.create_automatically([str(topic.name) for topic in missing])
        for topic, code in zip(missing, codes, strict=True):
            topic.error_code = code


def _described(topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
            )
            for index, partition in enumerate(topic.partitions)
        ],
    )
