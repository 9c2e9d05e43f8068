"""TxnOffsetCommit v0-v5: commit offsets of a group as part of a transaction.

The offsets are written into the group's partition as a part of the transaction, which must contain
that partition: before its first offset the transaction's coordinator verifies that, and since
version 5 it adds the partition (`transaction_verification.py`). Until the marker comes, OffsetFetch
shows the former offset, or an error for a pending one. Partitions that do not exist are refused one
by one.
"""

from dataclasses import dataclass

from ottla.broker.coordinators.coordinator_log import OffsetsTransaction
from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.coordinators.transaction_verification import (
    Support,
    TransactionVerification,
    Write,
)
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ProducerId
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.records.batch import NO_SEQUENCE

VERSIONS = range(6)
_LOADING_SINCE = 2
_ABORTABLE_SINCE = 4
_ADDING_SINCE = 5


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitHandler:
    """Answers TxnOffsetCommit."""

    coordinator: GroupCoordinator
    store: MetadataStore
    verification: TransactionVerification

    async def handle(
        self, context: RequestContext, request: TxnOffsetCommitRequest
    ) -> TxnOffsetCommitResponse:
        """Write the offsets of existing partitions; they count when the transaction commits."""
        version = context.api_version
        asked = request.topics
        try:
            response = await self._commit(request, version)
        except ApiError as error:
            code = _code_for_version(error.code, version)
            return TxnOffsetCommitResponse(topics=[_all_with(topic, code) for topic in asked])
        return TxnOffsetCommitResponse(
            topics=[
                _merged(topic, answered)
                for topic, answered in zip(asked, response.topics, strict=True)
            ]
        )

    async def _commit(
        self, request: TxnOffsetCommitRequest, version: int
    ) -> TxnOffsetCommitResponse:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the id is empty")
        transaction = await self._transaction(request, version)
        request.topics = [self._existing(topic) for topic in request.topics]
        images = self.store.image.topics
        topic_ids = {t.name: images[t.name].topic_id for t in request.topics if t.name in images}
        now = self.coordinator.moment()
        response = self.coordinator.execute_in_transaction(
            request.group_id,
            transaction,
            lambda machine: machine.decide_transactional_commit(request, topic_ids, now),
        )
        await self.coordinator.wait_replicated(request.group_id)
        return response

    async def _transaction(
        self, request: TxnOffsetCommitRequest, version: int
    ) -> OffsetsTransaction:
        """Return the transaction, which has the group's partition; ApiError if it does not."""
        partition = self.coordinator.partition_of(request.group_id)
        producer = (ProducerId(request.producer_id), request.producer_epoch)
        support = Support(version >= _ADDING_SINCE, version >= _ABORTABLE_SINCE)
        write = Write(partition, *producer, NO_SEQUENCE)
        verdicts = await self.verification.verdicts(request.transactional_id, [write], support)
        verdict = verdicts[partition.name]
        if isinstance(verdict, ApiError):
            raise verdict
        return OffsetsTransaction(*producer, verdict)

    def _existing(self, topic: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitRequestTopic:
        found = self.store.image.topics.get(topic.name)
        return TxnOffsetCommitRequestTopic(
            name=topic.name,
            partitions=[
                each
                for each in topic.partitions
                if found is not None and found.partition(each.partition_index)
            ],
        )


def _code_for_version(code: ErrorCode, version: int) -> ErrorCode:
    """Say it in words that a client of this version expects of a coordinator."""
    if code == ErrorCode.NETWORK_EXCEPTION:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _all_with(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


def _merged(
    topic: TxnOffsetCommitRequestTopic, answered: TxnOffsetCommitResponseTopic
) -> TxnOffsetCommitResponseTopic:
    """Return a result for every partition: the machine's, or an error for an unknown one."""
    code_by_index = {each.partition_index: each.error_code for each in answered.partitions}
    merged = _all_with(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for each in merged.partitions:
        each.error_code = code_by_index.get(each.partition_index, each.error_code)
    return merged
