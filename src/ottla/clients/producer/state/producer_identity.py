"""The producer id and epoch, and the consequences of refused batches.

A producer has an id and an epoch, and numbers the records of each partition. A broker accepts a
batch only if its sequence follows the last, and recognizes duplicates. The remedy for all three
possible faults is the same: wait until no batch of the partition is in flight, raise the epoch by
one, and number the remaining batches from 0. A batch that may have been written is never renumbered
before a broker has confirmed that it is missing.
"""

from collections.abc import Collection
from typing import Final, Protocol

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import check
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
EPOCH_MAX: Final = 2**15 - 1
SEQUENCE_MODULUS: Final = 2**31
_NO_TRANSACTION_MS: Final = 2**31 - 1


class Identity(Protocol):
    """The sender's callbacks before and after sending. All calls are in the event loop."""

    @property
    def producer_id(self) -> int:
        """The producer id from the cluster; -1 if the producer is not idempotent."""
        ...

    @property
    def producer_epoch(self) -> int:
        """The producer epoch; after a change of epoch or id, sequences restart at 0."""
        ...

    @property
    def is_transactional(self) -> bool:
        """Whether batches belong to a transaction."""
        ...

    @property
    def transactional_id(self) -> str | None:
        """The transactional id in every Produce request of a transactional producer."""
        ...

    @property
    def produce_version_max(self) -> int | None:
        """The highest usable Produce version, None if there is no limit."""
        ...

    def sends_at_once(self) -> bool:
        """Return whether batches go without `before_send`."""
        ...

    async def before_send(self, partitions: Collection[TopicPartition]) -> None:
        """Return when these partitions may be written to: they belong to the transaction.

        Called before each request, in order; an ApiError or OSError fails or delays its batches.
        """
        ...

    def batch_failed(self, partition: TopicPartition, error: Exception) -> None:
        """Handle a failed batch: a transaction can then only be aborted."""
        ...


class PlainIdentity:
    """Idempotent, without transactions: any broker issues the id; the producer raises the epoch."""

    is_transactional = False
    transactional_id = None
    produce_version_max = None

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH

    @property
    def is_ready(self) -> bool:
        """Whether there is a producer id."""
        return self.producer_id != NO_PRODUCER_ID

    async def introduce(self) -> None:
        """Request a producer id from any broker."""
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_MS
        )
        response = await self._view.ask_any(request, InitProducerIdResponse)
        check(response.error_code, "an id for the producer")
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch

    def sends_at_once(self) -> bool:
        """Return True: there is nothing to wait for."""
        return True

    async def before_send(self, partitions: Collection[TopicPartition]) -> None:
        """Do nothing: plain producers need no preparation."""

    def bump(self) -> None:
        """Raise the epoch; after the last epoch, request a new producer id."""
        if self.producer_epoch < EPOCH_MAX:
            self.producer_epoch += 1
        else:
            self.producer_id, self.producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH

    def batch_failed(self, partition: TopicPartition, error: Exception) -> None:
        """Do nothing: other batches are not affected."""


class NoIdentity:
    """Neither idempotent nor transactional: batches carry no numbers."""

    is_transactional = False
    transactional_id = None
    produce_version_max = None
    producer_id = NO_PRODUCER_ID
    producer_epoch = NO_PRODUCER_EPOCH

    def sends_at_once(self) -> bool:
        """Return True: there is nothing to wait for."""
        return True

    async def before_send(self, partitions: Collection[TopicPartition]) -> None:
        """Do nothing: plain producers need no preparation."""

    def batch_failed(self, partition: TopicPartition, error: Exception) -> None:
        """Do nothing: other batches are not affected."""
