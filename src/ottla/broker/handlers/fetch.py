"""Fetch v4-v18: read batches, waiting for them if there are too few.

The answer comes as soon as min_bytes can be read, a partition has an error, or max_wait_ms has
passed. Batches are named, not read: the kernel sends them from the page cache. The first batch of
the first partition that has one is sent whole, however large it is, so that every consumer gets
on. Sessions are not kept: a client that asks for one is answered in full, as the protocol allows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ottla.broker.partitions import Partitions
from ottla.broker.progress import Bells
from ottla.broker.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Fetched
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

VERSIONS = range(4, 19)
FETCH_BYTES_MAX = 55 << 20
READ_COMMITTED = 1
_TOPIC_IDS_SINCE = 13
_NO_SESSION = 0
_NO_OFFSET = -1


class _Read(NamedTuple):
    """What was found for one partition: a part of its log, or why there is none."""

    wanted: FetchPartition
    found: Fetched | None
    aborted: list[AbortedTransaction] | None
    error: ApiError | None

    @property
    def size_bytes(self) -> int:
        return len(self.found.records) if self.found else 0


_TopicReads = list[tuple[FetchableTopicResponse, list[_Read]]]


@dataclass(frozen=True, slots=True)
class FetchHandler:
    """Answers Fetch."""

    partitions: Partitions
    bells: Bells

    async def handle(self, context: RequestContext, request: FetchRequest) -> FetchResponse:
        """Read, and wait for more as long as the request allows."""
        if request.session_id != _NO_SESSION:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        by_id = context.api_version >= _TOPIC_IDS_SINCE
        deadline_ms = context.received_ms + request.max_wait_ms
        names = list(self._names(request, by_id=by_id))
        reads = self._read_all(request, by_id=by_id)
        while not _is_enough(reads, request.min_bytes):
            if not await self.bells.wait_any(names, deadline_ms):
                break
            reads = self._read_all(request, by_id=by_id)
        for topic, found in reads:
            topic.partitions = [_answer(read) for read in found]
        return FetchResponse(responses=[topic for topic, _ in reads])

    def _names(self, request: FetchRequest, *, by_id: bool) -> Iterator[TopicPartition]:
        for topic in request.topics:
            name = self.partitions.topic_name(topic.topic_id) if by_id else topic.topic
            if name is not None:
                yield from (TopicPartition(name, wanted.partition) for wanted in topic.partitions)

    def _read_all(self, request: FetchRequest, *, by_id: bool) -> _TopicReads:
        bytes_left = min(request.max_bytes, FETCH_BYTES_MAX)
        is_committed_only = request.isolation_level == READ_COMMITTED
        has_some = False
        reads: _TopicReads = []
        for topic in request.topics:
            name = self.partitions.topic_name(topic.topic_id) if by_id else topic.topic
            found = []
            for wanted in topic.partitions:
                bytes_max = min(wanted.partition_max_bytes, bytes_left)
                read = self._read(
                    name,
                    wanted,
                    bytes_max,
                    whole_batch=not has_some,
                    is_committed_only=is_committed_only,
                )
                bytes_left = max(bytes_left - read.size_bytes, 0)
                has_some = has_some or read.size_bytes > 0
                found.append(read)
            answer = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
            reads.append((answer, found))
        return reads

    def _read(
        self,
        topic: str | None,
        wanted: FetchPartition,
        bytes_max: int,
        *,
        whole_batch: bool,
        is_committed_only: bool,
    ) -> _Read:
        try:
            if topic is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)  # noqa: TRY301
            partition = self.partitions.get(TopicPartition(topic, wanted.partition))
            found = partition.read(
                wanted.fetch_offset,
                bytes_max,
                leader_epoch=wanted.current_leader_epoch,
                is_committed_only=is_committed_only,
                whole_batch=whole_batch,
            )
            aborted = None
            if is_committed_only:
                aborted = [
                    AbortedTransaction(
                        producer_id=transaction.producer_id, first_offset=transaction.first_offset
                    )
                    for transaction in partition.log.aborted_transactions(
                        wanted.fetch_offset, found.last_stable_offset
                    )
                ]
        except ApiError as error:
            return _Read(wanted, None, None, error)
        return _Read(wanted, found, aborted, None)


def _is_enough(reads: _TopicReads, bytes_min: int) -> bool:
    size_bytes = 0
    for _, found in reads:
        for read in found:
            if read.error is not None:
                return True
            size_bytes += read.size_bytes
    return size_bytes >= bytes_min


def _answer(read: _Read) -> PartitionData:
    if read.found is None:
        assert read.error is not None
        return PartitionData(
            partition_index=read.wanted.partition,
            error_code=read.error.code,
            high_watermark=_NO_OFFSET,
            records=b"",
        )
    return PartitionData(
        partition_index=read.wanted.partition,
        high_watermark=read.found.high_watermark,
        last_stable_offset=read.found.last_stable_offset,
        log_start_offset=read.found.log_start_offset,
        aborted_transactions=read.aborted,
        records=read.found.records,
    )
