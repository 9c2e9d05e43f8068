"""Moves replicas between this broker's log dirs, by request of a client (KIP-113).

Threads copy, a piece at a time. Only during the last piece flushes of the partition must wait; it
is written and read all the time. Unfinished moves continue at the next start.
"""

import asyncio
import logging
import posixpath
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final, TypeVar, TypeVarTuple

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.log_flusher import LogFlusher
from ottla.broker.hosting.partition_log_dirs import PartitionLogDirs
from ottla.broker.replication.replication_quotas import Throttle
from ottla.environment.clock import Clock
from ottla.environment.randomness import Randomness
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition
from ottla.storage.files.checkpoints import Write
from ottla.storage.files.directory_names import future_name
from ottla.storage.log_dirs.log_dir import LogDir
from ottla.storage.log_dirs.log_dir_copy import COPY_BYTES, LogDirCopy

STEPS_AT_ONCE: Final = 2
"""The threads that copy, for all moves together; requests wait for the others."""
STEPS_PER_FLUSH: Final = 64
"""After so many steps the copy is made durable, so that the end takes no longer than any piece."""
LAST_STEPS_MAX: Final = 16
"""Tries to catch up with a partition that is being written, before all is tried again."""
RETRY_MS: Final = 50
_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class LogDirMoves:
    """All moves that are under way. Belongs to the loop."""

    def __init__(
        self,
        partitions: HostedPartitions,
        folders: PartitionLogDirs,
        flushing: LogFlusher,
        threads: Executor,
        clock: Clock,
        randomness: Randomness,
        throttle: Throttle,
        is_busy: Callable[[Partition], bool] = lambda _: False,
    ) -> None:
        """`is_busy` returns whether a partition's log must not be replaced right now."""
        self._partitions = partitions
        self._folders = folders
        self._flushing = flushing
        self._threads = threads
        self._clock = clock
        self._randomness = randomness
        self._throttle = throttle
        self._is_busy = is_busy
        self._steps = asyncio.Semaphore(STEPS_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    def resume(self) -> None:
        """Resume the moves that an earlier incarnation of this broker has begun."""
        for target in self._folders.log_dirs.online:
            for name in target.futures:
                if self._folders.log_dirs.log_of(name) is not None:
                    self._begin(name, target)

    async def move(self, name: TopicPartition, path: str) -> None:
        """Begin to move a partition here, unless it is there, or on its way; returns at once.

        To move it where it is gives up the move that is under way. Raises ApiError
        INVALID_TOPIC_EXCEPTION, LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR or REPLICA_NOT_AVAILABLE.
        """
        target, folder_name = self._checked(name, path)
        log_dirs = self._folders.log_dirs
        for log_dir in log_dirs.online:
            if log_dir is not target and name in log_dir.futures:
                await self._drop(name, log_dir)
        if name in target.hosted or name in target.futures:
            return
        partition = self._partitions.find(name)
        if partition is None:
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{name} is not kept here")
        if len(log_dirs.online) < len(log_dirs.dirs):
            # Its future replica may exist already, in the unreadable log dir.
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "a log directory is offline")
        await self._make(target, folder_name, partition)
        self._begin(name, target)

    def _checked(self, name: TopicPartition, path: str) -> tuple[LogDir, str]:
        folder_name = future_name(name, self._randomness.uuid())
        if folder_name is None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic's name is too long")
        target = self._folders.by_path.get(posixpath.normpath(path))
        if target is None:
            raise ApiError(
                ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is none of this broker's directories"
            )
        if not target.is_online:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline: {target.failure}")
        if name in self._partitions.offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is offline")
        return target, folder_name

    async def _make(self, target: LogDir, folder_name: str, partition: Partition) -> None:
        now_ms = self._clock.now_ms()
        name, config = partition.name, partition.log.config
        try:
            made = await self._run(
                target.make, folder_name, name, partition.topic_id, config, now_ms
            )
        except OSError as error:
            raise target.refuse(error) from error
        if self._partitions.find(name) is not partition or name in target.futures:
            # Deleted, or requested twice at the same time.
            await self._run(target.remove_deleted, made.log.directory)
        else:
            target.futures[name] = made

    def _begin(self, name: TopicPartition, target: LogDir) -> None:
        source = self._folders.log_dirs.dir_of(name)
        if source is None or name not in target.futures:
            return
        move = LogDirCopy(name, source, target)
        task = asyncio.get_running_loop().create_task(self._carry_out(move))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Stop all moves, after their current pieces."""
        self._stopping.set()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- one move -------------------------------------------------------------------------------

    async def _carry_out(self, move: LogDirCopy) -> None:
        name, path = move.partition, move.target.path
        _log.info("%s: is being moved from %s to %s", name, move.source.path, path)
        try:
            while self._is_under_way(move):
                await self._copy(move)
                if self._is_under_way(move) and await self._swap(move):
                    _log.info("%s: is in %s now", name, path)
                    return
                await self._rest(RETRY_MS)
        except (ApiError, OSError) as error:
            if move.is_under_way or move.copy.is_offline:
                _log.error("%s: cannot be moved to %s: %s", name, path, error)
        if not self._stopping.is_set():
            await self._drop(name, move.target, move)

    async def _rest(self, wait_ms: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._stopping.wait()

    def _is_under_way(self, move: LogDirCopy) -> bool:
        return not self._stopping.is_set() and move.is_under_way

    async def _copy(self, move: LogDirCopy) -> None:
        """Copy until little is left, and make it durable."""
        count = 0
        while self._is_under_way(move) and move.left_bytes > COPY_BYTES:
            if wait_ms := self._throttle.wait_ms():
                await self._rest(wait_ms)
                continue
            await self._copy_some(move)
            count += 1
            if count % STEPS_PER_FLUSH == 0:
                await self._run(move.copy.flush, self._clock.now_ms())
        if self._is_under_way(move):
            await self._run(move.copy.flush, self._clock.now_ms())

    async def _copy_some(self, move: LogDirCopy) -> bool:
        step = move.begin()
        if step is not None:
            self._throttle.count(step.size_bytes)
            async with self._steps:
                await self._run(step.run, self._clock.now_ms())
        return step is not None

    async def _swap(self, move: LogDirCopy) -> bool:
        """Bring the copy to the end, and let it be the partition; False if that did not succeed."""
        partition = self._partitions.find(move.partition)
        if partition is None or partition.log is not move.log:
            return False
        async with self._flushing.held(partition):
            await self._copy_some(move)
            await self._run(move.copy.flush, self._clock.now_ms())
            await self._write(move.target, move.checkpoint())
            for _ in range(LAST_STEPS_MAX):
                if not move.is_under_way:
                    return False
                if move.can_swap():
                    break
                await self._copy_some(move)
            if not move.is_under_way or not move.can_swap() or self._is_busy(partition):
                return False
            deleted = move.swap(self._clock.now_ms(), self._randomness.uuid())
            partition.log = move.copy
            await self._write(move.target, move.finish())
        if deleted:
            await self._folders.finish_deletes(move.source, [deleted])
        return True

    async def _drop(
        self, name: TopicPartition, log_dir: LogDir, move: LogDirCopy | None = None
    ) -> None:
        """Drop a future replica; with a move, only if it belongs to that move."""
        future = log_dir.futures.get(name)
        if future is None or (move is not None and future.log is not move.copy):
            return
        if not log_dir.is_online:
            del log_dir.futures[name]
            return
        try:
            deleted = log_dir.drop_future(name, self._randomness.uuid())
        except OSError as error:
            raise log_dir.refuse(error) from error
        await self._folders.finish_deletes(log_dir, [deleted])

    async def _write(self, log_dir: LogDir, writes: Iterable[Write]) -> None:
        try:
            for write in writes:
                await self._run(write)
        except OSError as error:
            log_dir.refuse(error)

    async def _run(self, work: Callable[[*_Ts], _T], *arguments: *_Ts) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
