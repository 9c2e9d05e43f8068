"""The leaders of the assigned partitions: metadata, refreshed in the background."""

import asyncio
import logging
from collections.abc import Collection
from typing import NamedTuple

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.state.errors import LogTruncationError
from ottla.clients.consumer.state.reset_policy import ResetPolicy
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import (
    NO_REPLICA,
    AssignedPartition,
    Position,
    SubscriptionState,
)
from ottla.clients.errors import RETRIABLE, NoResponseError, UnreachableError, error_code
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID, TopicPartition
from ottla.model.isolation_level import EARLIEST
from ottla.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

_log = logging.getLogger(__name__)


_Rows = tuple[MetadataResponseTopic, dict[int, MetadataResponsePartition]]
"""A topic's metadata, and its partitions by number."""


class Leader(NamedTuple):
    """The leader of a partition, its epoch, and the id of the topic."""

    broker_id: int
    epoch: int
    topic_id: bytes


class Leaders:
    """The cached leaders of the assigned partitions. Runs on the event loop's thread."""

    def __init__(
        self,
        view: ClusterView,
        state: SubscriptionState,
        settings: ConsumerSettings,
        policy: ResetPolicy,
    ) -> None:
        self._view = view
        self._state = state
        self._allow_auto_creation = settings.allow_auto_create_topics
        self._is_reset_allowed = not policy.is_none
        self._rows: dict[str, _Rows] = {}
        self._refreshed_at = 0.0
        self._not_before = 0.0
        self._backoff_ms = view.settings.retry_backoff_ms

    def of(self, name: TopicPartition) -> Leader | None:
        """Return the leader of a partition; None if it must be looked up."""
        topic = self._view.known_topic(name.topic)
        if topic is None:
            return None
        known = self._rows.get(name.topic)
        if known is None or known[0] is not topic:
            known = topic, {row.partition_index: row for row in topic.partitions}
            self._rows[name.topic] = known
        row = known[1].get(name.partition)
        if row is None or row.leader_id < 0:
            return None
        return Leader(row.leader_id, row.leader_epoch, topic.topic_id)

    def due_at(self) -> float | None:
        """Return when metadata is due, on the loop's clock; None without assigned partitions."""
        if not self._state.assigned:
            return None
        if any(self.of(name) is None for name in list(self._state.assigned)):
            return self._not_before
        return max(
            self._refreshed_at + self._view.settings.metadata_max_age_ms / 1000, self._not_before
        )

    async def refresh(self) -> None:
        """Refresh the topics of all assigned partitions; poll raises errors that are final."""
        now = asyncio.get_running_loop().time()
        names = list(self._state.assigned)
        topics = sorted({name.topic for name in names})
        try:
            found = await self._view.refresh(topics, allow_auto_creation=self._allow_auto_creation)
        except (ApiError, UnreachableError, NoResponseError) as error:
            _log.warning("metadata could not be fetched: %s", error)
            self._back_off(now)
            return
        self._refreshed_at = now
        for topic in found:
            code = error_code(topic.error_code)
            if code is not ErrorCode.NONE and code not in RETRIABLE:
                self._fail(topic.name or "", code)
        self._notice_recreated()
        if any(self.of(name) is None for name in names):
            self._back_off(now)
        else:
            self._backoff_ms = self._view.settings.retry_backoff_ms

    def forget(self, names: Collection[TopicPartition]) -> None:
        """Look up these leaders again after a backoff: a broker rejected the cached leader."""
        self._view.forget({name.topic for name in names})

    def _back_off(self, now: float) -> None:
        self._not_before = now + self._backoff_ms / 1000
        self._backoff_ms = min(2 * self._backoff_ms, self._view.settings.retry_backoff_max_ms)

    def _fail(self, topic: str, code: ErrorCode) -> None:
        with self._state.lock:
            for partition in self._state.assigned.values():
                if partition.name.topic == topic:
                    partition.failure = ApiError(code, f"topic {topic!r}")

    def _notice_recreated(self) -> None:
        """Reset the positions in recreated topics: a new topic id means a new log."""
        with self._state.lock:
            for partition in self._state.assigned.values():
                leader = self.of(partition.name)
                if leader is None or leader.topic_id == ZERO_UUID:
                    continue
                was, partition.topic_id = partition.topic_id, leader.topic_id
                if was not in {b"", leader.topic_id} and partition.position is not None:
                    self._start_over(partition, partition.position)

    def _start_over(self, partition: AssignedPartition, position: Position) -> None:
        _log.warning("%s was deleted and made again", partition.name)
        partition.read_replica = NO_REPLICA
        if self._is_reset_allowed:
            partition.lose_position(EARLIEST)  # nothing in the new log has been read yet
        elif position.offset > 0:
            partition.failure = LogTruncationError(partition.name, position.offset, 0)
