"""Produce v0-v13: append one batch to each of these partitions.

acks=0 is answered with silence, as the protocol asks; if something was refused the connection is
closed, for there is no other way to say so. acks=1 is answered when the leader has the batch,
acks=all when every replica that is in sync has it, and min.insync.replicas of them are; after
timeout_ms it is REQUEST_TIMED_OUT, and nobody knows. A topic whose flush.messages asks for it is
flushed before the answer, together with whatever else has been appended meanwhile; what the disk
refused to make durable is KAFKA_STORAGE_ERROR. Refused are: other formats than a version has (only
versions 0 to 2 send message sets, which are converted on a thread), internal topics, and as long as
there are no transactions, their batches.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.broker.current_leaders import CurrentLeaders
from ottla.broker.flushing import Flushing
from ottla.broker.metrics.meters import Meters
from ottla.broker.old_formats import OldFormats
from ottla.broker.partitions import Partitions
from ottla.broker.progress import Bells
from ottla.broker.request_context import RequestContext
from ottla.broker.waiting import Awaited, committed
from ottla.environment.clock import Clock
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_names import INTERNAL_TOPICS
from ottla.replication.partition import Partition
from ottla.storage.admission import RejectedRecordsError
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import CODEC_MASK, MAGIC, TRANSACTIONAL_BIT
from ottla.wire.records.compression import Compression

VERSIONS = range(14)
ACKS_NONE: Final = 0
ACKS_ALL: Final = -1
ACKS_KNOWN: Final = frozenset({-1, 0, 1})
_BATCHES_SINCE = 3
_ZSTD_SINCE = 7
_LEADERS_SINCE = 10
_TOPIC_IDS_SINCE = 13
_MAGIC_AT = 16
_ATTRIBUTES_AT = 22  # the lower byte: the other one has no bits yet
_NO_OFFSET = -1
_NOTHING = memoryview(b"")


class _Outcome(NamedTuple):
    """What became of one partition's batch."""

    response: PartitionProduceResponse
    appended_to: Partition | None
    awaited: Awaited | None = None
    """What the answer has to wait for, if other replicas have to have it."""


_Outcomes = list[tuple[TopicProduceData, list[_Outcome]]]


class _Terms(NamedTuple):
    """What holds for all partitions of a request."""

    version: int
    acks: int
    converted: Iterator[memoryview | ApiError] | None
    """What the message sets of old versions have become."""


@dataclass(frozen=True, slots=True)
class ProduceHandler:
    """Answers Produce."""

    partitions: Partitions
    flushing: Flushing
    clock: Clock
    leaders: CurrentLeaders
    old_formats: OldFormats
    meters: Meters
    bells: Bells
    may_promise: Callable[[], bool]
    """Tells whether this broker still leads what it led, for sure."""

    async def handle(
        self, context: RequestContext, request: ProduceRequest
    ) -> ProduceResponse | None:
        """Append every batch, make durable what has to be, answer."""
        version = context.api_version
        converted = await self._convert(request) if version < _BATCHES_SINCE else None
        terms = _Terms(version, request.acks, converted)
        outcomes = [(topic, list(self._append_all(topic, terms))) for topic in request.topic_data]
        appended = [o.appended_to for _, found in outcomes for o in found if o.appended_to]
        if unflushed := await self.flushing.flush_where_due(appended):
            outcomes = [(topic, _kept(found, unflushed)) for topic, found in outcomes]
        if request.acks == ACKS_ALL:
            await self._replicate(outcomes, context.received_ms + request.timeout_ms)
        response = ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[outcome.response for outcome in found],
                )
                for topic, found in outcomes
            ]
        )
        if request.acks == ACKS_NONE:
            _check_silence(response)
            return None
        if version >= _LEADERS_SINCE and _has_failed(outcomes):
            self._name_leaders(response, context.listener)
        return response

    async def _replicate(self, outcomes: _Outcomes, deadline_ms: int) -> None:
        """Return when the replicas in sync have everything, or when that is not to be."""
        late = [(o.response, o.awaited) for _, found in outcomes for o in found if o.awaited]
        if late:
            errors = await committed(self.bells, [awaited for _, awaited in late], deadline_ms)
            for (response, _), error in zip(late, errors, strict=True):
                if error is not None:
                    self.meters.errors[ApiKey.PRODUCE, error.code] += 1
                    response.error_code = error.code
                    response.error_message = error.detail
                    response.base_offset = response.log_start_offset = _NO_OFFSET

    async def _convert(self, request: ProduceRequest) -> Iterator[memoryview | ApiError]:
        sets = [data.records for topic in request.topic_data for data in topic.partition_data]
        return iter(await self.old_formats.batches([records or _NOTHING for records in sets]))

    def _append_all(self, topic: TopicProduceData, terms: _Terms) -> Iterator[_Outcome]:
        by_id = terms.version >= _TOPIC_IDS_SINCE
        name = self.partitions.topic_name(topic.topic_id) if by_id else topic.name
        for data in topic.partition_data:
            records = data.records if terms.converted is None else next(terms.converted)
            try:
                if name is None:
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)  # noqa: TRY301
                yield self._append(TopicPartition(name, data.index), records, terms)
            except ApiError as error:
                self.meters.errors[ApiKey.PRODUCE, error.code] += 1
                yield _Outcome(_refusal(data.index, error), None)

    def _append(
        self, name: TopicPartition, records: memoryview | ApiError | None, terms: _Terms
    ) -> _Outcome:
        partition = self.partitions.get(name)
        if not self.may_promise():
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}: others may lead it by now")
        if terms.acks not in ACKS_KNOWN:
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {terms.acks}")
        if name.topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name.topic} is internal")
        if isinstance(records, ApiError):
            raise records
        data = _NOTHING if records is None else records
        _check_format(data, terms.version)
        is_awaited = terms.acks == ACKS_ALL and not partition.is_alone
        if is_awaited:
            partition.check_leader()
            partition.check_enough_in_sync()
        appended = partition.append_as_leader(data, self.clock.now_ms())
        response = PartitionProduceResponse(
            index=name.partition,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=partition.log.log_start_offset,
        )
        if is_awaited:
            end_offset = appended.last_offset + 1
            return _Outcome(
                response, partition, Awaited(partition, end_offset, partition.leader_epoch)
            )
        return _Outcome(response, partition)

    def _name_leaders(self, response: ProduceResponse, listener: str) -> None:
        """Tell those who came to the wrong broker which one is right (KIP-951)."""
        endpoints: dict[int, NodeEndpoint] = {}
        for topic in response.responses:
            name = topic.name or self.partitions.topic_name(topic.topic_id) or ""
            for answer in topic.partition_responses:
                if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    continue
                leader = self.leaders.find(TopicPartition(name, answer.index), listener)
                answer.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.leader_id, leader_epoch=leader.leader_epoch
                )
                if (end := leader.endpoint) is not None:
                    endpoints[leader.leader_id] = NodeEndpoint(
                        node_id=leader.leader_id, host=end.host, port=end.port, rack=leader.rack
                    )
        response.node_endpoints = list(endpoints.values())


def _has_failed(outcomes: _Outcomes) -> bool:
    return any(outcome.response.error_code for _, found in outcomes for outcome in found)


def _check_format(data: memoryview, version: int) -> None:
    """Raise ApiError for what may not be in a request of this version; headers are there if so."""
    if len(data) <= _ATTRIBUTES_AT:
        return
    if data[_MAGIC_AT] < MAGIC:
        raise ApiError(ErrorCode.INVALID_RECORD, f"a message set in Produce v{version}")
    attributes = data[_ATTRIBUTES_AT]
    if attributes & TRANSACTIONAL_BIT:
        raise ApiError(ErrorCode.INVALID_TXN_STATE, "there are no transactions yet")
    if version < _ZSTD_SINCE and attributes & CODEC_MASK == Compression.ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Zstandard in Produce v{version}")


def _kept(outcomes: list[_Outcome], unflushed: list[Partition]) -> list[_Outcome]:
    """Take back what was going to be said of partitions whose disk has refused to keep it."""
    kept = []
    for outcome in outcomes:
        partition = outcome.appended_to
        if partition is not None and any(partition is one for one in unflushed):
            error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.name} was not flushed")
            kept.append(_Outcome(_refusal(outcome.response.index, error), None))
        else:
            kept.append(outcome)
    return kept


def _refusal(index: int, error: ApiError) -> PartitionProduceResponse:
    response = PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, error_message=error.detail or None
    )
    if isinstance(error, RejectedRecordsError):
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=message)
            for number, message in error.rejected
        ]
    return response


def _check_silence(response: ProduceResponse) -> None:
    """Raise ProtocolError if there is something to say to a client that does not listen."""
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code:
                name = topic.name or topic.topic_id.hex()
                raise ProtocolError(
                    f"what acks=0 cannot be told: {name}-{answer.index} refused it:"
                    f" {answer.error_message}",
                    ErrorCode(answer.error_code),
                )
