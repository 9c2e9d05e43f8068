"""Flushes logs on threads: the fsync of one log serves everyone who has appended to it by then."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import Executor

from ottla.environment.clock import Clock
from ottla.model.api_error import ApiError
from ottla.replication.partition import Partition


class Flushing:
    """Makes logs durable, for those who have to wait for it and in the background."""

    def __init__(self, threads: Executor, clock: Clock) -> None:
        self._threads = threads
        self._clock = clock
        self._running: dict[int, asyncio.Task[None]] = {}

    async def flush_where_due(self, partitions: Iterable[Partition]) -> None:
        """Return when the logs whose settings ask for it are durable up to where they are now."""
        now_ms = self._clock.now_ms()
        due = [partition for partition in partitions if partition.log.needs_flush(now_ms)]
        for partition in due:
            await self._flush_to(partition, partition.log.end_offset)

    async def _flush_to(self, partition: Partition, end_offset: int) -> None:
        """Join the flush that is running; if it began too early, begin the next one."""
        while partition.log.recovery_point < end_offset and not partition.log.is_offline:
            running = self._running.get(id(partition))
            if running is None:
                running = asyncio.ensure_future(self._flush(partition))
                self._running[id(partition)] = running
            await asyncio.shield(running)

    async def _flush(self, partition: Partition) -> None:
        loop = asyncio.get_running_loop()
        try:
            flush = partition.log.begin_flush()
            await loop.run_in_executor(self._threads, flush.run)
            partition.log.end_flush(flush, self._clock.now_ms())
        except ApiError:
            return  # the log is offline now, and says so to whoever asks it next
        finally:
            del self._running[id(partition)]
