"""WriteTxnMarkers v1-v2: write into partitions how transactions ended.

A coordinator asks the leaders of all partitions that took part, until each of them has said that
every replica in sync has the marker. A marker is refused if a later coordinator has written one
before (TRANSACTION_COORDINATOR_FENCED), or if the producer is in a later epoch by now
(INVALID_PRODUCER_EPOCH). Since version 2 the transaction version tells whether its own epoch is
late, too (KIP-1228). To write a marker twice does no harm: it ends nothing the second time.

Who keeps state of what is in a partition, as the groups do of `__consumer_offsets`, is told of the
marker as soon as it is appended (`MarkerReader`). What is asked here is not for clients.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from ottla.broker.flushing import Flushing
from ottla.broker.partitions import Partitions
from ottla.broker.progress import Bells
from ottla.broker.request_context import RequestContext
from ottla.broker.waiting import Awaited, committed, in_doubt
from ottla.environment.clock import Clock
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition
from ottla.storage.admission import Origin
from ottla.storage.verification import TransactionTerms
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.records.control import ControlType, end_txn_marker

VERSIONS = range(1, 3)
COMMIT_MS: Final = 30_000
"""How long replicas may take to have the markers."""


class MarkerReader(Protocol):
    """Whoever keeps state of the transactions in the partitions of a topic."""

    def check_ready(self, name: TopicPartition) -> None:
        """Raise ApiError unless a marker can be taken over; nothing is appended then."""
        ...

    def on_marker(
        self,
        name: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        offset: int,
    ) -> None:
        """Take over a marker that has just been appended at this offset."""
        ...


class _Written(NamedTuple):
    """What became of one marker in one partition."""

    result: WritableTxnMarkerPartitionResult
    awaited: Awaited | None


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersHandler:
    """Answers WriteTxnMarkers."""

    partitions: Partitions
    flushing: Flushing
    clock: Clock
    bells: Bells
    may_promise: Callable[[], bool]
    """Tells whether this broker still leads what it led, for sure."""
    readers: Mapping[str, MarkerReader]
    """By topic."""

    async def handle(
        self, context: RequestContext, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """Append every marker, and answer when the replicas have them."""
        written: list[_Written] = []
        response = WriteTxnMarkersResponse(
            markers=[self._write_all(marker, written) for marker in request.markers]
        )
        await self._settle(written, context.received_ms + COMMIT_MS)
        return response

    async def _settle(self, written: list[_Written], deadline_ms: int) -> None:
        late = [(one.result, one.awaited) for one in written if one.awaited is not None]
        partitions = {awaited.partition.name: awaited.partition for _, awaited in late}
        unflushed = await self.flushing.flush_where_due(partitions.values())
        wanted = [awaited for _, awaited in late]
        errors = await committed(self.bells, wanted, deadline_ms, self.may_promise)
        for (result, awaited), error in zip(late, errors, strict=True):
            if any(awaited.partition is one for one in unflushed):
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            elif error is not None:
                result.error_code = error.code

    def _write_all(
        self, marker: WritableTxnMarker, written: list[_Written]
    ) -> WritableTxnMarkerResult:
        topics = []
        for topic in marker.topics:
            found = [
                self._write(TopicPartition(topic.name, index), marker)
                for index in topic.partition_indexes
            ]
            written += found
            results = [one.result for one in found]
            topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=results))
        return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)

    def _write(self, name: TopicPartition, marker: WritableTxnMarker) -> _Written:
        result = WritableTxnMarkerPartitionResult(partition_index=name.partition)
        try:
            return _Written(result, self._append(name, marker))
        except ApiError as error:
            result.error_code = error.code
            return _Written(result, None)

    def _append(self, name: TopicPartition, marker: WritableTxnMarker) -> Awaited:
        partition = self.partitions.get(name)
        if not self.may_promise():
            raise in_doubt(name)
        partition.check_leader()
        partition.check_enough_in_sync()
        reader = self.readers.get(name.topic)
        if reader is not None:
            reader.check_ready(name)
        offset = self._append_to(partition, marker)
        if reader is not None:
            reader.on_marker(
                name,
                marker.producer_id,
                marker.producer_epoch,
                is_commit=marker.transaction_result,
                offset=offset,
            )
        return Awaited(partition, offset + 1, partition.leader_epoch)

    def _append_to(self, partition: Partition, marker: WritableTxnMarker) -> int:
        now_ms = self.clock.now_ms()
        batch = end_txn_marker(
            ControlType.COMMIT if marker.transaction_result else ControlType.ABORT,
            marker.coordinator_epoch,
            marker.producer_id,
            marker.producer_epoch,
            now_ms,
        )
        appended = partition.append_as_leader(
            memoryview(batch),
            now_ms,
            origin=Origin.COORDINATOR,
            terms=TransactionTerms(marker.transaction_version),
        )
        return appended.base_offset
