"""The identity of a producer: a unique id, and an epoch that its successor's epoch fences.

Epochs go up to 32766. The epoch above is never assigned, so that the coordinator can always fence
the current producer; after it comes a new producer id with epoch 0.
"""

from typing import Final, NamedTuple

from ottla.model.identifiers import ProducerId

NO_ID: Final = ProducerId(-1)
NO_EPOCH: Final = -1
EPOCH_MAX: Final = (1 << 15) - 1
LAST_EPOCH_GIVEN: Final = EPOCH_MAX - 1


class Producer(NamedTuple):
    """A producer id and its epoch."""

    producer_id: ProducerId
    epoch: int

    @property
    def is_exhausted(self) -> bool:
        """Whether the next producer needs another id."""
        return self.epoch >= LAST_EPOCH_GIVEN

    def fenced(self) -> "Producer":
        """Return the same id in an epoch that is above all that were given to clients."""
        return self._replace(epoch=min(self.epoch + 1, EPOCH_MAX))


class NeedsProducerId(NamedTuple):
    """No response yet: get a new producer id, and decide again with it."""


NO_PRODUCER: Final = Producer(NO_ID, NO_EPOCH)


class ProducerIdNeeded(Exception):  # noqa: N818 - not an error: control flow to get an id
    """Deciding cannot go on without a producer id."""


def successor(producer: Producer, fresh_id: int | None) -> Producer:
    """Return the next producer; raise ProducerIdNeeded if that needs an id and none was given."""
    if not producer.is_exhausted:
        return Producer(producer.producer_id, producer.epoch + 1)
    return first_of(fresh_id)


def first_of(fresh_id: int | None) -> Producer:
    """Return the first producer of an id; raise ProducerIdNeeded if there is none."""
    if fresh_id is None:
        raise ProducerIdNeeded
    return Producer(ProducerId(fresh_id), 0)
