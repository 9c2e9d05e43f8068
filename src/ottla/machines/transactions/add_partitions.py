"""AddPartitionsToTxn and AddOffsetsToTxn: the partitions of a transaction.

In version 1 of transactions producers add partitions before they write to them, and leaders verify
that they have (verify only). In version 2 the leader that gets a transaction's first batch adds its
partition itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.machines.decision import Decision
from ottla.machines.moment import Moment
from ottla.machines.transactions.calls import ABORTABLE_SINCE, Records, answer_only, known
from ottla.machines.transactions.producer_ids import EPOCH_MAX, Producer
from ottla.machines.transactions.records import TransactionRecord, record_of
from ottla.machines.transactions.transaction import PREPARED, State, Transaction
from ottla.machines.transactions.transaction_store import TransactionStore
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ProducerId, TopicPartition
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BROKERS_SINCE: Final = 4
"""From which version of AddPartitionsToTxn on it comes from a broker, not from a producer."""


class Enlistment(NamedTuple):
    """The request of a producer, or of a leader on its behalf, to add partitions."""

    transactional_id: str
    producer: Producer
    partitions: Sequence[TopicPartition]
    is_adding: bool
    """Whether the partitions are to be added; else they are to be there already."""


class AddPartitionsRequests:
    """Decides about partitions that are added to transactions, or said to be in them."""

    def __init__(self, store: TransactionStore) -> None:
        self._store = store

    def add_partitions(
        self, wanted: AddPartitionsToTxnTransaction, api_version: int, now: Moment
    ) -> Decision[TransactionRecord, AddPartitionsToTxnResult]:
        """Decide about one transaction of AddPartitionsToTxn: all its partitions, or none."""
        partitions = [
            TopicPartition(topic.name, partition)
            for topic in wanted.topics
            for partition in topic.partitions
        ]
        records, codes = self._enlist(
            Enlistment(
                wanted.transactional_id,
                Producer(ProducerId(wanted.producer_id), wanted.producer_epoch),
                partitions,
                is_adding=not wanted.verify_only,
            ),
            api_version,
            now,
        )
        return Decision(records, _result(wanted, codes))

    def enlist(
        self, wanted: Enlistment, now: Moment
    ) -> Decision[TransactionRecord, dict[TopicPartition, ErrorCode]]:
        """Decide the same for a leader on this broker; the response has a code for each."""
        return Decision(*self._enlist(wanted, ABORTABLE_SINCE, now))

    def _enlist(
        self, wanted: Enlistment, api_version: int, now: Moment
    ) -> tuple[Records, dict[TopicPartition, ErrorCode]]:
        partitions = wanted.partitions
        try:
            found = self._checked(wanted.transactional_id, wanted.producer)
            if not wanted.is_adding:
                return (), _verified(found, partitions, api_version)
            version = self._store.version_of(is_able=api_version >= BROKERS_SINCE)
            records = self._added(found, partitions, version, now)
        except ApiError as error:
            return (), dict.fromkeys(partitions, known(error.code, api_version))
        return records, dict.fromkeys(partitions, ErrorCode.NONE)

    def add_offsets(
        self,
        request: AddOffsetsToTxnRequest,
        partition: TopicPartition,
        api_version: int,
        now: Moment,
    ) -> Decision[TransactionRecord, AddOffsetsToTxnResponse]:
        """Decide about AddOffsetsToTxn, for the partition that keeps the group's offsets."""
        asker = Producer(ProducerId(request.producer_id), request.producer_epoch)
        try:
            found = self._checked(request.transactional_id, asker)
            records = self._added(found, [partition], self._store.version_of(is_able=False), now)
        except ApiError as error:
            return answer_only(AddOffsetsToTxnResponse(error_code=known(error.code, api_version)))
        return Decision(records, AddOffsetsToTxnResponse())

    def _checked(self, transactional_id: str, asker: Producer) -> Transaction:
        found = self._store.asked_for(transactional_id, asker)
        if asker != found.holder or asker.epoch == EPOCH_MAX:
            raise ApiError(
                ErrorCode.PRODUCER_FENCED, f"{transactional_id} is at epoch {found.holder.epoch}"
            )
        if found.state in PREPARED:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{transactional_id} is about to end")
        if found.is_kept:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, f"{transactional_id} was kept only to be ended"
            )
        return found

    def _added(
        self, found: Transaction, partitions: Iterable[TopicPartition], version: int, now: Moment
    ) -> Records:
        if set(partitions) <= set(found.partitions):
            return ()
        self._store.decided_ms = now.monotonic_ms
        added = found.with_partitions(partitions, version, now.wall_ms)
        return (record_of(added, self._store.level),)


def _verified(
    found: Transaction, partitions: Iterable[TopicPartition], api_version: int
) -> dict[TopicPartition, ErrorCode]:
    knows = api_version >= ABORTABLE_SINCE
    missing = ErrorCode.TRANSACTION_ABORTABLE if knows else ErrorCode.INVALID_TXN_STATE
    there = set(found.partitions) if found.state is State.ONGOING else ()
    return {
        partition: ErrorCode.NONE if partition in there else missing for partition in partitions
    }


def _result(
    wanted: AddPartitionsToTxnTransaction, codes: Mapping[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnResult:
    topics = [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition,
                    partition_error_code=codes[TopicPartition(topic.name, partition)],
                )
                for partition in topic.partitions
            ],
        )
        for topic in wanted.topics
    ]
    return AddPartitionsToTxnResult(transactional_id=wanted.transactional_id, topic_results=topics)
