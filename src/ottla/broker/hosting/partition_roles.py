"""Gives the partitions of this broker their roles, as the metadata says."""

from collections.abc import Callable, Hashable
from typing import Protocol

from ottla.environment.clock import Clock
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.model.identifiers import FIRST_OFFSET, BrokerId, Offset, TopicPartition
from ottla.replication.in_sync import NO_LEADER, Assignment
from ottla.replication.partition import Partition
from ottla.storage.log.log import PartitionLog

OnCandidate = Callable[[Partition, BrokerId, int], None]


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
