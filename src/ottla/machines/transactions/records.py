"""The records of transactional ids, in Kafka's format.

Kafka leaves out the previous and the next producer, and forgets both at a reload; here they are
written, in the fields that Kafka has for them. Version 0, for `transaction.version` 0, lacks the
fields.
"""

from typing import Final, NamedTuple

from ottla.machines.transactions.producer_ids import NO_EPOCH, NO_ID, NO_PRODUCER, Producer
from ottla.machines.transactions.transaction import FORMAT_LEVEL, State, Transaction
from ottla.model.identifiers import ProducerId, TopicPartition, numbers_by_topic
from ottla.wire.coordinator_records.transaction_state import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

_STATES: Final = (
    State.EMPTY,
    State.ONGOING,
    State.PREPARE_COMMIT,
    State.PREPARE_ABORT,
    State.COMPLETE_COMMIT,
    State.COMPLETE_ABORT,
    State.DEAD,
    State.PREPARE_EPOCH_FENCE,
)
_NUMBERS: Final = {state: number for number, state in enumerate(_STATES)}


class TransactionRecord(NamedTuple):
    """A record to append: its value is written in this version, and None is a tombstone."""

    transactional_id: str
    transaction: Transaction | None
    """The exact result of reading the record."""
    version: int

    @property
    def key(self) -> TransactionLogKey:
        """The key, to be written."""
        return TransactionLogKey(transactional_id=self.transactional_id)

    @property
    def value(self) -> TransactionLogValue | None:
        """The value, to be written."""
        return None if self.transaction is None else _value_of(self.transaction)


def record_of(transaction: Transaction, level: int) -> TransactionRecord:
    """Create the record of a transactional id, in the format of this `transaction.version`."""
    if level < FORMAT_LEVEL:
        transaction = transaction._replace(
            previous_producer_id=NO_ID, next_producer=NO_PRODUCER, client_version=0
        )
    return TransactionRecord(transaction.transactional_id, transaction, min(level, 1))


def tombstone(transactional_id: str) -> TransactionRecord:
    """Create the record that removes a transactional id."""
    return TransactionRecord(transactional_id, None, 0)


def _value_of(transaction: Transaction) -> TransactionLogValue:
    is_empty = transaction.state is State.EMPTY
    return TransactionLogValue(
        producer_id=transaction.producer.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer.producer_id,
        producer_epoch=transaction.producer.epoch,
        next_producer_epoch=transaction.next_producer.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=_NUMBERS[transaction.state],
        transaction_partitions=None if is_empty else _topics_of(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )


def transaction_of(transactional_id: str, value: TransactionLogValue) -> Transaction | None:
    """Read a transactional id from its record, ours or Kafka's; None in a state that is not one."""
    if not 0 <= value.transaction_status < len(_STATES):
        return None
    # Kafka counts a new id from 0 without saying so.
    next_epoch = 0 if value.next_producer_epoch == NO_EPOCH else value.next_producer_epoch
    has_next = value.next_producer_id != NO_ID
    return Transaction(
        transactional_id=transactional_id,
        producer=Producer(ProducerId(value.producer_id), value.producer_epoch),
        timeout_ms=value.transaction_timeout_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        state=_STATES[value.transaction_status],
        previous_producer_id=ProducerId(value.previous_producer_id),
        next_producer=Producer(ProducerId(value.next_producer_id), next_epoch)
        if has_next
        else NO_PRODUCER,
        partitions=tuple(
            sorted(
                TopicPartition(topic.topic, partition)
                for topic in value.transaction_partitions or ()
                for partition in topic.partition_ids
            )
        ),
        start_ms=value.transaction_start_timestamp_ms,
        client_version=value.client_transaction_version,
    )


def _topics_of(partitions: tuple[TopicPartition, ...]) -> list[PartitionsSchema]:
    if not partitions:
        return []
    return [
        PartitionsSchema(topic=topic, partition_ids=numbers)
        for topic, numbers in numbers_by_topic(partitions).items()
    ]
