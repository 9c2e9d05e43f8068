"""Lets the partitions on this broker's disks follow the committed metadata."""

import logging
from collections.abc import Callable, Sequence

from ottla.broker.partitions import Partitions
from ottla.environment.clock import Clock
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.metadata.records import ConfigRecord, MetadataRecord, RemoveTopicRecord
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_config import TopicConfig
from ottla.replication.partition import Partition
from ottla.storage.log_dirs import LogDirs

_log = logging.getLogger(__name__)


class ImageFollower:
    """Opens, leads and deletes partitions as the image says."""

    def __init__(
        self,
        node_id: int,
        log_dirs: LogDirs,
        partitions: Partitions,
        clock: Clock,
        defaults: TopicConfig,
        on_progress: Callable[[TopicPartition], None],
    ) -> None:
        self._node_id = node_id
        self._log_dirs = log_dirs
        self._partitions = partitions
        self._clock = clock
        self._defaults = defaults
        self._on_progress = on_progress

    def config_of(self, image: ClusterImage, topic: str) -> TopicConfig:
        """Return a topic's settings: its own, and for the rest the broker's."""
        return TopicConfig.parse(image.topic_settings(topic), self._defaults)

    def open_all(self, image: ClusterImage) -> None:
        """Open every log, and lead what the image lets this broker lead."""
        self._log_dirs.open(lambda topic: self.config_of(image, topic), self._clock.now_ms())
        for folder in self._log_dirs.dirs:
            for note in folder.notes:
                _log.warning("%s", note)
        for topic in image.topics.values():
            self._lead(image, topic)

    def on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Go on to the next image; what failed is offline and says so to whoever uses it."""
        # In the order of the records, and each but once.
        changed = dict.fromkeys(_topic_of(image, record) for record in records)
        removed = {record.topic_id for record in records if isinstance(record, RemoveTopicRecord)}
        for partition in [p for p in self._partitions if p.topic_id in removed]:
            self._delete(partition)
        for name in changed:
            topic = None if name is None else image.topics.get(name)
            if topic is not None:
                self._lead(image, topic)

    def _lead(self, image: ClusterImage, topic: TopicImage) -> None:
        config = self.config_of(image, topic.name)
        for index, state in enumerate(topic.partitions):
            name = TopicPartition(topic.name, index)
            if state.leader != self._node_id:
                continue
            try:
                partition = self._partition(name, topic.topic_id, config)
            except ApiError as error:
                _log.error("%s: %s", name, error)
                continue
            partition.log.config = config
            partition.lead(state.leader_epoch)

    def _partition(self, name: TopicPartition, topic_id: bytes, config: TopicConfig) -> Partition:
        known = self._partitions.find(name)
        if known is not None:
            return known
        log = self._log_dirs.log_of(name) or self._log_dirs.create(
            name, topic_id, config, self._clock.now_ms()
        )
        partition = Partition(name, topic_id, log, self._on_progress)
        self._partitions.add(partition)
        return partition

    def _delete(self, partition: Partition) -> None:
        self._partitions.remove(partition.name)
        folder = self._log_dirs.dir_of(partition.name)
        if folder is None or not folder.is_online:
            return
        try:
            folder.remove_deleted(folder.delete(partition.name, partition.topic_id.hex()))
        except OSError as error:
            folder.fail(error)
        self._on_progress(partition.name)


def _topic_of(image: ClusterImage, record: MetadataRecord) -> str | None:
    """Return the topic that a record is about, if it is about one that exists."""
    if isinstance(record, ConfigRecord):
        return record.resource_name
    topic_id = getattr(record, "topic_id", None)
    topic = image.topics_by_id.get(topic_id) if topic_id is not None else None
    return None if topic is None else topic.name
