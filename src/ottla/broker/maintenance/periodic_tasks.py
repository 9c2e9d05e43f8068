"""A broker's periodic work: retention, flushes, checkpoints.

Each kind of work has its interval. Work over many partitions yields to the loop every few
milliseconds. Offline logs are skipped; their failure was logged when it happened.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Final

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.log_flusher import LogFlusher, has_unflushed_segment
from ottla.concurrency.yield_budget import YieldBudget
from ottla.environment.clock import Clock
from ottla.model.api_error import ApiError
from ottla.replication.partition import Partition
from ottla.storage.log.retention import apply_retention
from ottla.storage.log_dirs.log_dirs import LogDirs
from ottla.storage.producers.producer_state import PRODUCER_ID_EXPIRATION_MS

FLUSH_CHECK_MS: Final = 1_000
_log = logging.getLogger(__name__)


class PeriodicTasks:
    """Runs until it is stopped."""

    def __init__(
        self,
        partitions: HostedPartitions,
        log_dirs: LogDirs,
        flushing: LogFlusher,
        clock: Clock,
        threads: Executor,
        is_busy: Callable[[Partition], bool] = lambda _: False,
        producer_expiration_ms: Callable[[], int] = lambda: PRODUCER_ID_EXPIRATION_MS,
    ) -> None:
        """`is_busy` returns whether a partition's segments must not be deleted right now."""
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._flushing = flushing
        self._clock = clock
        self._threads = threads
        self._is_busy = is_busy
        self._producer_expiration_ms = producer_expiration_ms
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._is_stopped = False

    def start(self, *, retention_ms: int, checkpoint_ms: int) -> None:
        """Begin; every kind of work is due for the first time after its interval."""
        self._later("retention", retention_ms, self.retain)
        self._later("flush", FLUSH_CHECK_MS, self.flush)
        self._later("checkpoint", checkpoint_ms, self.checkpoint)

    async def stop(self) -> None:
        """Begin no more work, and wait for the running work."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        if self._running:
            await asyncio.wait(self._running.values())

    async def retain(self) -> None:
        """Delete segments by retention, and remove the files of deleted ones."""
        await self._over_partitions(self._retain)

    def _retain(self, partition: Partition) -> None:
        if self._is_busy(partition):
            return
        now_ms = self._clock.now_ms()
        deleted = apply_retention(partition.log, now_ms, partition.high_watermark)
        if deleted:
            _log.info("%s: %d segments are past their retention", partition.name, deleted)
        partition.log.remove_deleted(now_ms)
        partition.log.producers.expire(now_ms, self._producer_expiration_ms())

    async def flush(self) -> None:
        """Flush the logs with a passed `flush.ms`, and the closed segments of all others."""
        now_ms = self._clock.now_ms()
        # One by one: the threads are there for others, too.
        for partition in [one for one in self._partitions if one.log.needs_flush(now_ms)]:
            await self._flushing.flush_where_due([partition])
        unflushed = [one for one in self._partitions if has_unflushed_segment(one)]
        await self._flushing.flush_closed(unflushed)

    async def checkpoint(self) -> None:
        """Write down up to where logs are durable, so that a crash costs less reading."""
        loop = asyncio.get_running_loop()
        for log_dir in self._log_dirs.online:
            try:
                for write in log_dir.begin_checkpoint():
                    await loop.run_in_executor(self._threads, write)
            except OSError as error:
                log_dir.refuse(error)

    async def _over_partitions(self, work: Callable[[Partition], None]) -> None:
        budget = YieldBudget(self._clock)
        for partition in list(self._partitions):
            try:
                work(partition)
            except ApiError as error:
                _log.debug("%s is passed over: %s", partition.name, error)
            await budget.yield_if_spent()

    def every(self, name: str, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        """Do something again and again, with this time between the end and the next beginning."""
        self._later(name, interval_ms, work)

    def _later(self, name: str, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()

        def begin() -> None:
            self._running[name] = loop.create_task(run())

        async def run() -> None:
            try:
                await work()
            except Exception:  # noqa: BLE001 - the broker continues, and the next round retries
                _log.exception("%s failed", name)
            finally:
                del self._running[name]
                if not self._is_stopped:
                    self._timers[name] = loop.call_later(interval_ms / 1000, begin)

        self._timers[name] = loop.call_later(interval_ms / 1000, begin)
