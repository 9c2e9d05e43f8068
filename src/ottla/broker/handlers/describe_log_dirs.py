"""DescribeLogDirs v1-v5: this broker's log directories, their replicas, and their free space.

A null list of topics asks for all partitions. A future replica (AlterReplicaLogDirs) is listed in
its new directory, with its lag. An offline directory has an error and nothing else.
"""

import asyncio
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass

from ottla.broker.hosting.partition_log_dirs import PartitionLogDirs
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.yield_budget import TimeSlices
from ottla.environment.disk import Disk
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.storage.log_dirs.log_dir import HostedLog, LogDir
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

VERSIONS = range(1, 6)
_Wanted = set[TopicPartition] | None


@dataclass(frozen=True, slots=True)
class DescribeLogDirsHandler:
    """Answers DescribeLogDirs."""

    folders: PartitionLogDirs
    disk: Disk
    threads: Executor
    slices: TimeSlices

    async def handle(
        self, _context: RequestContext, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        """Describe every log dir."""
        wanted: _Wanted = None
        if request.topics is not None:
            budget, wanted = self.slices.begin(), set()
            for topic in request.topics:
                for index in topic.partitions:
                    wanted.add(TopicPartition(topic.topic, index))
                    await budget.yield_if_spent()
        by_path = self.folders.by_path.items()
        results = [await self._described(path, log_dir, wanted) for path, log_dir in by_path]
        return DescribeLogDirsResponse(results=results)

    async def _described(
        self, path: str, log_dir: LogDir, wanted: _Wanted
    ) -> DescribeLogDirsResult:
        offline = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
        if not log_dir.is_online:
            return offline
        loop = asyncio.get_running_loop()
        try:
            total_bytes = await loop.run_in_executor(self.threads, self.disk.total_bytes, path)
            usable_bytes = await loop.run_in_executor(self.threads, self.disk.free_bytes, path)
        except OSError:
            return offline
        return DescribeLogDirsResult(
            log_dir=path,
            topics=await self._topics(log_dir, wanted),
            total_bytes=total_bytes,
            usable_bytes=usable_bytes,
        )

    async def _topics(self, log_dir: LogDir, wanted: _Wanted) -> list[DescribeLogDirsTopic]:
        by_name: dict[str, DescribeLogDirsTopic] = {}
        budget = self.slices.begin()
        for is_future, logs in ((False, log_dir.hosted), (True, log_dir.futures)):
            for name, hosted in list(_chosen(logs.items(), wanted)):
                topic = by_name.setdefault(name.topic, DescribeLogDirsTopic(name=name.topic))
                topic.partitions.append(self._partition(name, hosted, is_future=is_future))
                await budget.yield_if_spent()
        return list(by_name.values())

    def _partition(
        self, name: TopicPartition, hosted: HostedLog, *, is_future: bool
    ) -> DescribeLogDirsPartition:
        used = self.folders.log_dirs.log_of(name)
        end_offset = hosted.log.end_offset if used is None else used.end_offset
        return DescribeLogDirsPartition(
            partition_index=name.partition,
            partition_size=hosted.log.segments.size_bytes,
            offset_lag=max(end_offset - hosted.log.end_offset, 0),
            is_future_key=is_future,
        )


def _chosen(
    logs: Iterable[tuple[TopicPartition, HostedLog]], wanted: _Wanted
) -> Iterable[tuple[TopicPartition, HostedLog]]:
    return logs if wanted is None else (one for one in logs if one[0] in wanted)
