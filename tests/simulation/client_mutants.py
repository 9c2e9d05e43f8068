"""Clients that are wrong, in ways that clients have been: each must be found out."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from ottla.clients.consumer.fetching.prefetcher import Prefetcher
from ottla.clients.consumer.state.subscription import Position, SubscriptionState
from ottla.clients.producer.batching.ready_batch import NOBODY, PartitionQueue, ReadyBatch
from ottla.model.identifiers import TopicPartition
from tests.simulation.mutants import patched


def numbering_anew_what_is_sent_again() -> AbstractContextManager[None]:
    """A batch that is sent again gets other sequences, so that no broker knows the copy."""
    queue_again = PartitionQueue.queue_again

    def queue_numbered(self: PartitionQueue, shipments: Sequence[ReadyBatch]) -> None:
        for one in shipments:
            if one.producer != NOBODY:
                self.assign(one)
        queue_again(self, shipments)

    return patched(PartitionQueue, "queue_again", queue_numbered)


def committing_what_was_only_fetched() -> AbstractContextManager[None]:
    """A consumer commits what it has, before the application has been given it."""

    def fetched(self: SubscriptionState) -> dict[TopicPartition, Position]:
        return {
            name: partition.fetch_position
            for name, partition in self.assigned.items()
            if partition.fetch_position is not None
        }

    return patched(SubscriptionState, "consumed", fetched)


def trusting_every_new_leader() -> AbstractContextManager[None]:
    """A consumer does not ask a new leader whether it has what was read: before KIP-320."""
    return patched(Prefetcher, "_must_validate", staticmethod(lambda *_: False))


def sending_ahead_of_the_first() -> AbstractContextManager[None]:
    """A producer sends on to a new leader while its first batch is still on its way to the old."""
    return patched(PartitionQueue, "is_first_awaited", property(lambda _: False))
