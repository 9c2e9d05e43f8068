"""AlterReplicaLogDirs v1-v2: move partitions to other log dirs of this broker.

The response says whether a move has begun; DescribeLogDirs shows its progress. A partition that is
not here is REPLICA_NOT_AVAILABLE; the log dir for its later creation is not remembered.
"""

import logging
from dataclasses import dataclass

from ottla.broker.replication.log_dir_moves import LogDirMoves
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

VERSIONS = range(1, 3)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AlterReplicaLogDirsHandler:
    """Answers AlterReplicaLogDirs."""

    moves: LogDirMoves

    async def handle(
        self, _context: RequestContext, request: AlterReplicaLogDirsRequest
    ) -> AlterReplicaLogDirsResponse:
        """Begin the moves one after the other; of a partition named twice, the last counts."""
        results: dict[str, AlterReplicaLogDirTopicResult] = {}
        refusals: list[str] = []
        for log_dir in request.dirs:
            for topic in log_dir.topics:
                answer = results.setdefault(
                    topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name)
                )
                for index in topic.partitions:
                    name = TopicPartition(topic.name, index)
                    code = await self._move(name, log_dir.path, refusals)
                    answer.partitions.append(
                        AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    )
        if refusals:  # one line: a request may have thousands of items
            _log.warning("%d replicas are not moved, first %s", len(refusals), refusals[0])
        return AlterReplicaLogDirsResponse(results=list(results.values()))

    async def _move(self, name: TopicPartition, path: str, refusals: list[str]) -> ErrorCode:
        try:
            await self.moves.move(name, path)
        except ApiError as error:
            refusals.append(f"{name} to {path}: {error.detail}")
            return error.code
        return ErrorCode.NONE
