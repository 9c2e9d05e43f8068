"""A cache of topics' partitions in Metadata responses.

Clients with many partitions ask again and again, and mostly nothing has changed. An entry is valid
for one state of the topic's partitions, of the brokers, and of the disks here.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.describing.metadata_view import ClusterView
from ottla.metadata.image import BrokerImage, ClusterImage, TopicImage
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.metadata import MetadataResponsePartition


class _Described(NamedTuple):
    topic: TopicImage
    brokers: Mapping[int, BrokerImage]
    here: tuple[TopicPartition, ...]
    lost: list[TopicPartition]
    partitions: list[MetadataResponsePartition]


class DescribedTopics:
    """One entry per topic at most. Returned lists must not be changed."""

    def __init__(self, view: ClusterView) -> None:
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
            offline_replicas=state.offline_replicas,
        )
