"""Applies the committed metadata to the partitions on this broker's disks.

Before an image is published its new partitions here are created, and removed ones are deleted
(`prepare`): a client that learns of a topic can use it. Roles change at the publication
(`PartitionRoles`).
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Protocol

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.live_config import LiveConfig, topic_config
from ottla.broker.hosting.partition_log_dirs import PartitionLogDirs
from ottla.environment.clock import Clock
from ottla.metadata.image import ClusterImage, PartitionImage, ResourceType, TopicImage
from ottla.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.identifiers import (
    FIRST_OFFSET,
    ZERO_UUID,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicPartition,
)
from ottla.model.settings.topic_config import TopicConfig
from ottla.replication.in_sync import NO_LEADER, Assignment
from ottla.replication.partition import Partition
from ottla.storage.log.leader_epochs import NO_EPOCH
from ottla.storage.log.log import PartitionLog
from ottla.storage.log_dirs.bulk_creation import NewLog

OnCandidate = Callable[[Partition, BrokerId, int], None]

_log = logging.getLogger(__name__)


class Following(Protocol):
    """The fetchers of partitions with leaders on other brokers."""

    def follow(self, partition: Partition) -> None:
        """Follow its leader, as it is known to the partition now."""
        ...

    def forget(self, partition: Partition) -> None:
        """Stop fetching it."""
        ...


class PartitionRoles:
    """Makes partitions lead, follow, or do neither.

    A partition with other replicas is led only by an image in which this incarnation of the broker
    is registered. An older image is about the former incarnation, which may have had a longer log:
    to continue its epoch could give two different records one offset and one epoch.
    """

    def __init__(
        self,
        node_id: BrokerId,
        clock: Clock,
        on_progress: Callable[[Hashable], None],
        *,
        broker_epoch: Callable[[], int] = lambda: -1,
        following: Following | None = None,
        on_candidate: OnCandidate = lambda *_: None,
        high_watermark_of: Callable[[TopicPartition], Offset] = lambda _: FIRST_OFFSET,
    ) -> None:
        self.node_id = node_id
        self._clock = clock
        self._on_progress = on_progress
        self._broker_epoch = broker_epoch
        self._following = following
        self._on_candidate = on_candidate
        self._high_watermark_of = high_watermark_of
        self._resigned: dict[Partition, int] = {}

    def new(self, name: TopicPartition, topic_id: bytes, log: PartitionLog) -> Partition:
        """Create a partition that has no role yet."""
        return Partition(
            name,
            topic_id,
            log,
            self._on_progress,
            self._on_candidate,
            high_watermark=self._high_watermark_of(name),
        )

    def is_registered(self, image: ClusterImage) -> bool:
        """Return whether an image contains this incarnation of the broker."""
        broker = image.brokers.get(self.node_id)
        return broker is not None and broker.broker_epoch == self._broker_epoch()

    def apply(self, partition: Partition, state: PartitionImage, *, is_registered: bool) -> None:
        """Give a partition the role of an image; an older image changes nothing."""
        if state.leader_epoch < partition.leader_epoch:
            return
        if state.leader != self.node_id:
            self._follow(partition, state)
        elif not is_registered and len(state.replicas) > 1:
            return
        elif self._resigned.get(partition, -1) < state.leader_epoch:
            self._resigned.pop(partition, None)
            if self._following is not None:
                self._following.forget(partition)
            here = Assignment(self.node_id, state.replicas, state.isr, state.partition_epoch)
            partition.lead(state.leader_epoch, here, self._clock.monotonic_ms())

    def _follow(self, partition: Partition, state: PartitionImage) -> None:
        known = (partition.leader_id, partition.leader_epoch)
        if partition.in_sync is None and known == (state.leader, state.leader_epoch):
            return
        partition.follow(state.leader, state.leader_epoch)
        if self._following is not None:
            self._following.follow(partition)

    def resign(self, partition: Partition) -> None:
        """Stop leading in this epoch, even if the metadata still names this broker."""
        if partition.in_sync is not None:
            self._resigned[partition] = partition.leader_epoch
            partition.follow(NO_LEADER, partition.leader_epoch)

    def drop(self, partition: Partition) -> None:
        """Drop a partition that is not hosted here any more, and wake its waiting requests."""
        if self._following is not None:
            self._following.forget(partition)
        self._resigned.pop(partition, None)
        partition.follow(NO_LEADER, partition.leader_epoch)


class MetadataApplier:
    """Opens, leads, follows and deletes partitions as the image says."""

    def __init__(
        self,
        roles: PartitionRoles,
        folders: PartitionLogDirs,
        partitions: HostedPartitions,
        live_config: LiveConfig,
    ) -> None:
        self._node_id = roles.node_id
        self._roles = roles
        self._folders = folders
        self._partitions = partitions
        self._live_config = live_config
        self._applied = live_config.topic_defaults
        self._published: ClusterImage | None = None
        self._changing = asyncio.Lock()
        self._unseen: dict[TopicPartition, bytes] = {}
        """Partitions that may be in an offline log dir, and their topics' ids."""

    def config_of(self, image: ClusterImage, topic: str) -> TopicConfig:
        """Return a topic's settings: its own, and for the rest the broker's."""
        return topic_config(image.topic_settings(topic), self._live_config.topic_defaults, topic)

    async def open_all(self, image: ClusterImage) -> None:
        """Open every log, and let it lead or follow as the image says."""
        await self.open_logs(image)
        await self.begin_with(image)

    async def open_logs(self, image: ClusterImage) -> None:
        """Open every log of this broker in an image, without roles."""
        await self._folders.open(
            lambda topic: self.config_of(image, topic),
            lambda partition, topic_id: self._is_stray(image, partition, topic_id),
        )

    async def begin_with(self, image: ClusterImage) -> None:
        """Give roles to the open logs, and delete logs that have become strays."""
        await self._folders.delete(
            (partition, topic_id or ZERO_UUID)
            for partition, topic_id in self._folders.hosted()
            if self._is_stray(image, partition, topic_id)
        )
        self._partitions.image = self._published = image
        new: list[NewLog] = []
        for topic in image.topics.values():
            for wanted in self._missing(image, topic, range(len(topic.partitions))):
                log = self._opened(wanted.partition)
                if log is None:
                    new.append(wanted)
                    continue
                self._take(wanted, log)
                if isinstance(log, ApiError) and not self._folders.are_all_online:
                    self._unseen[wanted.partition] = wanted.topic_id
        await self._folders.make(new, self._take)

    def _is_stray(
        self, image: ClusterImage, partition: TopicPartition, topic_id: bytes | None
    ) -> bool:
        topic = image.topics.get(partition.topic)
        state = None if topic is None else topic.partition(partition.partition)
        is_ours = state is not None and self._node_id in state.replicas
        return topic is None or not is_ours or topic_id not in {None, topic.topic_id}

    def _opened(self, partition: TopicPartition) -> PartitionLog | ApiError | None:
        try:
            return self._folders.opened(partition)
        except ApiError as error:
            return error

    # -- the next image -------------------------------------------------------------------------

    async def prepare(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Delete and make partitions, so that the next image can be published."""
        async with self._changing:
            self._partitions.image = image
            touched = _touched(image, records)
            gone = dict.fromkeys([*self._removed(records), *self._moved_away(image, touched)])
            if gone or self._partitions.offline:
                await self._delete(list(gone))
            await self._make(image, touched)

    def _removed(self, records: Sequence[MetadataRecord]) -> list[Partition]:
        removed = {record.topic_id for record in records if isinstance(record, RemoveTopicRecord)}
        return [one for one in self._partitions if one.topic_id in removed] if removed else []

    def _moved_away(self, image: ClusterImage, touched: dict[str, set[int]]) -> Iterator[Partition]:
        """Find the partitions that are assigned to other brokers from now on."""
        for name, state in _states(image, touched):
            partition = self._partitions.find(name)
            if partition is not None and self._node_id not in state.replicas:
                yield partition

    async def _make(self, image: ClusterImage, touched: dict[str, set[int]]) -> None:
        missing = [
            wanted
            for topic, numbers in touched.items()
            for wanted in self._missing(image, image.topics[topic], sorted(numbers))
        ]
        if missing:
            names = {wanted.partition for wanted in missing}
            self._partitions.being_made |= names
            try:
                await self._folders.make(missing, self._take)
            finally:
                self._partitions.being_made -= names

    async def retry(self) -> None:
        """Retry the logs that a full disk did not let us open or create."""
        async with self._changing:
            if self._partitions.offline:
                touched: dict[str, set[int]] = {}
                for name in self._partitions.offline:
                    touched.setdefault(name.topic, set()).add(name.partition)
                await self._make(self._partitions.image, touched)

    def on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Apply the next image; a log that failed is offline, with its reason."""
        self._published = image
        touched = _touched(image, records)
        for topic in {record.resource_name for record in _topic_configs(records)}:
            if topic in image.topics:
                self._reconfigure(image, topic)
                touched.setdefault(topic, set()).update(range(len(image.topics[topic].partitions)))
        self._apply(image, touched)
        if self._applied is not self._live_config.topic_defaults:
            self._applied = self._live_config.topic_defaults
            for topic in image.topics:
                self._reconfigure(image, topic)

    def _apply(self, image: ClusterImage, touched: dict[str, set[int]]) -> None:
        is_registered = self._roles.is_registered(image)
        for name, state in _states(image, touched):
            partition = self._partitions.find(name)
            if partition is not None:
                self._roles.apply(partition, state, is_registered=is_registered)

    def registered(self) -> None:
        """Apply the broker's new epoch."""
        assert self._published is not None
        touched: dict[str, set[int]] = {}
        for partition in self._partitions:
            if partition.name.topic in self._published.topics:
                touched.setdefault(partition.name.topic, set()).add(partition.name.partition)
        self._apply(self._published, touched)

    def resign(self) -> None:
        """Stop leading, until newer metadata makes this broker a leader."""
        for partition in self._partitions:
            self._roles.resign(partition)

    def _reconfigure(self, image: ClusterImage, topic: str) -> None:
        """Apply a topic's settings, with its current defaults, to its logs."""
        config = self.config_of(image, topic)
        for number in range(len(image.topics[topic].partitions)):
            partition = self._partitions.find(TopicPartition(topic, number))
            if partition is not None:
                partition.log.config = config

    # -- coming and going -----------------------------------------------------------------------

    def _missing(
        self, image: ClusterImage, topic: TopicImage, numbers: Iterable[int]
    ) -> list[NewLog]:
        states = [(TopicPartition(topic.name, one), topic.partitions[one]) for one in numbers]
        wanted = [
            (name, state)
            for name, state in states
            if self._node_id in state.replicas
            and self._partitions.find(name) is None
            and self._unseen.get(name) != topic.topic_id
        ]
        config = self.config_of(image, topic.name) if wanted else None
        return [
            NewLog(name, topic.topic_id, config, self._epoch_to_begin(state))
            for name, state in wanted
            if config is not None
        ]

    def _epoch_to_begin(self, state: PartitionImage) -> LeaderEpoch:
        """Return the epoch that a new log begins in; a follower learns its epochs by following."""
        return state.leader_epoch if state.leader == self._node_id else NO_EPOCH

    def _take(self, wanted: NewLog, log: PartitionLog | ApiError) -> None:
        """Give a partition with a new log its role, or mark it offline."""
        name = wanted.partition
        if isinstance(log, ApiError):
            if self._partitions.offline.get(name) != log.detail:  # else it was tried again
                _log.error("%s: %s", name, log)
            self._partitions.offline[name] = log.detail
            return
        log.config = wanted.config
        partition = self._roles.new(name, wanted.topic_id, log)
        image = self._partitions.image
        state = image.topics[name.topic].partitions[name.partition]
        is_registered = self._roles.is_registered(image)
        self._roles.apply(partition, state, is_registered=is_registered)
        self._partitions.add(partition)

    async def _delete(self, partitions: Sequence[Partition]) -> None:
        unwanted = [name for name in self._partitions.offline if not self._is_wanted(name)]
        for name in unwanted:
            del self._partitions.offline[name]
            self._unseen.pop(name, None)
        for partition in partitions:
            self._partitions.remove(partition.name)
            self._roles.drop(partition)
        gone = [(one.name, one.topic_id) for one in partitions]
        unopened = self._folders.unopened()
        gone += [(name, unopened[name] or ZERO_UUID) for name in unwanted if name in unopened]
        await self._folders.delete(gone)

    def _is_wanted(self, name: TopicPartition) -> bool:
        topic = self._partitions.image.topics.get(name.topic)
        state = None if topic is None else topic.partition(name.partition)
        return state is not None and self._node_id in state.replicas


def _touched(image: ClusterImage, records: Sequence[MetadataRecord]) -> dict[str, set[int]]:
    """Return the partitions that records are about and that exist, by topic."""
    touched: dict[str, set[int]] = {}
    for record in records:
        if isinstance(record, PartitionRecord | PartitionChangeRecord):
            topic = image.topics_by_id.get(record.topic_id)
            if topic is not None and topic.partition(record.partition_id) is not None:
                touched.setdefault(topic.name, set()).add(record.partition_id)
    return touched


def _states(
    image: ClusterImage, touched: dict[str, set[int]]
) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    for topic, numbers in touched.items():
        partitions = image.topics[topic].partitions
        for number in sorted(numbers):
            yield TopicPartition(topic, number), partitions[number]


def _topic_configs(records: Sequence[MetadataRecord]) -> Iterator[ConfigRecord]:
    for record in records:
        if isinstance(record, ConfigRecord) and record.resource_type == ResourceType.TOPIC:
            yield record
