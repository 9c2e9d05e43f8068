"""Produce v0-v13: append one batch to each of these partitions.

acks=0 has no response; if an append fails the connection is closed, the only way to report it.
acks=1 responds when the leader has the batch. acks=all responds when every in-sync replica has it,
and at least min.insync.replicas do; after timeout_ms it is REQUEST_TIMED_OUT, with an unknown
outcome. If `flush.messages` of a topic requires it, the log is flushed before the response,
together with all concurrent appends; a failed flush is KAFKA_STORAGE_ERROR.

Refused are: record formats of other versions (only versions 0 to 2 send message sets, which are
converted on a thread), internal topics, and batches of transactions that are unknown to their
coordinator (`transaction_verification.py`). Since version 12 the append adds the partition to the
transaction. A batch with another codec than its topic is recompressed on a thread.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.broker.coordinators.transaction_verification import (
    Support,
    TransactionVerification,
    VerdictByPartition,
    Write,
)
from ottla.broker.data.batch_validation import (
    BatchValidation,
    Prepared,
    check_format,
    checked_format,
    config_if_led,
    is_left_to_append,
    names_codec,
)
from ottla.broker.data.message_format_conversion import MessageFormatConversion
from ottla.broker.describing.metadata_view import CurrentLeaders
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.log_flusher import LogFlusher
from ottla.broker.hosting.replication_wait import PendingReplication, committed, in_doubt
from ottla.broker.requests.request_context import RequestContext
from ottla.broker.requests.request_metrics import Meters
from ottla.concurrency.notifier import Notifier
from ottla.environment.clock import Clock
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset, TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.model.topic_names import INTERNAL_TOPICS
from ottla.replication.partition import Partition
from ottla.storage.log.admission import RejectedRecordsError, Validated
from ottla.storage.producers.transaction_terms import VERIFIED_ONLY, TransactionTerms
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
from ottla.wire.records.batch import (
    ATTRIBUTES_LOW_BYTE_AT,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    NO_PRODUCER_ID,
    TRANSACTIONAL_BIT,
    batch_at,
)

VERSIONS = range(14)
ACKS_NONE: Final = 0
ACKS_ALL: Final = -1
ACKS_KNOWN: Final = frozenset({-1, 0, 1})
_BATCHES_SINCE = 3
_LEADERS_SINCE = 10
_ABORTABLE_SINCE = 11
_ADDING_SINCE = 12
_TOPIC_IDS_SINCE = 13
_NO_OFFSET = -1
_NOTHING = memoryview(b"")
_TRIED_AGAIN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Codes that producers do not expect from a partition, and their retriable replacement."""


class _Outcome(NamedTuple):
    """The result of one partition's batch."""

    response: PartitionProduceResponse
    appended_to: Partition | None
    awaited: PendingReplication | None = None
    """The replication that the response waits for, if other replicas must have the batch."""


_Outcomes = list[tuple[TopicProduceData, list[_Outcome]]]


class _Common(NamedTuple):
    """The properties that all partitions of a request share."""

    version: int
    acks: int
    prepared: Iterator[Prepared] | None
    """The converted records, in their order, if some of them had to be converted."""
    verdicts: VerdictByPartition | None = None
    """On batches of transactions; None if the request names none."""


@dataclass(frozen=True, slots=True)
class ProduceHandler:
    """Answers Produce."""

    partitions: HostedPartitions
    flushing: LogFlusher
    clock: Clock
    leaders: CurrentLeaders
    old_formats: MessageFormatConversion
    validation: BatchValidation
    meters: Meters
    notifier: Notifier
    has_valid_lease: Callable[[], bool]
    """Returns whether this broker certainly still leads its partitions."""
    verification: TransactionVerification

    async def handle(
        self, context: RequestContext, request: ProduceRequest
    ) -> ProduceResponse | None:
        """Append every batch, flush where it is due, respond."""
        version, acks = context.api_version, request.acks
        must_prepare = self._must_prepare(request, version)
        prepared = await self._prepare(request, version) if must_prepare else None
        if request.transactional_id:
            # A verified batch must not overtake one under verification.
            async with self.verification.locks.hold(request.transactional_id):
                verdicts = await self._verify(request, version)
                outcomes = self._append_each(request, _Common(version, acks, prepared, verdicts))
        else:
            outcomes = self._append_each(request, _Common(version, acks, prepared))
        appended = [o.appended_to for _, found in outcomes for o in found if o.appended_to]
        if unflushed := await self.flushing.flush_where_due(appended):
            outcomes = [
                (topic, _without_failed_flushes(found, unflushed)) for topic, found in outcomes
            ]
        if late := [o for _, found in outcomes for o in found if o.awaited]:
            await self._replicate(late, context.received_ms + request.timeout_ms)
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

    async def _replicate(self, late: Sequence[_Outcome], deadline_ms: int) -> None:
        """Return when the replicas in sync have everything, or when that is not to be."""
        wanted = [outcome.awaited for outcome in late if outcome.awaited]
        errors = await committed(self.notifier, wanted, deadline_ms, self.has_valid_lease)
        for (response, *_), error in zip(late, errors, strict=True):
            if error is not None:
                self.meters.errors[ApiKey.PRODUCE, error.code] += 1
                response.error_code = error.code
                response.error_message = error.detail
                response.base_offset = response.log_start_offset = _NO_OFFSET

    def _must_prepare(self, request: ProduceRequest, version: int) -> bool:
        """Return whether batches are converted or validated first, or have to wait for others."""
        sent = (data.records for topic in request.topic_data for data in topic.partition_data)
        if version < _BATCHES_SINCE or not is_left_to_append(sent):
            return True
        names, configs = self._names_and_configs(request, version)
        return any(map(names_codec, configs)) or self.validation.is_at_work(names)

    async def _prepare(self, request: ProduceRequest, version: int) -> Iterator[Prepared]:
        """Convert message sets, and validate batches that are too slow for the append."""
        names, configs = self._names_and_configs(request, version)
        parts = (data.records for topic in request.topic_data for data in topic.partition_data)
        sent = [_NOTHING if records is None else records for records in parts]
        is_old = version < _BATCHES_SINCE
        batches: Sequence[Prepared] = await self.old_formats.batches(sent) if is_old else sent
        found = [checked_format(records, version) for records in batches]
        now_ms = self.clock.now_ms()
        return iter(await self.validation.batches(found, names, configs, now_ms))

    def _names_and_configs(
        self, request: ProduceRequest, version: int
    ) -> tuple[list[TopicPartition], list[TopicConfig | None]]:
        names: list[TopicPartition] = []
        configs: list[TopicConfig | None] = []
        for topic in request.topic_data:
            name = self._name_of(topic, version)
            for data in topic.partition_data:
                partition = TopicPartition(name or "", data.index)
                names.append(partition)
                configs.append(config_if_led(self.partitions.find(partition)))
        return names, configs

    async def _verify(self, request: ProduceRequest, version: int) -> VerdictByPartition:
        """Find out which batches of a transaction may be appended."""
        writes: list[Write] = []
        refused: dict[TopicPartition, ApiError] = {}
        for name, records in self._of_transactions(request, version):
            partition = self.partitions.find(name)
            if partition is None or partition.in_sync is None:
                # It may be led here by the time that others are verified.
                refused[name] = ApiError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} was not led here"
                )
            elif (write := _write_of(partition, records)) is not None:
                writes.append(write)
        if not writes:
            return refused
        assert request.transactional_id is not None
        support = Support(version >= _ADDING_SINCE, version >= _ABORTABLE_SINCE)
        verdicts = await self.verification.verdicts(request.transactional_id, writes, support)
        return {**verdicts, **refused}

    def _of_transactions(
        self, request: ProduceRequest, version: int
    ) -> Iterator[tuple[TopicPartition, memoryview]]:
        for topic in request.topic_data:
            name = self._name_of(topic, version)
            for data in topic.partition_data:
                records = data.records
                if records and len(records) >= HEADER_BYTES and _is_transactional(records):
                    yield TopicPartition(name or "", data.index), records

    def _name_of(self, topic: TopicProduceData, version: int) -> str | None:
        """Return the name of a topic, which newer versions name by id; None if it is not known."""
        by_id = version >= _TOPIC_IDS_SINCE
        return self.partitions.topic_name(topic.topic_id) if by_id else topic.name

    def _append_each(self, request: ProduceRequest, common: _Common) -> _Outcomes:
        return [(topic, list(self._append_all(topic, common))) for topic in request.topic_data]

    def _append_all(self, topic: TopicProduceData, common: _Common) -> Iterator[_Outcome]:
        name = self._name_of(topic, common.version)
        for data in topic.partition_data:
            records = data.records if common.prepared is None else next(common.prepared)
            try:
                if name is None:
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)  # noqa: TRY301
                yield self._append(TopicPartition(name, data.index), records, common)
            except ApiError as error:
                self.meters.errors[ApiKey.PRODUCE, error.code] += 1
                yield _Outcome(_refusal(data.index, error), None)

    def _append(self, name: TopicPartition, records: Prepared | None, common: _Common) -> _Outcome:
        partition = self.partitions.get(name)
        if not self.has_valid_lease():
            raise in_doubt(name)
        if common.acks not in ACKS_KNOWN:
            raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {common.acks}")
        if name.topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name.topic} is internal")
        if isinstance(records, ApiError):
            raise records
        data = _NOTHING if records is None else records
        raw = data.batch.raw if isinstance(data, Validated) else data
        if common.prepared is None:
            check_format(raw, common.version)
        is_awaited = common.acks == ACKS_ALL and not partition.is_alone
        if is_awaited:
            partition.check_leader()
            partition.check_enough_in_sync()
        if len(raw) > ATTRIBUTES_LOW_BYTE_AT and _is_transactional(raw):
            terms = _transaction_terms(common, name)
            appended = partition.append_as_leader(data, self.clock.now_ms(), terms=terms)
        else:
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
                response,
                partition,
                PendingReplication(partition, Offset(end_offset), partition.leader_epoch),
            )
        return _Outcome(response, partition)

    def _name_leaders(self, response: ProduceResponse, listener: str) -> None:
        """Add the leaders for clients that sent the request to the wrong broker (KIP-951)."""
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


def _write_of(partition: Partition, records: memoryview) -> Write | None:
    """Return the write to verify; other faults are reported by the append."""
    try:
        batch = batch_at(records)
    except ProtocolError:
        return None
    if batch.producer_id <= NO_PRODUCER_ID:
        return None
    return Write(partition, batch.producer_id, batch.producer_epoch, batch.base_sequence)


def _has_failed(outcomes: _Outcomes) -> bool:
    return any(outcome.response.error_code for _, found in outcomes for outcome in found)


def _is_transactional(data: memoryview) -> bool:
    return data[ATTRIBUTES_LOW_BYTE_AT] & TRANSACTIONAL_BIT != 0 and data[MAGIC_AT] == MAGIC


def _transaction_terms(common: _Common, name: TopicPartition) -> TransactionTerms:
    """Return on which terms a batch of a transaction is appended; ApiError if it is not."""
    if common.verdicts is None:
        detail = f"{name}: a batch of a transaction, and no transactional id"
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, detail)
    found = common.verdicts.get(name, VERIFIED_ONLY)
    if isinstance(found, TransactionTerms):
        return found
    is_busy = found.code == ErrorCode.CONCURRENT_TRANSACTIONS and common.version < _ADDING_SINCE
    if is_busy or found.code in _TRIED_AGAIN:
        raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, found.detail)
    raise found


def _without_failed_flushes(outcomes: list[_Outcome], unflushed: list[Partition]) -> list[_Outcome]:
    """Replace the results of partitions with a failed flush."""
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
                    f"a produce request with acks=0 failed for {name}-{answer.index}:"
                    f" {answer.error_message}",
                    ErrorCode(answer.error_code),
                )
