"""AddPartitionsToTxn v0-v5: add partitions to transactions, or verify them.

Up to version 3 producers send it, for one transaction. Since version 4 leaders send it, for the
transactions of many producers, and each may be a verification only. Of one transaction all
partitions are added or none: if a partition does not exist, the others are OPERATION_NOT_ATTEMPTED.
The response waits until no coordinator can lose the addition.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.metadata_store.store import MetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

VERSIONS = range(6)
_MANY_SINCE = 4


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnHandler:
    """Answers AddPartitionsToTxn."""

    coordinator: TransactionCoordinator
    store: MetadataStore

    async def handle(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse:
        """Decide all requests, then wait for all."""
        version = context.api_version
        is_many = version >= _MANY_SINCE
        transactions = request.transactions if is_many else [_only(request)]
        if not is_many:  # the transactions of other producers must not wait for one
            await self.coordinator.ended(transactions[0].transactional_id)
        results = [self._add(transaction, version) for transaction in transactions]
        await self._wait_replicated(transactions, results)
        if is_many:
            return AddPartitionsToTxnResponse(results_by_transaction=results)
        (result,) = results
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)

    def _add(
        self, transaction: AddPartitionsToTxnTransaction, version: int
    ) -> AddPartitionsToTxnResult:
        missing = self._missing(transaction)
        if missing:
            return _without(missing, transaction)
        now = self.coordinator.moment()
        try:
            return self.coordinator.execute(
                transaction.transactional_id,
                lambda machine: machine.decide_add_partitions(transaction, version, now),
            )
        except ApiError as error:
            return _all_with(transaction, error.code)

    async def _wait_replicated(
        self,
        transactions: Sequence[AddPartitionsToTxnTransaction],
        results: list[AddPartitionsToTxnResult],
    ) -> None:
        for number, transaction in enumerate(transactions):
            try:
                await self.coordinator.wait_replicated(transaction.transactional_id)
            except ApiError as error:
                results[number] = _all_with(transaction, error.code)

    def _missing(self, transaction: AddPartitionsToTxnTransaction) -> set[TopicPartition]:
        topics = self.store.image.topics
        return {
            TopicPartition(topic.name, index)
            for topic in transaction.topics
            for index in topic.partitions
            if topic.name not in topics or topics[topic.name].partition(index) is None
        }


def _only(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _without(
    missing: set[TopicPartition], transaction: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult:
    result = _all_with(transaction, ErrorCode.OPERATION_NOT_ATTEMPTED)
    for topic in result.topic_results:
        for each in topic.results_by_partition:
            if TopicPartition(topic.name, each.partition_index) in missing:
                each.partition_error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return result


def _all_with(
    transaction: AddPartitionsToTxnTransaction, code: ErrorCode
) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code
                    )
                    for index in topic.partitions
                ],
            )
            for topic in transaction.topics
        ],
    )
