"""Creates and deletes the directories of partitions; blocking work runs on threads.

Hundreds of partitions do not block the loop: a thread creates a few, the loop adopts them, and so
on.
"""

import asyncio
import logging
import posixpath
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Event
from typing import Final

from ottla.concurrency.yield_budget import YieldBudget
from ottla.environment.clock import Clock
from ottla.environment.randomness import Randomness
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.storage.log.log import PartitionLog
from ottla.storage.log_dirs.bulk_creation import MadeLog, NewLog, PlacedLog, make_logs, place_logs
from ottla.storage.log_dirs.log_dir import ConfigOf, IsStray, LogDir
from ottla.storage.log_dirs.log_dir_copy import finish_moves
from ottla.storage.log_dirs.log_dirs import LogDirs

THREADS_MAX: Final = 16
"""Threads that make logs at the same time: the filesystem lets them wait together."""
MADE_AT_ONCE: Final = 16
"""Logs made by one job of a thread: their names become durable together."""
_log = logging.getLogger(__name__)

OnMade = Callable[[NewLog, PartitionLog | ApiError], None]
"""Told of each log that was wanted, on the loop: here it is, or why it is not."""


class _OpeningCancelledError(Exception):
    """The broker is not to start any more."""


class PartitionLogDirs:
    """The log dirs, for creating and deleting partitions. Belongs to the loop."""

    def __init__(
        self, log_dirs: LogDirs, threads: Executor, clock: Clock, randomness: Randomness
    ) -> None:
        self.log_dirs = log_dirs
        self._threads = threads
        self._clock = clock
        self._randomness = randomness
        self._removing: set[asyncio.Task[None]] = set()
        self.by_path = {posixpath.abspath(log_dir.path): log_dir for log_dir in log_dirs.dirs}
        """The log dirs by their paths in the protocol."""

    @property
    def are_all_online(self) -> bool:
        """Whether all log dirs are readable."""
        return all(log_dir.is_online for log_dir in self.log_dirs.dirs)

    async def open(self, config_of: ConfigOf, is_stray: IsStray) -> None:
        """Open every log, and complete operations that a crash has interrupted.

        Recovery may take long, so a thread does it, and calls both functions. If this is cancelled,
        it ends when the thread has finished its current log.
        """
        is_cancelled = Event()

        def is_stray_here(partition: TopicPartition, topic_id: bytes | None) -> bool:
            if is_cancelled.is_set():
                raise _OpeningCancelledError
            return is_stray(partition, topic_id)

        loop = asyncio.get_running_loop()
        opening = loop.run_in_executor(self._threads, self._open, config_of, is_stray_here)
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            is_cancelled.set()
            await asyncio.wait([opening])
            opening.exception()
            raise

    def _open(self, config_of: ConfigOf, is_stray: IsStray) -> None:
        self.log_dirs.open(config_of, self._clock.now_ms(), is_stray)
        finish_moves(self.log_dirs.dirs, self._randomness.uuid())
        for log_dir in self.log_dirs.dirs:
            for note in log_dir.notes:
                _log.warning("%s", note)
            if log_dir.failure is not None:
                _log.error("%s is offline: %s", log_dir.path, log_dir.failure)

    def hosted(self) -> list[tuple[TopicPartition, bytes | None]]:
        """Return the partitions with a log or a future replica here, and their topics' ids."""
        opened = [
            (partition, one.topic_id)
            for log_dir in self.log_dirs.dirs
            for partition, one in [*log_dir.hosted.items(), *log_dir.futures.items()]
        ]
        return [*opened, *self.unopened().items()]

    def unopened(self) -> dict[TopicPartition, bytes | None]:
        """Return the topic ids of logs that a full disk did not let us open."""
        return {
            partition: noted.topic_id
            for log_dir in self.log_dirs.dirs
            for partition, noted in log_dir.unopened.items()
        }

    def opened(self, partition: TopicPartition) -> PartitionLog | None:
        """Return an opened log, if there is one.

        ApiError KAFKA_STORAGE_ERROR if there may be one on a disk that cannot be read now.
        """
        log = self.log_dirs.log_of(partition)
        if log is not None:
            return log
        if not self.are_all_online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "a log directory is offline")
        if self._unopened_in(partition) is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "its log could not be opened")
        return None

    async def make(self, wanted: Sequence[NewLog], on_made: OnMade) -> None:
        """Create logs, or open logs that could not be opened before."""
        missing: list[NewLog] = []
        for log in wanted:
            log_dir = await self._unopened_for(log)
            if log_dir is None:
                missing.append(log)
            else:
                on_made(log, await self._reopen(log, log_dir))
        placed = place_logs(self.log_dirs.dirs, missing)
        parts = [
            placed[start : start + MADE_AT_ONCE] for start in range(0, len(placed), MADE_AT_ONCE)
        ]
        if len(parts) < 2:
            await self._make_parts(self._threads, parts, on_made)
            return
        left = iter(parts)
        count = min(len(parts), THREADS_MAX)
        # Not on the threads that produce requests wait for.
        threads = ThreadPoolExecutor(count, thread_name_prefix="ottla-new-logs")
        try:
            await asyncio.gather(*[self._make_parts(threads, left, on_made) for _ in range(count)])
        finally:
            threads.shutdown(wait=False)

    async def _make_parts(
        self, threads: Executor, parts: Iterable[Sequence[PlacedLog]], on_made: OnMade
    ) -> None:
        loop = asyncio.get_running_loop()
        for part in parts:
            now_ms = self._clock.now_ms()
            for made in await loop.run_in_executor(threads, make_logs, part, now_ms):
                _report(made, on_made)

    async def _unopened_for(self, log: NewLog) -> LogDir | None:
        """Return the log dir of an unopened log; another topic's log is deleted."""
        log_dir = self._unopened_in(log.partition)
        topic_id = None if log_dir is None else log_dir.unopened[log.partition].topic_id
        if topic_id is None or topic_id == log.topic_id:
            return log_dir
        await self.delete([(log.partition, topic_id)])
        return None

    async def _reopen(self, log: NewLog, log_dir: LogDir) -> PartitionLog | ApiError:
        loop = asyncio.get_running_loop()
        now_ms = self._clock.now_ms()
        try:
            return await loop.run_in_executor(
                self._threads, log_dir.reopen, log.partition, log.config, now_ms
            )
        except OSError as error:
            return log_dir.refuse(error)

    async def delete(self, partitions: Iterable[tuple[TopicPartition, bytes]]) -> None:
        """Rename logs for deletion, each with a unique suffix; the files are removed later."""
        deleted: dict[LogDir, list[str]] = {log_dir: [] for log_dir in self.log_dirs.dirs}
        budget = YieldBudget(self._clock)
        for partition, mark in partitions:
            for log_dir in deleted:
                deleted[log_dir] += self._begin_delete(log_dir, partition, mark)
            await budget.yield_if_spent()
        for log_dir, directories in deleted.items():
            if directories:
                await self.finish_deletes(log_dir, directories)

    def _begin_delete(self, log_dir: LogDir, partition: TopicPartition, mark: bytes) -> list[str]:
        if not log_dir.is_online:  # if the disk comes back, its logs are strays
            log_dir.hosted.pop(partition, None)
            log_dir.futures.pop(partition, None)
            log_dir.unopened.pop(partition, None)
            return []
        try:
            if partition in log_dir.hosted or partition in log_dir.unopened:
                return [log_dir.begin_delete(partition, mark)]
            if partition in log_dir.futures:
                return [log_dir.drop_future(partition, mark)]
        except OSError as error:
            log_dir.refuse(error)
        return []

    async def finish_deletes(self, log_dir: LogDir, directories: Sequence[str]) -> None:
        """Make deletions durable, and begin to remove the files."""
        loop = asyncio.get_running_loop()
        try:
            for write in log_dir.finish_deletes():
                await loop.run_in_executor(self._threads, write)
        except OSError as error:
            log_dir.refuse(error)
        task = loop.create_task(self._remove(log_dir, directories))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def _remove(self, log_dir: LogDir, directories: Sequence[str]) -> None:
        loop = asyncio.get_running_loop()
        for directory in directories:
            try:
                await loop.run_in_executor(self._threads, log_dir.remove_deleted, directory)
            except OSError as error:
                log_dir.refuse(error)

    async def stop(self) -> None:
        """Return when nothing is being removed any more."""
        if self._removing:
            await asyncio.wait(self._removing)

    def _unopened_in(self, partition: TopicPartition) -> LogDir | None:
        return next((f for f in self.log_dirs.online if partition in f.unopened), None)


def _report(made: MadeLog, on_made: OnMade) -> None:
    try:
        log = made.host()
    except ApiError as error:
        on_made(made.wanted, error)
    else:
        on_made(made.wanted, log)
