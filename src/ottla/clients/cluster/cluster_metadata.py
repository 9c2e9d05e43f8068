"""The metadata cache of a client: brokers, topics and leaders.

Leader epochs in the cache never decrease. Brokers learn of elections at different times, so a
response may be older than the cache; a leader with a lower epoch is ignored (KIP-320). A recreated
topic has a new id, and replaces the old entry.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ottla.model.address import Address
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
    """A topic's latest metadata."""

    topic: MetadataResponseTopic
    seen_at: float
    is_forgotten: bool = False
    """Whether to look it up again; the old entry stays, because its epochs remain valid."""
    partition_by_index: dict[int, MetadataResponsePartition] | None = None

    def partitions(self) -> dict[int, MetadataResponsePartition]:
        if self.partition_by_index is None:
            self.partition_by_index = {row.partition_index: row for row in self.topic.partitions}
        return self.partition_by_index


class ClusterMetadata:
    """The latest metadata. Times are on the event loop's clock."""

    def __init__(self) -> None:
        self.address_by_broker: dict[int, Address] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self._topics: dict[str, _Known] = {}
        self._doubted_at = float("-inf")

    def take(self, response: MetadataResponse, now: float, *, is_whole: bool) -> None:
        """Apply a response; topics that a full response lacks are removed."""
        self.address_by_broker = {
            broker.node_id: Address(broker.host, broker.port) for broker in response.brokers
        }
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id
        before = self._topics
        if is_whole:
            self._topics = {}
        for topic in response.topics:
            if topic.name is not None:
                _keep_newer_leaders(topic, before.get(topic.name))
                self._topics[topic.name] = _Known(topic, now)

    def topic(self, name: str) -> MetadataResponseTopic | None:
        """Return a topic, if it is known and exists."""
        known = self._usable(name)
        return None if known is None else known.topic

    def undoubted_topic(self, name: str, seen_since: float) -> MetadataResponseTopic | None:
        """Return a topic if its entry is at least this new, and no failure came after it."""
        known = self._usable(name)
        if known is None or known.seen_at < seen_since or known.seen_at <= self._doubted_at:
            return None
        return known.topic

    def partition(self, name: TopicPartition) -> MetadataResponsePartition | None:
        """Return a partition, if its topic is known and has it."""
        known = self._usable(name.topic)
        return None if known is None else known.partitions().get(name.partition)

    def leader(self, name: TopicPartition) -> int | None:
        """Return the leader of a partition; None if it is unknown or there is no leader."""
        row = self.partition(name)
        return None if row is None or row.leader_id == NO_LEADER else row.leader_id

    def learn_leader(
        self, name: TopicPartition, leader_id: int, leader_epoch: int, address: Address | None
    ) -> bool:
        """Apply a broker's hint of the current leader (KIP-951); False if it is not newer."""
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
        """Return the time of the oldest entry of these topics; minus infinity if any is missing."""
        seen = [self._usable(name) for name in topics]
        never = float("-inf")
        return min((never if row is None else row.seen_at for row in seen), default=float("inf"))

    def forget(self, topics: Iterable[str]) -> None:
        """Mark these topics as stale until the next response."""
        for name in topics:
            if (known := self._topics.get(name)) is not None:
                known.is_forgotten = True

    def doubt(self, now: float) -> None:
        """Mark all earlier entries as uncertain, after a failure."""
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
