"""A client for reading topics as tables, from any thread, over connections that stay open.

Spark reuses its Python processes. A process keeps its metadata and its connections for the next
micro-batch.
"""

import asyncio
import os
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from ottla.clients.admin.admin_offsets import OffsetAdmin
from ottla.clients.admin.per_item_results import in_time
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import ClientSettings
from ottla.clients.errors import NoResponseError, UnreachableError, error_code
from ottla.clients.tables.errors import SourceReadError
from ottla.clients.threads.loop_thread import LoopThread
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.runtime.randomness import SystemRandomness
from ottla.wire.messages.metadata import MetadataResponseTopic

_RECORD_BYTES: Final = 1_000
"""The assumed size of a record before the first fetch."""
_LEAST_BYTES: Final = 64 << 10
_ROOM: Final = 1.1

NEWS_SECONDS_MAX: Final = 1.0
"""How long to retry for a missing topic: brokers learn of a new topic one by one."""
_MISSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
T = TypeVar("T")


class RecordSizes:
    """The bytes per offset in the last fetch of each topic."""

    def __init__(self) -> None:
        self._size_by_topic: dict[str, float] = {}

    def learn(self, topic: str, size_bytes: int, offset_count: int) -> None:
        """Remember the average size of the fetched offsets."""
        self._size_by_topic[topic] = size_bytes / max(offset_count, 1)

    def bytes_for(self, topic: str, offset_count: int, bytes_max: int) -> int:
        """Return the bytes to fetch for a number of offsets, with some margin."""
        size = self._size_by_topic.get(topic, _RECORD_BYTES)
        return int(min(_ROOM * size * offset_count + _LEAST_BYTES, bytes_max))


@dataclass(frozen=True, slots=True)
class TopicShape:
    """A topic's id and its partitions."""

    topic_id: bytes
    partitions: tuple[TopicPartition, ...]


class TopicCluster:
    """Blocking requests to the cluster. A request that fails is a SourceReadError."""

    def __init__(self, settings: ClientSettings) -> None:
        self.thread = LoopThread("ottla-tables")
        self.view = ClusterView(settings, randomness=SystemRandomness())
        self.thread.call_at_end(self.view.close)
        self.sizes = RecordSizes()
        self._offsets = OffsetAdmin(self.view)
        self._servers = ", ".join(map(str, settings.bootstrap_servers))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self.thread.close()

    def topics(self, names: Collection[str], gone: Collection[str] = ()) -> dict[str, TopicShape]:
        """Return the shape of each of these topics that exists; do not retry for the `gone` ones.

        Another missing topic may be new and not yet known to the broker: the request is repeated.
        """
        expected = set(names) - set(gone)

        async def ask() -> dict[str, TopicShape]:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + NEWS_SECONDS_MAX
            while True:
                found = _shapes(await self.view.refresh(names))
                if expected <= found.keys() or loop.time() > deadline:
                    return found
                await pause(self.view.settings.retry_backoff_ms)

        return self._wait(lambda: in_time(self.view, ask), "topics")

    def topics_like(self, pattern: str) -> dict[str, TopicShape]:
        """Return the shape of each topic with a fully matching name, without internal topics."""
        fits = re.compile(pattern).fullmatch

        async def ask() -> dict[str, TopicShape]:
            return _shapes(
                topic
                for topic in await self.view.refresh(None)
                if not topic.is_internal and fits(topic.name or "")
            )

        return self._wait(lambda: in_time(self.view, ask), "topics")

    def find(
        self, time_by_partition: Mapping[TopicPartition, int], *, is_committed_only: bool
    ) -> dict[TopicPartition, int]:
        """Return the first offsets at or after times; -1 stands for the end, -2 for the start.

        The offset is -1 if the partition has no record at or after the time.
        """
        found = self._wait(
            lambda: self._offsets.find(time_by_partition, is_committed_only=is_committed_only),
            "offsets",
        )
        return {name: row.offset for name, row in found.items()}

    def commit(self, group_id: str, offset_by_partition: Mapping[TopicPartition, int]) -> None:
        """Commit these offsets for a group."""
        from ottla.clients.admin.admin_groups import GroupAdmin  # noqa: PLC0415 - not needed to plan

        groups = GroupAdmin(self.view)
        self._wait(lambda: groups.commit(group_id, offset_by_partition), f"a commit for {group_id}")

    def _wait(self, call: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        try:
            return self.thread.run(call())
        except (ApiError, UnreachableError, NoResponseError) as error:
            raise SourceReadError(f"{what}: {self._servers} cannot tell: {error}") from error


_kept: Final[dict[tuple[int, ClientSettings], TopicCluster]] = {}


def kept_cluster(settings: ClientSettings) -> TopicCluster:
    """Return this process's client of a cluster, which stays open until the process ends."""
    place = os.getpid(), settings  # a forked process has none of its parent's threads
    if place not in _kept:
        _kept[place] = TopicCluster(settings)
    return _kept[place]


def _shapes(topics: Iterable[MetadataResponseTopic]) -> dict[str, TopicShape]:
    found = {}
    for topic in topics:
        code = error_code(topic.error_code)
        name = topic.name or ""
        if code is ErrorCode.NONE:
            numbers = sorted(row.partition_index for row in topic.partitions)
            found[name] = TopicShape(
                topic.topic_id, tuple(TopicPartition(name, number) for number in numbers)
            )
        elif code not in _MISSING:
            raise ApiError(code, f"topic {name!r}")
    return found
