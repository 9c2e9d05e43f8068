"""WriteTxnMarkers v1-v2: write the markers of ended transactions into partitions.

A coordinator sends it to the leaders of all partitions of the transaction, until each of them has
confirmed that every in-sync replica has the marker. `marker_writer.py` has the rules; since version
2 a marker has the version of its transaction. Not for clients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.broker.coordinators.marker_writer import MarkerWriter
from ottla.broker.hosting.log_flusher import LogFlusher
from ottla.broker.hosting.replication_wait import PendingReplication, committed
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.notifier import Notifier
from ottla.concurrency.yield_budget import TimeSlices, YieldBudget
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

VERSIONS = range(1, 3)
COMMIT_MS: Final = 30_000
"""How long replicas may take to have the markers."""


class _Written(NamedTuple):
    """The result of one marker in one partition."""

    result: WritableTxnMarkerPartitionResult
    awaited: PendingReplication | None


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersHandler:
    """Answers WriteTxnMarkers."""

    writing: MarkerWriter
    flushing: LogFlusher
    notifier: Notifier
    slices: TimeSlices
    has_valid_lease: Callable[[], bool]
    """Returns whether this broker certainly still leads its partitions."""

    async def handle(
        self, context: RequestContext, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """Append every marker, and respond when the replicas have them."""
        written: list[_Written] = []
        budget = self.slices.begin(steps_per_look=1)
        response = WriteTxnMarkersResponse()
        for marker in request.markers:
            response.markers.append(await self._write_all(marker, written, budget))
        await self._wait_replicated(written, context.received_ms + COMMIT_MS)
        return response

    async def _wait_replicated(self, written: list[_Written], deadline_ms: int) -> None:
        late = [(one.result, one.awaited) for one in written if one.awaited is not None]
        partitions = {awaited.partition.name: awaited.partition for _, awaited in late}
        unflushed = await self.flushing.flush_where_due(partitions.values())
        wanted = [awaited for _, awaited in late]
        errors = await committed(self.notifier, wanted, deadline_ms, self.has_valid_lease)
        for (result, awaited), error in zip(late, errors, strict=True):
            if any(awaited.partition is one for one in unflushed):
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            elif error is not None:
                result.error_code = error.code

    async def _write_all(
        self, marker: WritableTxnMarker, written: list[_Written], budget: YieldBudget
    ) -> WritableTxnMarkerResult:
        topics = []
        for topic in marker.topics:
            answered = WritableTxnMarkerTopicResult(name=topic.name)
            topics.append(answered)
            for index in topic.partition_indexes:
                found = self._write(TopicPartition(topic.name, index), marker)
                written.append(found)
                answered.partitions.append(found.result)
                await budget.yield_if_spent()
        return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)

    def _write(self, name: TopicPartition, marker: WritableTxnMarker) -> _Written:
        result = WritableTxnMarkerPartitionResult(partition_index=name.partition)
        try:
            return _Written(result, self.writing.append(name, marker))
        except ApiError as error:
            result.error_code = error.code
            return _Written(result, None)
