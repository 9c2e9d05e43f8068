"""Runs a mirror: Spark's query copies records, and an event loop copies topics and groups.

The loop also deletes offset syncs of records that the target has deleted.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.admin.admin_offsets import OffsetAdmin, OffsetSpec
from ottla.clients.errors import RETRIABLE
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.clients.threads.loop_thread import LoopThread
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.pipelines.mirror.clusters import Clusters
from ottla.pipelines.mirror.groups import GroupFollower
from ottla.pipelines.mirror.lag import PartitionLag, lags
from ottla.pipelines.mirror.offset_syncs import (
    MirroredTopic,
    OffsetMaps,
    OffsetSyncsReader,
    Runs,
    runs_note,
)
from ottla.pipelines.mirror.options import MirrorError, MirrorOptions
from ottla.pipelines.mirror.topics import TopicFollower
from ottla.pipelines.topics.committed_topic_reader import CommittedTopicReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FAILURES_MAX: Final = 5
"""How often the query may fail without progress before the mirror gives up."""
TIDYING_SECONDS: Final = 300.0
"""How often offset syncs of deleted records are searched for."""
TRIGGER: Final = "500 milliseconds"
"""The interval of Spark's triggers; with a backlog, Spark does not wait."""
_LOOK_SECONDS: Final = 0.1
_AWAY_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)


async def tidy(
    options: MirrorOptions, clusters: Clusters, copies: list[MirroredTopic], maps: OffsetMaps
) -> int:
    """Delete the runs of deleted records' transactions; return their number.

    Tombstones are written, and compaction does the rest. The last note of a partition stays: it has
    the end of the copy.
    """
    copy_by_name = {
        TopicPartition(copy.name, number): copy
        for copy in copies
        for number in range(copy.partition_count)
    }
    earliest = dict.fromkeys(copy_by_name, OffsetSpec.EARLIEST)
    starts = await OffsetAdmin(clusters.target).find(earliest)
    gone = [
        Runs(copy.ident, name.partition, offset, ())
        for name, copy in copy_by_name.items()
        for offset in maps.of(copy.ident, name.partition).outdated(starts[name].offset)
    ]
    if gone:
        async with AsyncProducer(options.target, acks="all") as producer:
            for note in gone:
                key, _ = runs_note(note)
                await producer.send(clusters.notes_topic, None, key=key, partition=0)
            await producer.flush()
    return len(gone)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a mirror."""

    partitions: list[PartitionLag]
    group_offsets: int
    """The number of committed group offsets so far."""

    @property
    def lag(self) -> int:
        """The number of offsets of the source that are not copied yet."""
        return sum(row.lag for row in self.partitions)

    @property
    def bytes(self) -> int:
        """The copied bytes, by this mirror and its predecessors."""
        return sum(row.bytes for row in self.partitions)

    @property
    def records(self) -> int:
        """The number of copied records, by this mirror and its predecessors."""
        return sum(row.records for row in self.partitions)


class Following:
    """Mirrors topics and groups, in a separate event loop. Use it in `with`."""

    def __init__(self, options: MirrorOptions) -> None:
        self._thread = LoopThread("ottla-mirror")
        self._options = options
        self._clusters: Clusters | None = None
        self._copies: list[MirroredTopic] = []
        self._group_offsets = 0
        self._tidied_at = -TIDYING_SECONDS

    def __enter__(self) -> "Following":
        try:
            self._thread.run(self._prepare())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._clusters is not None:
            self._thread.call_at_end(self._clusters.close)
        self._thread.close()

    def follow(self) -> Progress:
        """Follow topics and groups once, and return the progress."""
        return self._thread.run(self._follow())

    async def _prepare(self) -> None:
        self._clusters = clusters = Clusters(self._options)
        await clusters.meet()
        self._maps = OffsetMaps()
        self._notes = OffsetSyncsReader(
            CommittedTopicReader(clusters.notes_topic), also=self._maps.learn
        )
        self._topics = TopicFollower(self._options, clusters, self._notes)
        self._groups = GroupFollower(self._options, clusters, self._maps)
        await self._topics.prepare()
        self._copies = await self._topics.follow()

    async def _follow(self) -> Progress:
        assert self._clusters is not None
        self._copies = await self._topics.follow()
        known = await self._notes.read_on(self._clusters.target)
        self._group_offsets += await self._groups.follow(self._copies)
        await self._tidy()
        found = await lags(self._clusters.source, self._copies, known)
        return Progress(found, self._group_offsets)

    async def _tidy(self) -> None:
        """Delete old notes, at intervals."""
        assert self._clusters is not None
        if monotonic() >= self._tidied_at + TIDYING_SECONDS:
            self._tidied_at = monotonic()
            await tidy(self._options, self._clusters, self._copies, self._maps)


class Mirror:
    """Runs until it is stopped, or until the present records are copied."""

    def __init__(
        self, spark: "SparkSession", options: MirrorOptions, checkpoint: str | Path
    ) -> None:
        self._spark = spark
        self._options = options.checked()
        self._checkpoint = str(checkpoint)
        self._is_stopping = False
        self._query: Any = None
        self._failures = 0
        self._copied = -1

    def stop(self) -> None:
        """Make `run` return soon; for any thread."""
        self._is_stopping = True

    def run_once(self) -> Progress:
        """Copy the present records, translate the groups' commits, and return."""
        with Following(self._options) as following:
            while (failure := self._copy_once()) is not None:
                self._count(following.follow())  # its error may be more precise
                if _own_words(failure):
                    raise MirrorError(_reason(failure)) from None
                self._count_failure(_reason(failure))
            return following.follow()

    def _copy_once(self) -> Exception | None:
        """Copy the present records; return the reason of a failure, if there is one."""
        query = self._start(is_once=True)
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001 - any failure of Spark
            return error
        finally:
            query.stop()
        return None

    def run(
        self,
        *,
        interval_seconds: float = 5.0,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        """Mirror until `stop` is called; transient failures are retried.

        MirrorError and ApiError for failures that need the operator.
        """
        with Following(self._options) as following:
            self._query = self._start(is_once=False)
            try:
                while not self._is_stopping:
                    self._go_on(following, interval_seconds, on_progress)
            finally:
                self._query.stop()

    def _go_on(
        self, following: Following, seconds: float, on_progress: Callable[[Progress], None]
    ) -> None:
        failure = self._wait(seconds)
        progress = _followed(following)
        if progress is None:
            sleep(min(seconds, _AWAY_SECONDS))  # a cluster is unreachable: copying cannot start
            return
        on_progress(progress)
        self._count(progress)
        if failure is not None:
            self._count_failure(failure)
            self._query.stop()
            self._query = self._start(is_once=False)

    def _count(self, progress: Progress) -> None:
        if progress.records > self._copied:
            self._failures, self._copied = 0, progress.records

    def _count_failure(self, failure: str) -> None:
        """Allow another start; MirrorError after too many failures without progress."""
        self._failures += 1
        if self._failures > FAILURES_MAX:
            raise MirrorError(failure)
        _log.warning("the copying is started again: %s", failure)

    def _start(self, *, is_once: bool) -> Any:
        from ottla.pipelines.mirror.source import FORMAT, OPTIONS, MirrorSource  # noqa: PLC0415

        self._spark.dataSource.register(MirrorSource)
        rows = self._spark.readStream.format(FORMAT).option(OPTIONS, self._options.to_json()).load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", self._checkpoint)
        if is_once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=TRIGGER).start()

    def _wait(self, seconds: float) -> str | None:
        """Wait while the query runs; return the reason if it has failed."""
        until = monotonic() + seconds
        while not self._is_stopping and monotonic() < until:
            if not self._query.isActive:
                return _reason(self._query.exception() or MirrorError("the query has ended"))
            sleep(min(seconds, _LOOK_SECONDS))
        return None


def _followed(following: Following) -> Progress | None:
    """Follow; None if a cluster is unreachable, which may be transient."""
    try:
        return following.follow()
    except ApiError as error:
        if error.code not in RETRIABLE:
            raise
        _log.warning("%s", error)
    except OSError as error:
        _log.warning("%s", error)
    return None


def _reason(error: Exception) -> str:
    """Return our own code's message in Spark's report of a failed task, or its first line."""
    lines = (line.strip() for line in str(error).splitlines())
    return _own_words(error) or next(filter(None, lines), type(error).__name__)


def _own_words(error: Exception) -> str:
    """Return our own code's message; empty, if Spark itself has failed.

    Spark fails on a busy machine: it gives the Python process that plans a query ten seconds to
    start, and has no setting for that.
    """
    marks = ("MirrorError: ", "ApiError: ", "UnreachableError: ", "NoResponseError: ")
    for line in reversed(str(error).splitlines()):
        for mark in marks:
            if mark in line:
                return line.partition(mark)[2].strip()
    return ""
