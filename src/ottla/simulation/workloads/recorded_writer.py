"""A producer in a simulated cluster, with one operation per value.

Many values are in flight at once, in batches. A producer continues after a failure, and keeps its
client name: abandoned values must not arrive behind later ones.
"""

from functools import partial
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Any, Final

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.clients.producer.state.record_metadata import RecordMetadata
from ottla.clients.producer.state.settings import ProducerSettings
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.simulation.checks.history import History, Operation, Outcome, Sent, outcome_of
from ottla.simulation.world.machine import Machine

FILLER_BYTES_MAX: Final = 400
LINGERS_MS: Final = (0, 5, 50)
BATCH_SIZES: Final = (500, 2_000, 1_000_000)
IN_FLIGHT_MAX: Final = 5


def writing(stream: Random, timeout_ms: int) -> ProducerSettings:
    """Draw how a producer behaves: how it gathers records, and how many batches fly at once."""
    return ProducerSettings(
        linger_ms=stream.choice(LINGERS_MS),
        batch_size=stream.choice(BATCH_SIZES),
        max_in_flight_requests_per_connection=stream.randint(1, IN_FLIGHT_MAX),
        delivery_timeout_ms=timeout_ms,
        max_block_ms=timeout_ms,
    )


def filled(value: str, stream: Random) -> bytes:
    """Return the bytes of a value, with padding."""
    return b"%s %s" % (value.encode(), b"." * stream.randrange(FILLER_BYTES_MAX))


class NotedWriter:
    """One producer. `settle` records the outcomes of its records."""

    def __init__(
        self,
        history: History,
        client: str,
        machine: Machine,
        view: ClusterView,
        settings: ProducerSettings,
    ) -> None:
        self._history = history
        self._client = client
        self._count = 0
        self._open: dict[str, Operation] = {}
        self._landed: list[tuple[str, BaseException | None, RecordMetadata | None]] = []
        self._producer = AsyncProducer.in_world(view, machine.clock, machine.randomness, settings)

    async def send(self, name: TopicPartition, stream: Random) -> None:
        """Send one value, without waiting for the result."""
        self._count += 1
        value = f"{self._client}.{self._count}"
        operation = self._open[value] = self._history.begin(self._client, [Sent(name, value)])
        try:
            await self._producer.send(
                name.topic,
                filled(value, stream),
                partition=name.partition,
                on_delivery=partial(self._on_delivery, value),
            )
        except (ApiError, OSError):
            del self._open[value]
            self._history.end(operation, Outcome.FAILED)  # it was never queued
            raise

    def settle(self) -> bool:
        """Record outcomes; return whether there is a failure among them."""
        landed, self._landed = self._landed, []
        for value, error, metadata in landed:
            operation = self._open.pop(value)
            if error is None:
                assert metadata is not None
                if metadata.offset >= 0:
                    operation.sent = [operation.sent[0]._replace(offset=metadata.offset)]
                self._history.end(operation, Outcome.OK)
            else:
                self._history.end(operation, _outcome(error))
        return any(error is not None for _, error, _ in landed)

    async def close(self) -> None:
        """Close the producer, which tells the end of every record in time."""
        await self._producer.close()
        self.settle()
        assert not self._open, f"{self._client} was never told of {list(self._open)}"

    def _on_delivery(
        self, value: str, error: BaseException | None, metadata: RecordMetadata | None
    ) -> Any:
        self._landed.append((value, error, metadata))


def _outcome(error: BaseException) -> Outcome:
    return outcome_of(error) if isinstance(error, ApiError | OSError) else Outcome.UNKNOWN
