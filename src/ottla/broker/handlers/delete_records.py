"""DeleteRecords v0-v2: let partitions begin later.

An offset of -1 stands for the high watermark. To begin earlier than now changes nothing. A topic
that is compacted and not deleted is refused, and so are internal ones. Segments that are before the
new start as a whole go with the next round of retention.
"""

from dataclasses import dataclass

from ottla.broker.partitions import Partitions
from ottla.broker.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_names import INTERNAL_TOPICS
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

VERSIONS = range(3)
_NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class DeleteRecordsHandler:
    """Answers DeleteRecords."""

    partitions: Partitions

    async def handle(
        self, _context: RequestContext, request: DeleteRecordsRequest
    ) -> DeleteRecordsResponse:
        """Cut every partition, and tell where each begins now."""
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[self._cut(topic.name, wanted) for wanted in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _cut(self, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        index = wanted.partition_index
        try:
            partition = self.partitions.get(TopicPartition(topic, index))
            if topic in INTERNAL_TOPICS:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, topic)  # noqa: TRY301
            low_watermark = partition.delete_records(wanted.offset)
        except ApiError as error:
            return DeleteRecordsPartitionResult(
                partition_index=index, low_watermark=_NO_OFFSET, error_code=error.code
            )
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)
