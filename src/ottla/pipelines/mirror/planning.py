"""Plans the offsets of a micro-batch: about the configured number of bytes of each partition."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ottla.clients.admin.admin_cluster import ClusterAdmin, LogDirDescription
from ottla.clients.admin.admin_offsets import OffsetAdmin, OffsetSpec
from ottla.clients.admin.per_item_results import ItemsFailedError
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.pipelines.mirror.clusters import PATIENCE_SECONDS, Clusters
from ottla.pipelines.mirror.copying import CopyRange
from ottla.pipelines.mirror.offset_syncs import MirroredTopic, OffsetSyncsReader
from ottla.pipelines.mirror.options import MirrorOptions
from ottla.pipelines.topics.committed_topic_reader import CommittedTopicReader

SIZES_SECONDS: Final = 30.0
"""How long the sizes of partitions are cached."""
WEIGHING_SECONDS_MAX: Final = 5.0
"""How long a plan waits for sizes, which are optional."""
LEADERLESS_MS_MAX: Final = 5_000
"""How long a plan waits for partitions without a leader, if another plan will follow."""
OFFSETS_WITHOUT_SIZE: Final = 1_000_000
"""The number of offsets per plan where brokers report no sizes."""
GONE_SECONDS: Final = 5.0
"""How long to retry for a planned copy that is missing: a broker may learn of it later."""
_PAUSE_MS: Final = 500
Ends = dict[str, dict[str, int]]
"""Offsets of the source by copy, and by partition, as text because of JSON."""


class Planner:
    """Queries both clusters, in one event loop; connects at first use."""

    def __init__(self, options: MirrorOptions) -> None:
        self.latest: Ends | None = None
        self._options = options
        self._met: tuple[Clusters, OffsetSyncsReader] | None = None
        self._begins: dict[TopicPartition, int] = {}
        """The last known log starts on the source."""
        self._bytes_per_offset: dict[TopicPartition, float] = {}
        self._sizes_at = -SIZES_SECONDS

    async def notes_topic(self) -> str:
        """Return the topic of the notes."""
        return (await self._meet())[0].notes_topic

    async def last_ends(self) -> Ends:
        """Return the present ends of the records to copy."""
        return await self._all_ends(await self._copies())

    async def ends(self, start: Mapping[str, Any], last: Ends | None) -> Ends:
        """Return the end of the next micro-batch from a start, at most `last`.

        Entries of the start stay, also for deleted copies.
        """
        copies = await self._copies()
        stable = last if last is not None else await self._ends_of_the_led(copies)
        await self._weigh([name for copy in copies for name in _led_partitions(copy, stable)])
        ends: Ends = {key: dict(offsets) for key, offsets in start.items()}
        for copy in copies:
            planned = ends.setdefault(_key(copy), {})
            for number, end in stable.get(_key(copy), {}).items():
                limit = self._limit(copy, int(number), planned.get(number, 0))
                planned[number] = max(min(end, limit), planned.get(number, 0))
        return ends

    async def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[CopyRange]:
        """Return the ranges of a micro-batch, without deleted copies."""
        ranges = []
        for copy in await self._planned_copies(start, end):
            before = start.get(_key(copy), {})
            for number, end_offset in end.get(_key(copy), {}).items():
                if end_offset > before.get(number, 0):
                    ranges.append(_range(copy, int(number), end_offset))
        return ranges

    async def _planned_copies(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> list[MirroredTopic]:
        """Return the copies; a planned copy that is missing here will not come again."""
        planned = {key for key, offsets in end.items() if _is_more(start.get(key, {}), offsets)}
        until = asyncio.get_running_loop().time() + GONE_SECONDS
        copies = await self._copies()
        while planned - set(map(_key, copies)) and asyncio.get_running_loop().time() < until:
            await pause(_PAUSE_MS)
            copies = await self._copies()
        return copies

    async def _ends_of_the_led(self, copies: Sequence[MirroredTopic]) -> Ends:
        """Return the ends of partitions that have a leader; wait only if none has."""
        try:
            return await self._all_ends(copies, LEADERLESS_MS_MAX)
        except (ApiError, OSError):
            return await self._all_ends(copies)

    async def _all_ends(
        self, copies: Sequence[MirroredTopic], timeout_ms: int | None = None
    ) -> Ends:
        found = await self._stable_ends(copies, timeout_ms)
        ends: Ends = {_key(copy): {} for copy in copies}
        for copy in copies:
            for name in _partitions(copy):
                if name in found:
                    ends[_key(copy)][str(name.partition)] = found[name]
        self.latest = ends
        return ends

    async def _meet(self) -> tuple[Clusters, OffsetSyncsReader]:
        if self._met is None:
            clusters = Clusters(self._options, PATIENCE_SECONDS)
            await clusters.meet()
            self._met = clusters, OffsetSyncsReader(CommittedTopicReader(clusters.notes_topic))
        return self._met

    async def _copies(self) -> list[MirroredTopic]:
        """Return the copies that this mirror writes, from the driver's notes."""
        clusters, notes = await self._meet()
        known = await notes.read_on(clusters.target)
        return await clusters.alive(filter(self._options.is_fed, known.topics.values()))

    async def _stable_ends(
        self, copies: Sequence[MirroredTopic], timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        names = [name for copy in copies for name in _partitions(copy)]
        admin = OffsetAdmin((await self._meet())[0].source)
        wanted = dict.fromkeys(names, OffsetSpec.LATEST)
        try:
            found = await admin.find(wanted, is_committed_only=True, timeout_ms=timeout_ms)
        except ItemsFailedError as error:
            if not error.done:
                raise
            found = error.done  # the others wait until their brokers are back
        return {name: row.offset for name, row in found.items()}

    def _limit(self, copy: MirroredTopic, number: int, planned: int) -> int:
        """Return the end of a partition's next range, from its start."""
        assert self._met is not None
        name = TopicPartition(copy.source_name, number)
        noted = self._met[1].known.positions.get((copy.ident, number))
        begin = max(planned, self._begins.get(name, 0), 0 if noted is None else noted.offset)
        each = self._bytes_per_offset.get(name)
        if each is None:
            return begin + OFFSETS_WITHOUT_SIZE
        return begin + max(int(self._options.range_bytes / each), 1)

    async def _weigh(self, names: Sequence[TopicPartition]) -> None:
        """Measure the average record size: a partition's size by its number of offsets."""
        now = asyncio.get_running_loop().time()
        if now - self._sizes_at < SIZES_SECONDS:
            return
        self._sizes_at = now
        view = (await self._meet())[0].source
        try:
            async with asyncio.timeout(WEIGHING_SECONDS_MAX):
                ends = await OffsetAdmin(view).ends(names)
                self._begins = {name: start for name, (start, _) in ends.items()}
                sizes = _sizes(await ClusterAdmin(view).log_dirs(_leaders(view, names)))
        except (ApiError, OSError):
            return  # without the permission to request sizes, the default limits apply
        for name, (start, end) in ends.items():
            if end > start and sizes.get(name):
                self._bytes_per_offset[name] = sizes[name] / (end - start)


def _key(copy: MirroredTopic) -> str:
    """Return a copy's key in Spark's offsets: new for a topic that is created again."""
    return f"{copy.name}:{copy.ident}"


def _is_more(before: Mapping[str, int], offsets: Mapping[str, int]) -> bool:
    return any(end > before.get(number, 0) for number, end in offsets.items())


def _partitions(copy: MirroredTopic) -> list[TopicPartition]:
    """Return the partitions of the source."""
    return [TopicPartition(copy.source_name, number) for number in range(copy.partition_count)]


def _led_partitions(copy: MirroredTopic, ends: Ends) -> list[TopicPartition]:
    """Return the partitions of the source that are known to have a leader."""
    return [TopicPartition(copy.source_name, int(one)) for one in ends.get(_key(copy), {})]


def _range(copy: MirroredTopic, number: int, end_offset: int) -> CopyRange:
    return CopyRange(copy.source_name, copy.source_id, copy.name, copy.ident, number, end_offset)


def _leaders(view: ClusterView, names: Iterable[TopicPartition]) -> set[int]:
    found = {view.known_leader(name) for name in names}
    return {leader_id for leader_id in found if leader_id is not None}


def _sizes(folders: Mapping[int, Iterable[LogDirDescription]]) -> dict[TopicPartition, int]:
    sizes: dict[TopicPartition, int] = {}
    for rows in folders.values():
        for row in rows:
            sizes |= row.size_by_partition
    return sizes


def ranges_of(ranges: Sequence[CopyRange], count: int) -> Iterator[tuple[CopyRange, ...]]:
    """Distribute ranges over `count` tasks, or fewer if there are fewer ranges."""
    for number in range(min(count, len(ranges))):
        yield tuple(ranges[number::count])
