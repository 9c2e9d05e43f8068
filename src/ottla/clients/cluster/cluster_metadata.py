"""The metadata that a client caches: brokers, topics and leaders.

Metadata only gets newer. A leader with an epoch below the cached one is ignored, whichever broker
sends it: brokers learn of elections one after the other, and the cache may be ahead of the broker
that answers (KIP-320). A topic that was deleted and created again has another id, and starts anew.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.clients.connection import Address
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID, TopicPartition
from ottla.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_LEADER: Final = -1


@dataclass(slots=True)
class _Known:
    """A topic as it was last seen."""

    topic: MetadataResponseTopic
    seen_at: float
    is_forgotten: bool = False
    """Whether to look it up again; the old entry stays, because its epochs still count."""
    partition_by_index: dict[int, MetadataResponsePartition] | None = None

    def partitions(self) -> dict[int, MetadataResponsePartition]:
        if self.partition_by_index is None:
            self.partition_by_index = {row.partition_index: row for row in self.topic.partitions}
        return self.partition_by_index


class KnownCluster:
    """The newest that was told. Times are the event loop's."""

    def __init__(self) -> None:
        self.address_by_broker: dict[int, Address] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self._topics: dict[str, _Known] = {}
        self._doubted_at = float("-inf")

    def take(self, answer: MetadataResponse, now: float, *, is_whole: bool) -> None:
        """Apply a response; topics that a full response lacks are removed."""
        self.address_by_broker = {
            broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers
        }
        self.controller_id = answer.controller_id
        self.cluster_id = answer.cluster_id
        before = self._topics
        if is_whole:
            self._topics = {}
        for topic in answer.topics:
            if topic.name is not None:
                _keep_newer_leaders(topic, before.get(topic.name))
                self._topics[topic.name] = _Known(topic, now)

    def topic(self, name: str) -> MetadataResponseTopic | None:
        """Return a topic, if it is there."""
        known = self._usable(name)
        return None if known is None else known.topic

    def undoubted_topic(self, name: str, seen_since: float) -> MetadataResponseTopic | None:
        """Return a topic, if it was seen since then, and nothing has failed after that."""
        known = self._usable(name)
        if known is None or known.seen_at < seen_since or known.seen_at <= self._doubted_at:
            return None
        return known.topic

    def partition(self, name: TopicPartition) -> MetadataResponsePartition | None:
        """Return a partition, if its topic is there and has it."""
        known = self._usable(name.topic)
        return None if known is None else known.partitions().get(name.partition)

    def leader(self, name: TopicPartition) -> int | None:
        """Return the leader of a partition; None if it is unknown or there is no leader."""
        row = self.partition(name)
        return None if row is None or row.leader_id == NO_LEADER else row.leader_id

    def learn_leader(
        self, name: TopicPartition, leader_id: int, leader_epoch: int, address: Address | None
    ) -> bool:
        """Apply a broker's hint at the current leader (KIP-951); False if it is not newer."""
        row = self.partition(name)
        if row is None or leader_id < 0 or leader_epoch <= row.leader_epoch:
            return False
        if address is not None:
            self.address_by_broker[leader_id] = address
        if leader_id not in self.address_by_broker:
            return False
        row.leader_id, row.leader_epoch = leader_id, leader_epoch
        return True

    def oldest(self, topics: Iterable[str]) -> float:
        """Return the time of these topics' oldest entry; minus infinity if one is missing."""
        seen = [self._usable(name) for name in topics]
        never = float("-inf")
        return min((never if row is None else row.seen_at for row in seen), default=float("inf"))

    def forget(self, topics: Iterable[str]) -> None:
        """Take these topics for not known, until they are seen again."""
        for name in topics:
            if (known := self._topics.get(name)) is not None:
                known.is_forgotten = True

    def doubt(self, now: float) -> None:
        """Take nothing for certain that was seen before: something has failed."""
        self._doubted_at = now

    def forget_brokers(self) -> None:
        """Forget all brokers: start again with the bootstrap servers."""
        self.address_by_broker = {}
        self.controller_id = -1

    def _usable(self, name: str) -> _Known | None:
        known = self._topics.get(name)
        if known is None or known.is_forgotten or known.topic.error_code != ErrorCode.NONE:
            return None
        return known


def _keep_newer_leaders(topic: MetadataResponseTopic, before: _Known | None) -> None:
    if before is None or topic.error_code != ErrorCode.NONE:
        return
    if before.topic.topic_id != topic.topic_id and ZERO_UUID not in {
        before.topic.topic_id,
        topic.topic_id,
    }:
        return
    rows = before.partitions()
    for row in topic.partitions:
        known = rows.get(row.partition_index)
        if known is not None and 0 <= row.leader_epoch < known.leader_epoch:
            row.leader_id, row.leader_epoch = known.leader_id, known.leader_epoch
            row.error_code = known.error_code
