"""The cluster as clients are told of it: who can be reached, who leads, what is offline."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.broker.partitions import Partitions
from ottla.metadata.image import BrokerImage, ClusterImage, Endpoint, PartitionImage
from ottla.metadata.records import NO_LEADER
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition


class KnownBroker(NamedTuple):
    """A broker, and where clients of one listener reach it."""

    broker: BrokerImage
    endpoint: Endpoint


class PartitionState(NamedTuple):
    """How one partition is right now."""

    error_code: ErrorCode
    leader: int
    offline_replicas: list[int]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Looks at the published image, and at this broker's own disks."""

    node_id: int
    published: Callable[[], ClusterImage]
    partitions: Partitions

    @property
    def image(self) -> ClusterImage:
        """What is committed."""
        return self.published()

    def brokers(self, listener: str) -> list[KnownBroker]:
        """Return the brokers that have this listener, fenced ones too, in their order."""
        found = [(broker, broker.endpoint(listener)) for broker in self._sorted_brokers()]
        return [KnownBroker(broker, end) for broker, end in found if end is not None]

    def _sorted_brokers(self) -> list[BrokerImage]:
        return [broker for _, broker in sorted(self.image.brokers.items())]

    def state_of(self, name: TopicPartition, partition: PartitionImage) -> PartitionState:
        """Tell who leads a partition, and which of its replicas cannot be reached."""
        offline = [replica for replica in partition.replicas if self._is_offline(replica, name)]
        if partition.leader == NO_LEADER or partition.leader in offline:
            return PartitionState(ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, offline)
        return PartitionState(ErrorCode.NONE, partition.leader, offline)

    def _is_offline(self, replica: int, name: TopicPartition) -> bool:
        broker = self.image.brokers.get(replica)
        if broker is None or broker.is_fenced:
            return True
        if replica != self.node_id:
            return False
        here = self.partitions.find(name)
        return name in self.partitions.offline if here is None else here.log.is_offline
