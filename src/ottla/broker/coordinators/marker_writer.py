"""Writes transaction markers into the partitions that this broker leads.

A marker is refused if a later coordinator has written one before (TRANSACTION_COORDINATOR_FENCED),
or if the producer is in a later epoch by now (INVALID_PRODUCER_EPOCH). Since version 2 of
transactions the same epoch is refused, too (KIP-1228). A repeated marker does no harm: it ends
nothing the second time.

Components with state of a partition's transactions, such as the groups of `__consumer_offsets`, are
notified as soon as a marker is appended (`MarkerReader`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.replication_wait import PendingReplication, in_doubt
from ottla.environment.clock import Clock
from ottla.model.api_error import ApiError
from ottla.model.identifiers import Offset, ProducerId, TopicPartition
from ottla.replication.partition import Partition
from ottla.storage.log.admission import Origin
from ottla.storage.producers.transaction_terms import TransactionTerms
from ottla.wire.messages.write_txn_markers import WritableTxnMarker
from ottla.wire.records.control import ControlType, end_txn_marker


class MarkerReader(Protocol):
    """A component with state of the transactions in a topic's partitions."""

    def check_ready(self, name: TopicPartition) -> None:
        """Raise ApiError unless a marker can be taken over; nothing is appended then."""
        ...

    def on_marker(
        self,
        name: TopicPartition,
        producer_id: ProducerId,
        producer_epoch: int,
        *,
        is_commit: bool,
        offset: Offset,
    ) -> None:
        """Apply a marker that has just been appended at this offset."""
        ...


@dataclass(frozen=True, slots=True)
class MarkerWriter:
    """Appends markers."""

    partitions: HostedPartitions
    clock: Clock
    has_valid_lease: Callable[[], bool]
    """Returns whether this broker certainly still leads its partitions."""
    readers: Mapping[str, MarkerReader]
    """By topic."""

    def append_if_safe_at_once(self, name: TopicPartition, marker: WritableTxnMarker) -> bool:
        """Append a marker if it is committed by the append; return whether it was appended.

        Returns False, without an append, if replicas or the disk would have to be waited for, or if
        the marker is refused.
        """
        partition = self.partitions.find(name)
        if partition is None or not partition.is_alone:
            return False
        if partition.log.needs_flush(self.clock.now_ms(), more=1):
            return False
        try:
            self.append(name, marker)
        except ApiError:
            return False
        return True

    def append(self, name: TopicPartition, marker: WritableTxnMarker) -> PendingReplication:
        """Append a marker; return its replication to wait for. ApiError if it is refused."""
        partition = self.partitions.get(name)
        if not self.has_valid_lease():
            raise in_doubt(name)
        partition.check_leader()
        partition.check_enough_in_sync()
        reader = self.readers.get(name.topic)
        if reader is not None:
            reader.check_ready(name)
        offset = self._append_to(partition, marker)
        if reader is not None:
            reader.on_marker(
                name,
                ProducerId(marker.producer_id),
                marker.producer_epoch,
                is_commit=marker.transaction_result,
                offset=Offset(offset),
            )
        return PendingReplication(partition, Offset(offset + 1), partition.leader_epoch)

    def _append_to(self, partition: Partition, marker: WritableTxnMarker) -> int:
        now_ms = self.clock.now_ms()
        batch = end_txn_marker(
            ControlType.COMMIT if marker.transaction_result else ControlType.ABORT,
            marker.coordinator_epoch,
            marker.producer_id,
            marker.producer_epoch,
            now_ms,
        )
        appended = partition.append_as_leader(
            memoryview(batch),
            now_ms,
            origin=Origin.COORDINATOR,
            terms=TransactionTerms(marker.transaction_version),
        )
        return appended.base_offset
