"""Transactions of one client, recorded in a history.

Before the first commit request a transaction has definitely not happened; so a client that dies
before leaves a failed one. From that request on the outcome is unknown, until there is a response.
"""

from collections.abc import Mapping, Sequence
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final, Protocol

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.simulation.checks.history import Commit, History, Operation, Outcome, Sent
from ottla.simulation.workloads.recorded_writer import filled

REFUSED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""Codes that mean that a transaction is not committed, in response to a single request."""


class Client(Protocol):
    """A transactional client: a `TransactionalClient`, or a `ProducingClient`."""

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


class NotedTransaction:
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
