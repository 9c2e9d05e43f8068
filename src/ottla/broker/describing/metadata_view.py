"""The clients' view of the cluster: reachable brokers, leaders, offline replicas."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.metadata.image import BrokerImage, ClusterImage, Endpoint, PartitionImage
from ottla.metadata.records import NO_LEADER
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, LeaderEpoch, TopicPartition
from ottla.storage.log.leader_epochs import NO_EPOCH


class CurrentLeader(NamedTuple):
    """The leader of a partition, its epoch and its address, as far as they are known."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    endpoint: Endpoint | None
    rack: str | None


UNKNOWN_LEADER = CurrentLeader(NO_LEADER, NO_EPOCH, None, None)


@dataclass(frozen=True, slots=True)
class CurrentLeaders:
    """Looks up leaders for clients that sent a request to the wrong broker (KIP-951)."""

    image: Callable[[], ClusterImage]

    def is_broker(self, broker_id: BrokerId) -> bool:
        """Return whether a broker of this id has registered."""
        return broker_id in self.image().brokers

    def is_alive(self, broker_id: BrokerId) -> bool:
        """Return whether a broker is live."""
        broker = self.image().brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    def find(self, name: TopicPartition, listener: str) -> CurrentLeader:
        """Return the leader of a partition, and its end of this listener."""
        image = self.image()
        topic = image.topics.get(name.topic)
        partition = None if topic is None else topic.partition(name.partition)
        if partition is None:
            return UNKNOWN_LEADER
        broker = image.brokers.get(partition.leader)
        if broker is not None and broker.is_fenced:
            return UNKNOWN_LEADER  # it is this broker, without a valid lease
        return CurrentLeader(
            partition.leader,
            partition.leader_epoch,
            None if broker is None else broker.endpoint(listener),
            None if broker is None else broker.rack,
        )


class KnownBroker(NamedTuple):
    """A broker, and where clients of one listener reach it."""

    broker: BrokerImage
    endpoint: Endpoint


class PartitionState(NamedTuple):
    """How one partition is right now."""

    error_code: ErrorCode
    leader: BrokerId
    offline_replicas: Sequence[BrokerId]


@dataclass(frozen=True, slots=True)
class MetadataView:
    """Looks at the published image, and at this broker's own disks."""

    node_id: BrokerId
    published: Callable[[], ClusterImage]
    partitions: HostedPartitions

    is_sure: Callable[[], bool] = lambda: True
    """Returns whether this broker's lease is valid: it leads its partitions for sure."""

    @property
    def image(self) -> ClusterImage:
        """The committed metadata that this broker knows.

        Without a valid lease this broker shows itself as fenced, as the other brokers may do by
        now: clients go to brokers with newer metadata, and do not return to a broker that cannot
        acknowledge writes.
        """
        image = self.published()
        return image if self.is_sure() else _fenced(image, self.node_id)

    def brokers(self, listener: str) -> list[KnownBroker]:
        """Return the brokers that have this listener, fenced ones too, in their order."""
        found = [(broker, broker.endpoint(listener)) for broker in self._sorted_brokers()]
        return [KnownBroker(broker, end) for broker, end in found if end is not None]

    def _sorted_brokers(self) -> list[BrokerImage]:
        return [broker for _, broker in sorted(self.image.brokers.items())]

    def state_of(
        self, image: ClusterImage, name: TopicPartition, partition: PartitionImage
    ) -> PartitionState:
        """Return the leader of a partition of `image`, and its offline replicas."""
        brokers = image.brokers
        offline = [
            replica
            for replica in partition.replicas
            if (broker := brokers.get(replica)) is None
            or broker.is_fenced
            or (replica == self.node_id and self._is_lost_here(name))
        ]
        if partition.leader == NO_LEADER or partition.leader in offline:
            return PartitionState(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline)
        return PartitionState(ErrorCode.NONE, partition.leader, offline)

    def lost_of(self, names: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions with an unusable log, among this broker's replicas."""
        return [name for name in names if self._is_lost_here(name)]

    def _is_lost_here(self, name: TopicPartition) -> bool:
        here = self.partitions.find(name)
        return name in self.partitions.offline if here is None else here.log.is_offline


def _fenced(image: ClusterImage, broker_id: BrokerId) -> ClusterImage:
    broker = image.brokers.get(broker_id)
    others = [other for other in image.brokers.values() if other is not broker]
    if broker is None or all(other.is_fenced for other in others):
        return image  # there is no other broker to go to
    return replace(image, brokers={**image.brokers, broker_id: replace(broker, is_fenced=True)})
