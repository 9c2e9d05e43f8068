"""The producer id and epoch, and the consequences of refused batches.

A producer has an id and an epoch, and numbers the records of each partition. A broker accepts a
batch only if its sequence follows the last one, and recognizes duplicates. Three faults are
possible, with the same remedy: wait until no batch of the partition is in flight, raise the epoch
by one, and number the remaining batches from 0. A batch that may have been written without our
knowledge is never numbered again before a broker has confirmed that it is missing.
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
    """The sender's questions before and after sending. All calls are in the event loop."""

    @property
    def producer_id(self) -> int:
        """The number that the cluster has given, or -1 for a producer that is not idempotent."""
        ...

    @property
    def producer_epoch(self) -> int:
        """Counts up; whenever it or the id changes, sequences begin at 0 again."""
        ...

    @property
    def is_transactional(self) -> bool:
        """Whether batches belong to a transaction."""
        ...

    @property
    def transactional_id(self) -> str | None:
        """The name that goes into every Produce request of a transactional producer."""
        ...

    @property
    def produce_version_max(self) -> int | None:
        """How far Produce may go, None if there is no limit."""
        ...

    def sends_at_once(self) -> bool:
        """Tell whether batches may go, which they then do; else `before_send` comes first."""
        ...

    async def before_send(self, partitions: Collection[TopicPartition]) -> None:
        """Return when these partitions may be written to: they are added to the transaction.

        Called before each request, in order; an ApiError or OSError fails or delays its batches.
        """
        ...

    def batch_failed(self, partition: TopicPartition, error: Exception) -> None:
        """Hear that a batch is given up: a transaction can then only be aborted."""
        ...


class PlainIdentity:
    """Idempotent, without transactions: any broker gives an id, and the epoch is ours to raise."""

    is_transactional = False
    transactional_id = None
    produce_version_max = None

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH

    @property
    def is_ready(self) -> bool:
        """Whether an id was given."""
        return self.producer_id != NO_PRODUCER_ID

    async def introduce(self) -> None:
        """Ask any broker for an id."""
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_MS
        )
        answer = await self._view.ask_any(request, InitProducerIdResponse)
        check(answer.error_code, "an id for the producer")
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

    def sends_at_once(self) -> bool:
        """Return True: there is nothing to wait for."""
        return True

    async def before_send(self, partitions: Collection[TopicPartition]) -> None:
        """Return at once: nothing is to be done."""

    def bump(self) -> None:
        """Raise the epoch; after the last epoch, request a new producer id."""
        if self.producer_epoch < EPOCH_MAX:
            self.producer_epoch += 1
        else:
            self.producer_id, self.producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH

    def batch_failed(self, partition: TopicPartition, error: Exception) -> None:
        """Do nothing: other batches are not concerned."""


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
        """Return at once: nothing is to be done."""

    def batch_failed(self, partition: TopicPartition, error: Exception) -> None:
        """Do nothing: other batches are not concerned."""
