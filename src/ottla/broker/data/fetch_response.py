"""Builds Fetch responses from the reads of partitions."""

from typing import Final

from ottla.broker.data.fetch_sessions import FetchedPartition, Read
from ottla.model.api_error import ApiError
from ottla.replication.partition import NO_REPLICA, Fetched
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    PartitionData,
)

_NO_OFFSET: Final = -1


def grouped(
    reads: list[Read], before: list[FetchableTopicResponse] | None = None
) -> list[FetchableTopicResponse]:
    """Group adjacent partitions of the same topic, in a new list or at the end of the given one."""
    topics = [] if before is None else before
    last = topics[-1] if topics else None
    for read in reads:
        partition = read[0]
        if last is None or last.topic_id != partition.topic_id or last.topic != partition.topic:
            last = FetchableTopicResponse(
                topic=partition.topic, topic_id=partition.topic_id, partitions=[]
            )
            topics.append(last)
        last.partitions.append(answer_of(*read))
    return topics


def answer_of(partition: FetchedPartition, found: Fetched | ApiError) -> PartitionData:
    """Return the response part of one partition."""
    index = partition.wanted.partition
    if isinstance(found, ApiError):
        answer = PartitionData(partition_index=index)
        fail(answer, found)
        return answer
    answer = PartitionData(
        partition_index=index,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=None,
        records=found.records if found.records.size_bytes else b"",  # one piece with the rest
    )
    if found.aborted is not None:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
            for producer_id, first_offset in found.aborted
        ]
    if found.diverging is not None:
        epoch, end_offset = found.diverging
        answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    if found.preferred_replica != NO_REPLICA:
        answer.preferred_read_replica = found.preferred_replica
    return answer


def fail(answer: PartitionData, error: ApiError) -> None:
    """Make it the response of a partition with an error."""
    answer.error_code = error.code
    answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = _NO_OFFSET
    answer.records = b""
