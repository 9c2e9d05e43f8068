"""Produce v3-v13: append one batch to each of these partitions.

acks=0 is answered with silence, as the protocol asks. acks=1 and acks=all are the same as long as
a partition has one replica. A topic whose flush.messages asks for it is flushed before the answer,
together with whatever else has been appended meanwhile. Versions 0 to 2 belong to message formats
that are converted, but not offered: ApiVersions tells clients to use batches.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ottla.broker.flushing import Flushing
from ottla.broker.partitions import Partitions
from ottla.broker.request_context import RequestContext
from ottla.environment.clock import Clock
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition
from ottla.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

VERSIONS = range(3, 14)
ACKS_NONE = 0
ACKS_KNOWN = frozenset({-1, 0, 1})
_TOPIC_IDS_SINCE = 13


class _Outcome(NamedTuple):
    """What became of one partition's batch."""

    response: PartitionProduceResponse
    appended_to: Partition | None


@dataclass(frozen=True, slots=True)
class ProduceHandler:
    """Answers Produce."""

    partitions: Partitions
    flushing: Flushing
    clock: Clock

    async def handle(
        self, context: RequestContext, request: ProduceRequest
    ) -> ProduceResponse | None:
        """Append every batch, make durable what has to be, answer."""
        by_id = context.api_version >= _TOPIC_IDS_SINCE
        outcomes = [
            (topic, list(self._append_all(topic, request.acks, by_id=by_id)))
            for topic in request.topic_data
        ]
        appended = [o.appended_to for _, found in outcomes for o in found if o.appended_to]
        await self.flushing.flush_where_due(appended)
        if request.acks == ACKS_NONE:
            return None
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[outcome.response for outcome in found],
                )
                for topic, found in outcomes
            ]
        )

    def _append_all(self, topic: TopicProduceData, acks: int, *, by_id: bool) -> Iterator[_Outcome]:
        name = self.partitions.topic_name(topic.topic_id) if by_id else topic.name
        for data in topic.partition_data:
            try:
                if acks not in ACKS_KNOWN:
                    raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {acks}")  # noqa: TRY301
                yield self._append(name, data.index, data.records)
            except ApiError as error:
                yield _Outcome(_refusal(data.index, error), None)

    def _append(self, topic: str | None, index: int, records: memoryview | None) -> _Outcome:
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = self.partitions.get(TopicPartition(topic, index))
        data = memoryview(b"") if records is None else records
        appended = partition.append_as_leader(data, self.clock.now_ms())
        response = PartitionProduceResponse(
            index=index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=partition.log.log_start_offset,
        )
        return _Outcome(response, partition)


def _refusal(index: int, error: ApiError) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, error_message=error.detail or None
    )
