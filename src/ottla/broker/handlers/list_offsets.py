"""ListOffsets v1-v11: offsets by time, and the ends of a log.

A timestamp of -1 asks for the end that the reader may see, -2 for the start, -3 for the record
with the greatest timestamp, -4 for the start of what is on this broker's disks, which is all there
is: so -5, the last offset that was moved to other storage, has no answer, and -6, the first that
was not, is the start again.
"""

from dataclasses import dataclass

from ottla.broker.partitions import Partitions
from ottla.broker.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import NO_EPOCH, Partition
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

VERSIONS = range(1, 12)
LATEST = -1
EARLIEST = -2
GREATEST_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
READ_COMMITTED = 1
_UNKNOWN = (-1, -1)
_EPOCHS_SINCE = 4


@dataclass(frozen=True, slots=True)
class ListOffsetsHandler:
    """Answers ListOffsets."""

    partitions: Partitions

    async def handle(
        self, context: RequestContext, request: ListOffsetsRequest
    ) -> ListOffsetsResponse:
        """Look every partition up."""
        has_epochs = context.api_version >= _EPOCHS_SINCE
        is_committed_only = request.isolation_level == READ_COMMITTED
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        self._answer(
                            topic.name,
                            wanted,
                            is_committed_only=is_committed_only,
                            has_epochs=has_epochs,
                        )
                        for wanted in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _answer(
        self,
        topic: str,
        wanted: ListOffsetsPartition,
        *,
        is_committed_only: bool,
        has_epochs: bool,
    ) -> ListOffsetsPartitionResponse:
        index = wanted.partition_index
        try:
            partition = self.partitions.get(TopicPartition(topic, index))
            partition.check_leader(wanted.current_leader_epoch)
            end_offset = (
                partition.last_stable_offset if is_committed_only else partition.high_watermark
            )
            timestamp_ms, offset = _find(partition, wanted.timestamp, end_offset)
        except ApiError as error:
            return ListOffsetsPartitionResponse(partition_index=index, error_code=error.code)
        return ListOffsetsPartitionResponse(
            partition_index=index,
            timestamp=timestamp_ms,
            offset=offset,
            leader_epoch=partition.leader_epoch if has_epochs and offset >= 0 else NO_EPOCH,
        )


def _find(partition: Partition, timestamp: int, end_offset: int) -> tuple[int, int]:
    log = partition.log
    if timestamp == LATEST:
        return -1, end_offset
    if timestamp in {EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD}:
        return -1, log.log_start_offset
    if timestamp == GREATEST_TIMESTAMP:
        return log.greatest_timestamp() or _UNKNOWN
    if timestamp == LATEST_TIERED:
        return _UNKNOWN
    if timestamp < 0:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp}")
    return log.offset_for_timestamp(timestamp, end_offset) or _UNKNOWN
