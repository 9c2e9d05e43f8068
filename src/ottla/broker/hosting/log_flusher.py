"""Flushes logs on threads: one fsync of a log serves all appends before it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Executor
from contextlib import asynccontextmanager

from ottla.environment.clock import Clock
from ottla.model.api_error import ApiError
from ottla.model.identifiers import Offset
from ottla.replication.partition import Partition

_log = logging.getLogger(__name__)


class LogFlusher:
    """Makes logs durable, for waiting requests and in the background."""

    def __init__(self, threads: Executor, clock: Clock) -> None:
        self._threads = threads
        self._clock = clock
        self._running: dict[int, asyncio.Future[None]] = {}

    async def flush_where_due(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Wait until the logs with a due flush are durable up to their present ends.

        Returns the partitions with a failed flush.
        """
        now_ms = self._clock.now_ms()
        due = [partition for partition in partitions if partition.log.needs_flush(now_ms)]
        if not due:
            return due
        ends = [partition.log.end_offset for partition in due]
        flushes = list(map(self._flush_to, due, ends))
        if len(flushes) == 1:  # needs no task of its own
            await flushes[0]
        else:
            await asyncio.gather(*flushes)
        return [p for p, end in zip(due, ends, strict=True) if p.log.recovery_point < end]

    async def flush_closed(self, partitions: Iterable[Partition]) -> None:
        """Make the segments durable that these logs write no more, one log after the other."""
        for partition in partitions:
            if has_unflushed_segment(partition):
                # If a running flush does not go that far, the next round will.
                running = self._running.get(id(partition))
                await asyncio.shield(running or self._begin(partition, is_closed_only=True))

    @asynccontextmanager
    async def held(self, partition: Partition) -> AsyncIterator[None]:
        """Prevent flushes of a partition until the block ends: they wait, and check again.

        Its recovery point does not move, and its log may be replaced.
        """
        while (running := self._running.get(id(partition))) is not None:
            await asyncio.shield(running)
        held = self._running[id(partition)] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._running[id(partition)]
            held.set_result(None)

    async def _flush_to(self, partition: Partition, end_offset: Offset) -> None:
        """Join the running flush; if it began too early, begin another flush.

        A flush that was begun for this offset and did not reach it has failed.
        """
        is_own = False
        while partition.log.recovery_point < end_offset and not is_own:
            running = self._running.get(id(partition))
            is_own = running is None
            await asyncio.shield(running or self._begin(partition))

    def _begin(self, partition: Partition, *, is_closed_only: bool = False) -> asyncio.Task[None]:
        running = asyncio.get_running_loop().create_task(self._flush(partition, is_closed_only))
        self._running[id(partition)] = running
        return running

    async def _flush(self, partition: Partition, is_closed_only: bool) -> None:
        loop = asyncio.get_running_loop()
        try:
            flush = partition.log.begin_flush(is_closed_only=is_closed_only)
            await loop.run_in_executor(self._threads, flush.run)
            partition.log.end_flush(flush, self._clock.now_ms())
        except ApiError as error:
            _log.debug("%s is not flushed: %s", partition.name, error)
        finally:
            del self._running[id(partition)]


def has_unflushed_segment(partition: Partition) -> bool:
    """Return whether a log has written a segment to its end that is not durable yet."""
    log = partition.log
    return log.recovery_point < log.segments.closed_end_offset and not log.is_offline
