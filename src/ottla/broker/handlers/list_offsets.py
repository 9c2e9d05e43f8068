"""ListOffsets v0-v11: offsets by time, and the ends of a log.

A timestamp of -1 asks for the end that the reader may see, -2 for the start, -3 for the record
with the greatest timestamp, -4 for the start of the local log, which is the whole log: so -5, the
last offset in tiered storage, and -6, the first offset to be moved there, have no result.

A new leader does not know yet which offsets its predecessor has shown to readers. Until then it
responds with OFFSET_NOT_AVAILABLE, in older versions LEADER_NOT_AVAILABLE (KIP-207).

A partition that occurs twice is refused with INVALID_REQUEST, since version 1. Other requests run
between partitions.

Version 0 returns up to max_num_offsets offsets: the base offsets of segments that are not younger,
and if there are any records, the end; the last segment first.
"""

from dataclasses import dataclass

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.yield_budget import TimeSlices, YieldBudget
from ottla.environment.clock import Clock
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import LeaderEpoch, Offset, TopicPartition
from ottla.model.isolation_level import EARLIEST, LATEST, READ_COMMITTED
from ottla.replication.partition import Partition
from ottla.storage.log.leader_epochs import NO_EPOCH
from ottla.storage.log.retention import offsets_before
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

VERSIONS = range(12)
GREATEST_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_UNKNOWN = (-1, -1)
_EPOCHS_SINCE = 4
_NOT_AVAILABLE_SINCE = 5
_ALWAYS_KNOWN = frozenset({EARLIEST, EARLIEST_LOCAL})
_SINCE_BY_TIMESTAMP = {
    LATEST: 1,
    EARLIEST: 1,
    GREATEST_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


@dataclass(frozen=True, slots=True)
class ListOffsetsHandler:
    """Answers ListOffsets."""

    partitions: HostedPartitions
    clock: Clock
    slices: TimeSlices

    async def handle(
        self, context: RequestContext, request: ListOffsetsRequest
    ) -> ListOffsetsResponse:
        """Look every partition up."""
        if context.api_version == 0:
            return await self._handle_old(request)
        budget = self.slices.begin()
        twice = await _named_twice(request, budget)
        topics: list[ListOffsetsTopicResponse] = []
        for topic in request.topics:
            answered = ListOffsetsTopicResponse(name=topic.name)
            topics.append(answered)
            for wanted in topic.partitions:
                if (topic.name, wanted.partition_index) in twice:
                    answer = _refused(wanted, ErrorCode.INVALID_REQUEST)
                else:
                    answer = self._answer(topic.name, wanted, request, context.api_version)
                answered.partitions.append(answer)
                await budget.yield_if_spent()
        return ListOffsetsResponse(topics=topics)

    async def _handle_old(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        budget = self.slices.begin()
        topics: list[ListOffsetsTopicResponse] = []
        for topic in request.topics:
            answered = ListOffsetsTopicResponse(name=topic.name)
            topics.append(answered)
            for wanted in topic.partitions:
                answered.partitions.append(self._old_answer(topic.name, wanted))
                await budget.yield_if_spent()
        return ListOffsetsResponse(topics=topics)

    def _old_answer(self, topic: str, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        index = wanted.partition_index
        try:
            partition = self.partitions.get(TopicPartition(topic, index))
            partition.check_leader()
            offsets = offsets_before(partition.log, wanted.timestamp, self.clock.now_ms())
        except ApiError as error:
            return _refused(wanted, error.code)
        high_watermark = partition.high_watermark
        if offsets and offsets[0] > high_watermark:
            offsets = [high_watermark, *(o for o in offsets if o < high_watermark)]
        return ListOffsetsPartitionResponse(
            partition_index=index, old_style_offsets=offsets[: max(wanted.max_num_offsets, 0)]
        )

    def _answer(
        self,
        topic: str,
        wanted: ListOffsetsPartition,
        request: ListOffsetsRequest,
        version: int,
    ) -> ListOffsetsPartitionResponse:
        index = wanted.partition_index
        is_committed_only = request.isolation_level == READ_COMMITTED
        try:
            partition = self.partitions.get(TopicPartition(topic, index))
            partition.check_leader(LeaderEpoch(wanted.current_leader_epoch))
            end_offset = (
                partition.last_stable_offset if is_committed_only else partition.high_watermark
            )
            _check_timestamp(wanted.timestamp, version)
            if wanted.timestamp not in _ALWAYS_KNOWN:
                _check_known(partition, version)
            timestamp_ms, offset = _find(partition, wanted.timestamp, end_offset)
        except ApiError as error:
            return _refused(wanted, error.code)
        return ListOffsetsPartitionResponse(
            partition_index=index,
            timestamp=timestamp_ms,
            offset=offset,
            leader_epoch=_epoch(partition, Offset(offset))
            if version >= _EPOCHS_SINCE
            else NO_EPOCH,
        )


async def _named_twice(request: ListOffsetsRequest, budget: YieldBudget) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for wanted in topic.partitions:
            name = topic.name, wanted.partition_index
            (twice if name in seen else seen).add(name)
            await budget.yield_if_spent()
    return twice


def _refused(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)


def _check_timestamp(timestamp: int, version: int) -> None:
    since = _SINCE_BY_TIMESTAMP.get(timestamp)
    if timestamp < 0 and (since is None or version < since):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} in v{version}")


def _check_known(partition: Partition, version: int) -> None:
    """Raise ApiError while a new leader does not know the committed offsets (KIP-207)."""
    if not partition.is_high_watermark_known:
        raise ApiError(
            ErrorCode.OFFSET_NOT_AVAILABLE
            if version >= _NOT_AVAILABLE_SINCE
            else ErrorCode.LEADER_NOT_AVAILABLE
        )


def _epoch(partition: Partition, offset: Offset) -> LeaderEpoch:
    """Return the epoch in which the record at an offset was written, or would be."""
    if offset < 0:
        return NO_EPOCH
    epoch = partition.log.epochs.epoch_for(offset)
    return partition.leader_epoch if epoch is None else epoch


def _find(partition: Partition, timestamp: int, end_offset: Offset) -> tuple[int, int]:
    log = partition.log
    if timestamp == LATEST:
        return -1, end_offset
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return -1, log.log_start_offset
    if timestamp == GREATEST_TIMESTAMP:
        greatest = log.greatest_timestamp()
        return _UNKNOWN if greatest is None or greatest.offset >= end_offset else greatest
    if timestamp in {LATEST_TIERED, EARLIEST_PENDING_UPLOAD}:
        return _UNKNOWN
    return log.offset_for_timestamp(timestamp, end_offset) or _UNKNOWN
