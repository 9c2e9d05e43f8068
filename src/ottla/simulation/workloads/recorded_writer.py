"""A producer in a simulated cluster, with one operation per value, and its transactions.

Many values are in flight at once, in batches. A producer continues after a failure, and keeps its
client name: abandoned values must not arrive behind later ones.

Before the first commit request a transaction has definitely not happened; so a client that dies
before leaves a failed one. From that request on the outcome is unknown, until there is a response.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Any, Final, Protocol

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.clients.producer.state.record_metadata import RecordMetadata
from ottla.clients.producer.state.settings import ProducerSettings
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.simulation.checks.history import Commit, History, Operation, Outcome, Sent, outcome_of
from ottla.simulation.world.machine import Machine

FILLER_BYTES_MAX: Final = 400
LINGERS_MS: Final = (0, 5, 50)
BATCH_SIZES: Final = (500, 2_000, 1_000_000)
IN_FLIGHT_MAX: Final = 5

REFUSED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""Codes that mean that a transaction is not committed, in response to a single request."""


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


class RecordedWriter:
    """One producer. `resolve` records the outcomes of its records."""

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

    def resolve(self) -> bool:
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
        self.resolve()
        assert not self._open, f"{self._client} was never told of {list(self._open)}"

    def _on_delivery(
        self, value: str, error: BaseException | None, metadata: RecordMetadata | None
    ) -> Any:
        self._landed.append((value, error, metadata))


def _outcome(error: BaseException) -> Outcome:
    return outcome_of(error) if isinstance(error, ApiError | OSError) else Outcome.UNKNOWN


class Client(Protocol):
    """A transactional client: a `TransactionalClient`, or a `RealTransactionalClient`."""

    transactional_id: str
    commits_asked: int
    """How often the commit of the transaction was asked for, or will be."""

    @property
    def needs_init(self) -> bool:
        """Whether `init` has to be called before it can go on."""
        ...

    async def init(self) -> None:
        """Become the producer of the transactional id, and fence the former one."""

    def begin(self) -> None:
        """Begin a transaction."""

    async def send(self, partition: TopicPartition, values: Sequence[bytes]) -> int:
        """Write some values; return the first offset, -1 if it is unknown."""
        ...

    async def send_unheard(self, partition: TopicPartition, values: Sequence[bytes]) -> None:
        """Write without waiting for the result."""

    async def send_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a group be there if the transaction commits."""

    async def end(self, *, is_commit: bool) -> None:
        """Commit or abort; return when that is decided."""

    def close(self) -> None:
        """Close every connection, now or soon."""


class RecordedTransaction:
    """The operations of one run of a client in one transaction."""

    def __init__(self, client: Client, history: History, life: str, stream: Random) -> None:
        client.begin()
        self._client = client
        self._history = history
        self._life = life
        self._stream = stream
        self._commits: list[Commit] = []
        self._operation: Operation = history.begin(life)
        self._operation.outcome = Outcome.FAILED

    @property
    def has_failed(self) -> bool:
        """Whether it is known that nothing of it has happened, nor will."""
        return self._operation.outcome is Outcome.FAILED

    async def send(self, name: TopicPartition, values: Sequence[str]) -> None:
        """Write some values."""
        sent = self._operation.sent
        first = len(sent)
        sent += [Sent(name, one) for one in values]
        base_offset = await self._client.send(name, [filled(one, self._stream) for one in values])
        if base_offset >= 0:
            sent[first:] = [
                one._replace(offset=base_offset + at) for at, one in enumerate(sent[first:])
            ]

    async def send_unheard(self, name: TopicPartition, value: str) -> None:
        """Write a value without waiting for the result; the transaction is aborted then."""
        self._operation.sent.append(Sent(name, value))
        await self._client.send_unheard(name, [filled(value, self._stream)])

    async def send_offset(self, group_id: str, name: TopicPartition, offset: int) -> None:
        """Let a group be there with the transaction."""
        commit = self._history.begin_commit(self._life, group_id, name, offset)
        commit.outcome = Outcome.FAILED
        self._commits.append(commit)
        await self._client.send_offsets(group_id, {name: offset})

    async def commit(self) -> None:
        """Have it happen."""
        self._note(Outcome.UNKNOWN)
        try:
            await self._client.end(is_commit=True)
        except ApiError as error:
            if self._client.commits_asked == 1 and error.code in REFUSED:
                self._note(Outcome.FAILED)
            raise
        self._note(Outcome.OK)
        self._history.end(self._operation, Outcome.OK)

    async def abort(self) -> None:
        """Have it not happen."""
        await self._client.end(is_commit=False)

    def _note(self, outcome: Outcome) -> None:
        self._operation.outcome = outcome
        for commit in self._commits:
            commit.outcome = outcome
