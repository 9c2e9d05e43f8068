"""Clients with bugs that real clients have had: the checkers must find each."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from ottla.clients.consumer.fetching.prefetcher import Prefetcher
from ottla.clients.consumer.state.subscription import Position, SubscriptionState
from ottla.clients.producer.batching.ready_batch import NO_PRODUCER, PartitionQueue, ReadyBatch
from ottla.model.identifiers import TopicPartition
from tests.simulation.mutants import patched


def numbering_anew_what_is_sent_again() -> AbstractContextManager[None]:
    """A retried batch gets new sequence numbers, so that no broker recognizes the duplicate."""
    queue_again = PartitionQueue.queue_again

    def queue_numbered(self: PartitionQueue, ready_batches: Sequence[ReadyBatch]) -> None:
        for one in ready_batches:
            if one.producer != NO_PRODUCER:
                self.assign(one)
        queue_again(self, ready_batches)

    return patched(PartitionQueue, "queue_again", queue_numbered)


def committing_what_was_only_fetched() -> AbstractContextManager[None]:
    """A consumer commits the position of fetched records that the application has not got yet."""

    def fetched(self: SubscriptionState) -> dict[TopicPartition, Position]:
        return {
            name: partition.fetch_position
            for name, partition in self.assigned.items()
            if partition.fetch_position is not None
        }

    return patched(SubscriptionState, "consumed", fetched)


def trusting_every_new_leader() -> AbstractContextManager[None]:
    """A consumer does not check its position with a new leader's log: before KIP-320."""
    return patched(Prefetcher, "_must_validate", staticmethod(lambda *_: False))


def sending_ahead_of_the_first() -> AbstractContextManager[None]:
    """A producer sends to a new leader while its first batch is in flight to the old leader."""
    return patched(PartitionQueue, "is_first_awaited", property(lambda _: False))
