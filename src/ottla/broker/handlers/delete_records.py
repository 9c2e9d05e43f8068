"""DeleteRecords v0-v2: raise the log start offsets of partitions.

An offset of -1 stands for the high watermark. An offset before the log start changes nothing. A
topic that is compacted and not deleted is refused, and so are internal ones. Segments that lie
wholly before the new start are deleted with the next round of retention.

The response comes when all live replicas have the new log start, or after timeout_ms
(REQUEST_TIMED_OUT): then the leader has deleted the records, and the others will. The low watermark
is the smallest log start of all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.notifier import Notifier
from ottla.concurrency.yield_budget import TimeSlices
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, Offset, TopicPartition
from ottla.model.topic_names import INTERNAL_TOPICS
from ottla.replication.partition import Partition
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

VERSIONS = range(3)
_NO_OFFSET = -1


@dataclass(slots=True)
class _Deletion:
    """A partition with a new log start, and its result."""

    partition: Partition
    offset: Offset
    result: DeleteRecordsPartitionResult


@dataclass(frozen=True, slots=True)
class DeleteRecordsHandler:
    """Answers DeleteRecords."""

    partitions: HostedPartitions
    notifier: Notifier
    is_alive: Callable[[BrokerId], bool]
    """Whether a broker is live, so that its replica counts."""
    slices: TimeSlices

    async def handle(
        self, context: RequestContext, request: DeleteRecordsRequest
    ) -> DeleteRecordsResponse:
        """Raise every log start, wait for the replicas, and return the low watermarks."""
        deletions: list[_Deletion] = []
        budget = self.slices.begin()
        topics: list[DeleteRecordsTopicResult] = []
        for topic in request.topics:
            answered = DeleteRecordsTopicResult(name=topic.name)
            topics.append(answered)
            for one in topic.partitions:
                answered.partitions.append(self._cut(topic.name, one, deletions))
                await budget.yield_if_spent()
        await self._wait(deletions, context.received_ms + request.timeout_ms)
        return DeleteRecordsResponse(topics=topics)

    def _cut(
        self, topic: str, wanted: DeleteRecordsPartition, deletions: list[_Deletion]
    ) -> DeleteRecordsPartitionResult:
        index = wanted.partition_index
        result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=_NO_OFFSET)
        try:
            partition = self.partitions.get(TopicPartition(topic, index))
            if topic in INTERNAL_TOPICS:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, topic)  # noqa: TRY301
            low_watermark = partition.delete_records(Offset(wanted.offset))
            deletions.append(_Deletion(partition, low_watermark, result))
        except ApiError as error:
            result.error_code = error.code
        return result

    async def _wait(self, deletions: list[_Deletion], deadline_ms: int) -> None:
        """Return when every replica begins where its leader does, or it is too late."""
        while True:
            deletions = [one for one in deletions if not self._try_to_finish(one)]
            names = [one.partition.name for one in deletions]
            if not deletions or not await self.notifier.wait_any(names, deadline_ms):
                break
        for one in deletions:
            one.result.error_code = ErrorCode.REQUEST_TIMED_OUT

    def _try_to_finish(self, deletion: _Deletion) -> bool:
        """Say how far a deletion has come; False if that has to be done again."""
        partition, result = deletion.partition, deletion.result
        try:
            partition.check_leader()
        except ApiError as error:
            result.error_code, result.low_watermark = error.code, _NO_OFFSET
            return True
        assert partition.in_sync is not None
        start_offset = partition.log.log_start_offset
        result.low_watermark = partition.in_sync.low_watermark(start_offset, self.is_alive)
        return result.low_watermark >= deletion.offset
