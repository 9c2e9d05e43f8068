"""Spark's side of a mirror: a stream with the source's offsets, and tasks that copy.

Spark plans, repeats and checkpoints ranges of offsets. A task fetches and produces by itself; only
one row per partition, with its new position, goes through Spark.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ottla.clients.threads.loop_thread import LoopThread
from ottla.pipelines.mirror.clusters import PATIENCE_SECONDS, Clusters
from ottla.pipelines.mirror.copying import CopyRange, PartitionCopier
from ottla.pipelines.mirror.offset_syncs import OffsetSyncsReader, Position
from ottla.pipelines.mirror.options import MirrorOptions
from ottla.pipelines.mirror.planning import Ends, Planner, ranges_of
from ottla.pipelines.topics.committed_topic_reader import CommittedTopicReader
from ottla.runtime import event_loop

FORMAT: Final = "ottla-mirror"
OPTIONS: Final = "mirror"
SCHEMA: Final = "topic string, partition int, offset bigint, records bigint, bytes bigint"
PARTITIONS_AT_ONCE_MAX: Final = 8
"""The number of partitions that a task copies concurrently."""
_notes_by_place: Final[dict[tuple[str, str], OffsetSyncsReader]] = {}
"""This process' readers of offset syncs: Spark reuses its processes."""


@dataclass
class CopyTask(InputPartition):
    """The range of one task."""

    options: str
    notes_topic: str
    ranges: tuple[CopyRange, ...]


class MirrorSource(DataSource):
    """The format `ottla-mirror`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of the rows with the position of each partition."""
        return SCHEMA

    def streamReader(self, schema: Any) -> "MirrorReader":  # noqa: ARG002, N802 - Spark's
        """Return the reader, which plans and copies."""
        return MirrorReader(self.options[OPTIONS])


class MirrorReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process, and copies in others."""

    def __init__(self, options: str) -> None:
        self._options = options
        self._planning: tuple[LoopThread, Planner] | None = None
        self._last: Ends | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return no offsets: a partition starts at its noted position, or at its log start."""
        return {}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Ends:  # noqa: ARG002, N802
        """Return the end of the next micro-batch."""
        thread, planner = self._planner()
        return thread.run(planner.ends(start, self._last))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit the stream to the present records."""
        thread, planner = self._planner()
        self._last = thread.run(planner.last_ends())

    def reportLatestOffset(self) -> Ends | None:  # noqa: N802
        """Return the present ends, for Spark's progress."""
        return None if self._planning is None else self._planning[1].latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[CopyTask]:
        """Split a micro-batch into tasks."""
        thread, planner = self._planner()
        ranges = thread.run(planner.ranges(start, end))
        notes_topic = thread.run(planner.notes_topic())
        count = MirrorOptions.from_json(self._options).task_count
        return [CopyTask(self._options, notes_topic, part) for part in ranges_of(ranges, count)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Copy, in a task; then yield the new positions."""
        assert isinstance(partition, CopyTask)
        reached = event_loop.run(copy_ranges(partition))
        for wanted, position in zip(partition.ranges, reached, strict=True):
            yield (
                wanted.target_topic,
                wanted.partition,
                position.offset,
                position.records,
                position.bytes,
            )

    def _planner(self) -> tuple[LoopThread, Planner]:
        if self._planning is None:
            planner = Planner(MirrorOptions.from_json(self._options))
            self._planning = LoopThread("ottla-mirror"), planner
        return self._planning

    def __getstate__(self) -> Mapping[str, Any]:
        return {"_options": self._options, "_planning": None, "_last": None}


async def copy_ranges(task: CopyTask) -> list[Position]:
    """Copy the ranges of a task concurrently; a failure is raised when all have ended."""
    options = MirrorOptions.from_json(task.options)
    place = options.target["bootstrap.servers"], task.notes_topic
    notes = _notes_by_place.setdefault(
        place, OffsetSyncsReader(CommittedTopicReader(task.notes_topic))
    )
    turn, room = asyncio.Lock(), asyncio.Semaphore(PARTITIONS_AT_ONCE_MAX)
    async with Clusters(options, PATIENCE_SECONDS) as clusters:

        async def copy(wanted: CopyRange) -> Position:
            async with room:
                copier = PartitionCopier(clusters.source, clusters.target, wanted, notes, turn)
                return await copier.copy()

        outcomes = await asyncio.gather(*map(copy, task.ranges), return_exceptions=True)
    reached = [outcome for outcome in outcomes if isinstance(outcome, Position)]
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return reached
