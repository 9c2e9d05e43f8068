"""The markers that partition leaders must write for an ended transaction."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.machines.transactions.producer_ids import Producer
from ottla.model.identifiers import TopicPartition, numbers_by_topic
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic


class OwedMarkers(NamedTuple):
    """The markers of one transaction with a decided end, and the partitions that lack them.

    The number identifies the end among all transactions of this machine: producers of transactions
    version 1 end many transactions with one epoch.
    """

    number: int
    transactional_id: str
    producer: Producer
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    coordinator_epoch: int
    transaction_version: int

    def message(self, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
        """Return the part of WriteTxnMarkers for the partitions that one broker leads."""
        topics = [
            WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
            for topic, numbers in numbers_by_topic(partitions).items()
        ]
        return WritableTxnMarker(
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            transaction_result=self.is_commit,
            topics=topics,
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=self.transaction_version,
        )
