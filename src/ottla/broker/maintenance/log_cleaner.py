"""Compacts logs in the background: on threads of its own, the dirtiest log first.

A log is compacted when `min.cleanable.dirty.ratio` or `max.compaction.lag.ms` demands it, and only
up to its durable end: so a log that is truncated, or recovered after a crash, never ends before the
recorded compaction point. Each thread takes one log at a time. When no log is dirty enough the
cleaner checks again after `log.cleaner.backoff.ms`.

A log that cannot be compacted is left alone until the broker is started again, and why is logged;
all others go on. A damaged segment is left to the scrubber, and compaction goes on before it. A log
that is deleted, loses segments or goes offline meanwhile is given up. With a full disk it is tried
again later.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Self, TypeVar, TypeVarTuple

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.maintenance.cleaner_throttle import CleanerThrottle, CleaningStoppedError
from ottla.concurrency.yield_budget import YieldBudget
from ottla.environment.clock import Clock
from ottla.model.identifiers import Offset, TopicPartition
from ottla.model.settings.broker_config import DEFAULT_CONFIG, BrokerConfig
from ottla.replication.partition import Partition
from ottla.storage.compaction.compaction_plan import CompactionPlan, first_dirty_offset, plan
from ottla.storage.compaction.log_compaction import (
    AbandonedCompactionError,
    CleanedGroup,
    Compaction,
    prepare,
    replace,
)
from ottla.storage.log.log import PartitionLog
from ottla.storage.log.offline_on_error import is_refusal
from ottla.storage.log_dirs.log_dirs import LogDirs
from ottla.storage.recovery.scrubbing import suspect_by

THREADS_MAX: Final = 64
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """Kafka's `log.cleaner.…`."""

    threads: int = DEFAULT_CONFIG.log_cleaner_threads
    backoff_ms: int = DEFAULT_CONFIG.log_cleaner_backoff_ms
    dedupe_buffer_bytes: int = DEFAULT_CONFIG.log_cleaner_dedupe_buffer_size
    """Shared by all threads."""
    bytes_per_second: float = DEFAULT_CONFIG.log_cleaner_io_max_bytes_per_second

    @classmethod
    def from_config(cls, config: BrokerConfig) -> Self:
        """Return the settings of a configuration."""
        return cls(
            threads=config.log_cleaner_threads,
            backoff_ms=config.log_cleaner_backoff_ms,
            dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
            bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
        )


class LogCleaner:
    """Runs from `start` to `stop`, where the event loop runs."""

    def __init__(
        self,
        partitions: HostedPartitions,
        log_dirs: LogDirs,
        clock: Clock,
        settings: CleanerSettings,
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._clock = clock
        self._pace = CleanerThrottle(clock)
        self._threads: ThreadPoolExecutor | None = None
        self._is_started = False
        self._stopping = asyncio.Event()
        self._workers: list[asyncio.Task[None]] = []
        self._in_progress: set[TopicPartition] = set()
        self._replacing: set[TopicPartition] = set()
        self._uncleanable: dict[TopicPartition, Partition] = {}
        self._put_off: set[TopicPartition] = set()

    def start(self) -> None:
        """Begin; the first look comes after the backoff, when a starting broker has settled."""
        self._is_started = True
        self.apply(self._settings)

    def apply(self, settings: CleanerSettings) -> None:
        """Go by these settings from the next compaction on."""
        self._settings = settings
        if not self._is_started or self._stopping.is_set():
            return
        loop = asyncio.get_running_loop()
        for number in range(len(self._workers), min(settings.threads, THREADS_MAX)):
            self._workers.append(loop.create_task(self._work(number)))

    async def stop(self) -> None:
        """Stop compactions; decided ones are completed, the others are abandoned."""
        self._stopping.set()
        self._pace.stop()
        if self._workers:
            await asyncio.wait(self._workers)
        if self._threads is not None:
            self._threads.shutdown()

    @property
    def uncleanable(self) -> list[TopicPartition]:
        """The logs that could not be compacted, and will not be tried again."""
        return [name for name, known in self._uncleanable.items() if self._is_here(known)]

    @property
    def in_progress(self) -> frozenset[TopicPartition]:
        """The logs that are being compacted right now."""
        return frozenset(self._in_progress)

    def is_replacing(self, partition: Partition) -> bool:
        """Whether segments are being replaced right now: none of them may be deleted."""
        return partition.name in self._replacing

    # -- choosing -------------------------------------------------------------------------------

    async def _work(self, number: int) -> None:
        while not await self._wait_for_stop(self._settings.backoff_ms):
            try:
                if number < self._settings.threads:
                    await self.clean_all()
            except Exception:  # noqa: BLE001 - the thread continues, and retries
                _log.exception("choosing a log to compact failed")

    async def _wait_for_stop(self, wait_ms: int) -> bool:
        """Wait until the cleaner is to stop; False if the time is up first."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    async def clean_all(self) -> bool:
        """Compact log after log until none is worth it; False if none was."""
        self._put_off.clear()
        is_any = False
        while not self._stopping.is_set() and await self.clean_dirtiest():
            is_any = True
        return is_any

    async def clean_dirtiest(self) -> bool:
        """Compact the log that has the most to gain; False if none is worth it."""
        found = await self._dirtiest()
        if found is None:
            return False
        partition, planned = found
        self._in_progress.add(partition.name)
        try:
            await self._clean(partition, planned)
        finally:
            self._in_progress.discard(partition.name)
        return True

    async def _dirtiest(self) -> tuple[Partition, CompactionPlan] | None:
        best: tuple[Partition, CompactionPlan] | None = None
        budget = YieldBudget(self._clock)
        for partition in list(self._partitions):
            planned = self._planned(partition)
            if planned is not None and (best is None or planned.dirty_ratio > best[1].dirty_ratio):
                best = partition, planned
            await budget.yield_if_spent()
        # It may have been taken, deleted or truncated while other tasks ran.
        planned = None if best is None else self._planned(best[0])
        return None if best is None or planned is None else (best[0], planned)

    def _planned(self, partition: Partition) -> CompactionPlan | None:
        log, name = partition.log, partition.name
        if not log.config.is_compacted or not self._may_clean(partition):
            return None
        log_dir = self._log_dirs.dir_of(name)
        if log_dir is None:
            return None
        noted_offset = log_dir.first_dirty_offsets.get(name)
        stable_offset = min(partition.last_stable_offset, log.recovery_point)
        try:
            dirty_offset = first_dirty_offset(log, noted_offset)
            return plan(log, dirty_offset, stable_offset, self._clock.now_ms())
        except Exception as error:  # noqa: BLE001 - an index that cannot be read, a disk that fails
            self._give_up(partition, error)
            return None

    def _may_clean(self, partition: Partition) -> bool:
        name = partition.name
        return (
            not partition.log.is_offline
            and self._is_here(partition)
            and name not in self._in_progress
            and name not in self._put_off
            and self._uncleanable.get(name) is not partition
        )

    def _is_here(self, partition: Partition) -> bool:
        return self._partitions.find(partition.name) is partition

    # -- cleaning -------------------------------------------------------------------------------

    async def _clean(self, partition: Partition, planned: CompactionPlan) -> None:
        began_ms = self._clock.monotonic_ms()
        log, cut_count = partition.log, partition.log.cut_count
        compaction = self._compaction(log, planned)
        try:
            while (group := await self._run(compaction.clean_next)) is not None:
                await self._take_over(partition.name, log, compaction, group)
            if log is not partition.log or log.cut_count != cut_count:
                raise AbandonedCompactionError(f"{log.directory} has changed")  # noqa: TRY301
            await self._note_clean(partition, compaction.end_offset)
        except CleaningStoppedError:
            return
        except AbandonedCompactionError as error:
            _log.info("%s: compaction was given up: %s", partition.name, error)
            self._put_off.add(partition.name)
        except Exception as error:  # noqa: BLE001 - one failing log must not stop the others
            if self._is_here(partition) and log is partition.log:
                self._give_up(partition, error)
        else:
            _log.info(
                "%s: compacted %d to %d in %d ms, %s",
                partition.name,
                planned.first_dirty_offset,
                compaction.end_offset,
                self._clock.monotonic_ms() - began_ms,
                compaction.counts,
            )

    def _compaction(self, log: PartitionLog, planned: CompactionPlan) -> Compaction:
        settings = self._settings
        self._pace.bytes_per_second = settings.bytes_per_second

        def pace(size_bytes: int) -> None:
            if log.is_offline:
                raise AbandonedCompactionError(f"{log.directory} is offline")
            self._pace.wait(size_bytes)

        return Compaction(
            log.files.disk,
            log,
            planned,
            self._clock.now_ms(),
            pace=pace,
            dedupe_buffer_bytes=settings.dedupe_buffer_bytes // max(settings.threads, 1),
        )

    async def _take_over(
        self, name: TopicPartition, log: PartitionLog, compaction: Compaction, group: CleanedGroup
    ) -> None:
        """Put a cleaned segment in its place, with the waiting for the disk on a thread."""
        self._replacing.add(name)
        try:
            prepare(log, group)
            await self._run(compaction.decide, group)
            replace(log, group, self._clock.now_ms())
            await self._run(compaction.make_durable)
        except OSError as error:
            log.take_offline(error)
            raise
        finally:
            self._replacing.discard(name)

    async def _note_clean(self, partition: Partition, end_offset: Offset) -> None:
        log_dir = self._log_dirs.dir_of(partition.name)
        if log_dir is None or not self._is_here(partition) or partition.log.is_offline:
            raise AbandonedCompactionError(f"{partition.name} is gone")
        try:
            await self._run(log_dir.note_clean(partition.name, end_offset))
        except OSError as error:
            log_dir.refuse(error)
            raise

    def _give_up(self, partition: Partition, error: Exception) -> None:
        if isinstance(error, OSError) and is_refusal(error):
            # A full disk is logged once for its log dir, not for each partition and round.
            level = logging.WARNING if partition.log.has_room else logging.DEBUG
            _log.log(level, "%s: compaction is put off: %s", partition.name, error)
            self._put_off.add(partition.name)
            return
        if suspect_by(partition.log, error):  # the next run compacts the part before it
            _log.warning("%s: compaction has met damage: %s", partition.name, error)
            self._put_off.add(partition.name)
            return
        _log.error("%s is not compacted any more: %s", partition.name, error, exc_info=error)
        self._uncleanable[partition.name] = partition

    async def _run(self, work: Callable[[*_Ts], _T], *arguments: *_Ts) -> _T:
        """Run work on the cleaner's own threads: requests wait for the others."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="ottla-cleaner")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)
