"""Looks up the leaders of partitions with pending records, and new partitions."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from ottla.clients.cluster.cluster_client import ClusterView, keep_fresh
from ottla.clients.errors import error_code
from ottla.clients.producer.batching.accumulator import Accumulator
from ottla.clients.producer.state.settings import ProducerSettings
from ottla.clients.threads.loop_thread import create_background_task
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.metadata import MetadataResponseTopic

NO_LEADER: Final = -1


class Leaders:
    """Finds leaders in the cached metadata, or requests metadata until a leader is found.

    Topics in use are refreshed before their metadata expires, to find new partitions. A topic
    that was not used for metadata.max.idle.ms is refreshed at its next use.
    """

    def __init__(
        self,
        view: ClusterView,
        accumulator: Accumulator,
        settings: ProducerSettings,
        on_news: Callable[[], None],
    ) -> None:
        self._view = view
        self._accumulator = accumulator
        self._settings = settings
        self._on_news = on_news
        self._loop = asyncio.get_running_loop()
        self._used_at: dict[str, float] = {}
        self._seen: dict[str, MetadataResponseTopic] = {}
        self._wanted: set[str] = set()
        self._asking: asyncio.Task[None] | None = None
        self.last_failure: Exception | None = None
        self._refreshing = create_background_task(keep_fresh(view, self._in_use, self.learn))

    def leader_of(self, name: TopicPartition) -> int:
        """Return the leader's broker id; if it is unknown, return -1 and start a lookup."""
        self._used_at[name.topic] = self._loop.time()
        leader_id = self._view.known_leader(name)
        if leader_id is not None:
            return leader_id
        self._wanted.add(name.topic)
        if self._asking is None or self._asking.done():
            self._asking = create_background_task(self._ask())
        return NO_LEADER

    def epoch_of(self, name: TopicPartition) -> int:
        """Return the leader epoch, -1 if it is unknown."""
        row = self._view.known_partition(name)
        return -1 if row is None else row.leader_epoch

    def led_partitions(self, topic: str) -> list[int]:
        """Return the partitions with a leader in the last metadata."""
        known = self._view.known_topic(topic) or self._seen.get(topic)
        rows = [] if known is None else known.partitions
        return [row.partition_index for row in rows if row.leader_id >= 0]

    def learn(self, rows: Iterable[MetadataResponseTopic]) -> None:
        """Adopt new partition counts. A lower count is adopted only if the topic was recreated.

        Otherwise it comes from a broker with outdated metadata.
        """
        for row in rows:
            if row.name is not None and row.error_code == ErrorCode.NONE:
                count = len(row.partitions)
                if self._seen.get(row.name, row).topic_id == row.topic_id:
                    count = max(count, self._accumulator.partition_count(row.name))
                self._seen[row.name] = row
                self._accumulator.set_partition_count(row.name, count)

    def close(self) -> None:
        """Stop the lookup."""
        self._refreshing.cancel()
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> None:
        """Request metadata while partitions need a leader; `leader_of` registers them again."""
        backoff_ms = self._view.settings.retry_backoff_ms
        while self._wanted:
            topics = sorted(self._wanted)
            self._wanted.clear()
            await self._ask_once(topics)
            self._on_news()
            if self._wanted:
                await pause(backoff_ms)
                backoff_ms = min(2 * backoff_ms, self._view.settings.retry_backoff_max_ms)

    async def _ask_once(self, topics: list[str]) -> None:
        try:
            rows = await self._view.refresh(
                topics, allow_auto_creation=self._settings.allow_auto_create_topics
            )
        except (OSError, ApiError) as error:
            self.last_failure = error
            return
        self.learn(rows)
        for row in rows:
            if row.error_code != ErrorCode.NONE:
                self.last_failure = ApiError(error_code(row.error_code), f"topic {row.name!r}")

    def _in_use(self) -> list[str]:
        """Return the recently used topics, and forget the others."""
        since = self._loop.time() - self._settings.metadata_max_idle_ms / 1000
        idle = [topic for topic, used_at in self._used_at.items() if used_at < since]
        for topic in idle:
            del self._used_at[topic]
        self._view.forget(idle)
        return list(self._used_at)
