"""Lets the partitions on this broker's disks follow the committed metadata.

Before an image is published the partitions are made that it begins, and those are deleted that it
ends (`prepare`): who hears of a topic can use it. Everything else is done at the publication.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from ottla.broker.live_config import LiveConfig, topic_config
from ottla.broker.partition_folders import PartitionFolders
from ottla.broker.partitions import Partitions
from ottla.metadata.image import ClusterImage, ResourceType, TopicImage
from ottla.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_config import TopicConfig
from ottla.replication.partition import Partition
from ottla.storage.log import PartitionLog
from ottla.storage.new_logs import NewLog

_log = logging.getLogger(__name__)


class ImageFollower:
    """Opens, leads and deletes partitions as the image says."""

    def __init__(
        self,
        node_id: int,
        folders: PartitionFolders,
        partitions: Partitions,
        live_config: LiveConfig,
        on_progress: Callable[[TopicPartition], None],
    ) -> None:
        self._node_id = node_id
        self._folders = folders
        self._partitions = partitions
        self._live_config = live_config
        self._applied = live_config.topic_defaults
        self._on_progress = on_progress
        self._image: ClusterImage | None = None
        self._changing = asyncio.Lock()

    def config_of(self, image: ClusterImage, topic: str) -> TopicConfig:
        """Return a topic's settings: its own, and for the rest the broker's."""
        return topic_config(image.topic_settings(topic), self._live_config.topic_defaults, topic)

    def open_all(self, image: ClusterImage) -> None:
        """Open every log, and lead what the image lets this broker lead."""
        self._folders.open(
            lambda topic: self.config_of(image, topic),
            lambda partition, topic_id: self._is_stray(image, partition, topic_id),
        )
        self._image = image
        for topic in image.topics.values():
            config = self.config_of(image, topic.name)
            for wanted in self._missing(topic, config):
                self._take(wanted, self._opened(wanted))

    def _is_stray(
        self, image: ClusterImage, partition: TopicPartition, topic_id: bytes | None
    ) -> bool:
        topic = image.topics.get(partition.topic)
        state = None if topic is None else topic.partition(partition.partition)
        is_ours = state is not None and self._node_id in state.replicas
        return topic is None or not is_ours or topic_id not in {None, topic.topic_id}

    def _opened(self, wanted: NewLog) -> PartitionLog | ApiError:
        try:
            return self._folders.open_or_make(wanted)
        except ApiError as error:
            return error

    async def prepare(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Delete and make partitions, so that the next image can be published."""
        removed = {record.topic_id for record in records if isinstance(record, RemoveTopicRecord)}
        async with self._changing:
            self._image = image
            if removed:
                await self._delete([p for p in self._partitions if p.topic_id in removed])
            await self._make(image, _topics_of(image, records))

    async def _make(self, image: ClusterImage, topics: Iterable[TopicImage]) -> None:
        for topic in topics:
            missing = self._missing(topic, self.config_of(image, topic.name))
            await self._folders.make(missing, self._take)

    async def retry(self) -> None:
        """Try again to open or make what a full disk has refused."""
        async with self._changing:
            if self._partitions.offline and self._image is not None:
                topics = self._image.topics
                names = dict.fromkeys(partition.topic for partition in self._partitions.offline)
                await self._make(self._image, [topics[name] for name in names])

    def on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Go on to the next image; what failed is offline and says so to whoever uses it."""
        is_new = (TopicRecord, PartitionRecord)
        changes = [record for record in records if not isinstance(record, is_new)]
        for topic in _topics_of(image, changes):
            self._lead(image, topic)
        if self._applied is not self._live_config.topic_defaults:
            self._reconfigure(image)

    def _reconfigure(self, image: ClusterImage) -> None:
        """Let all logs go by what topics inherit now."""
        self._applied = self._live_config.topic_defaults
        config_by_topic = {name: self.config_of(image, name) for name in image.topics}
        for partition in self._partitions:
            if partition.name.topic in config_by_topic:
                partition.log.config = config_by_topic[partition.name.topic]

    def _lead(self, image: ClusterImage, topic: TopicImage) -> None:
        config = self.config_of(image, topic.name)
        for index, state in enumerate(topic.partitions):
            partition = self._partitions.find(TopicPartition(topic.name, index))
            if partition is not None and state.leader == self._node_id:
                partition.log.config = config
                partition.lead(state.leader_epoch)

    def _missing(self, topic: TopicImage, config: TopicConfig) -> list[NewLog]:
        names = [TopicPartition(topic.name, index) for index in range(len(topic.partitions))]
        return [
            NewLog(name, topic.topic_id, config, state.leader_epoch)
            for name, state in zip(names, topic.partitions, strict=True)
            if state.leader == self._node_id and self._partitions.find(name) is None
        ]

    def _take(self, wanted: NewLog, log: PartitionLog | ApiError) -> None:
        """Lead a partition whose log is here now, or say that it is offline."""
        name = wanted.partition
        if isinstance(log, ApiError):
            _log.error("%s: %s", name, log)
            self._partitions.offline[name] = log.detail
            return
        partition = Partition(name, wanted.topic_id, log, self._on_progress)
        log.config = wanted.config
        partition.lead(wanted.leader_epoch)
        self._partitions.add(partition)

    async def _delete(self, partitions: Sequence[Partition]) -> None:
        for name in [name for name in self._partitions.offline if not self._is_wanted(name)]:
            del self._partitions.offline[name]
        for partition in partitions:
            self._partitions.remove(partition.name)
            self._on_progress(partition.name)
        await self._folders.delete((one.name, one.topic_id) for one in partitions)

    def _is_wanted(self, name: TopicPartition) -> bool:
        return self._image is not None and name.topic in self._image.topics


def _topics_of(image: ClusterImage, records: Sequence[MetadataRecord]) -> list[TopicImage]:
    """Return the topics that records are about and that exist, in their order."""
    names = dict.fromkeys(_topic_of(image, record) for record in records)
    return [image.topics[name] for name in names if name is not None and name in image.topics]


def _topic_of(image: ClusterImage, record: MetadataRecord) -> str | None:
    """Return the topic that a record is about, if it is about one that exists."""
    if isinstance(record, ConfigRecord):
        is_topic = record.resource_type == ResourceType.TOPIC
        return record.resource_name if is_topic else None
    topic_id = getattr(record, "topic_id", None)
    topic = image.topics_by_id.get(topic_id) if topic_id is not None else None
    return None if topic is None else topic.name
