"""What the leaders of a transaction's partitions are to be told: how it ended."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.machines.transactions.producer_ids import Producer
from ottla.model.identifiers import TopicPartition, numbers_by_topic
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic


class OwedMarkers(NamedTuple):
    """The markers of one transaction whose end is decided, and where they are not yet.

    The number tells its end from that of every other transaction of this machine: producers in
    the first version of transactions end many with one epoch.
    """

    number: int
    transactional_id: str
    producer: Producer
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    coordinator_epoch: int
    transaction_version: int

    def message(self, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
        """Return the part of WriteTxnMarkers for those of the partitions that one broker leads."""
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
