"""The current leader of a partition, for clients that used the wrong broker."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.metadata.image import ClusterImage, Endpoint
from ottla.metadata.records import NO_LEADER
from ottla.model.identifiers import TopicPartition
from ottla.storage.log.leader_epochs import NO_EPOCH


class CurrentLeader(NamedTuple):
    """The leader of a partition, its epoch and its address, as far as they are known."""

    leader_id: int
    leader_epoch: int
    endpoint: Endpoint | None
    rack: str | None


UNKNOWN_LEADER = CurrentLeader(NO_LEADER, NO_EPOCH, None, None)


@dataclass(frozen=True, slots=True)
class CurrentLeaders:
    """Looks up leaders for clients that sent a request to the wrong broker (KIP-951)."""

    image: Callable[[], ClusterImage]

    def is_broker(self, broker_id: int) -> bool:
        """Return whether a broker of this id has registered."""
        return broker_id in self.image().brokers

    def is_alive(self, broker_id: int) -> bool:
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
