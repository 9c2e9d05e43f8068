"""The transactional calls of a producer: for asyncio, and for threads.

The work is in Transactions; here are the public names, and the end of a `with` block.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from threading import Lock
from typing import Any, TypeVar

from ottla.clients.producer.core import ProducerCore
from ottla.clients.producer.transactions.transaction_errors import (
    TransactionFailedError,
    TransactionStateError,
)
from ottla.clients.producer.transactions.transaction_requests import GroupMetadata, OffsetToCommit
from ottla.clients.producer.transactions.transaction_state import PreparedTxnState, State
from ottla.clients.producer.transactions.transactions import Transactions
from ottla.clients.threads.loop_thread import LoopThread
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.settings import INT32_MAX, INT64_MAX
from ottla.wire.writing import STRING_BYTES_MAX

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupName:
    """A group known by its name alone: its members cannot be fenced."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class AsyncTransactionCalls(ABC):
    """The transactional half of an asyncio producer. Each call takes at most max.block.ms."""

    @property
    @abstractmethod
    def _core(self) -> ProducerCore:
        """The producer's core."""

    async def init_transactions(self, *, keep_prepared_txn: bool = False) -> None:
        """Register this producer by its transactional.id, before the first transaction.

        The former producer of the id is fenced, and its open transaction aborted. With
        keep_prepared_txn a prepared transaction is kept: then complete_transaction must be called
        first.
        """
        await self._core.transactional().init(keep_prepared_txn=keep_prepared_txn)

    async def begin_transaction(self) -> None:
        """Begin a transaction: records sent from now on are in it."""
        await self._core.transactional().begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[Any, Any], group_metadata: GroupMetadata | str
    ) -> None:
        """Commit a group's offsets atomically with the transaction.

        Offsets by TopicPartition: the number of the next record to read, or an object with
        offset, metadata and leader_epoch. With `consumer.group_metadata()` the coordinator refuses
        a consumer that has left the group; with a bare group name it cannot.
        """
        await self._core.transactional().send_offsets(*_commit_of(offsets, group_metadata))

    async def commit_transaction(self) -> None:
        """Send all pending records, and commit.

        TransactionAbortableError: nothing is committed, call abort_transaction. NoResponseError:
        the result is unknown, call this again. Any other error: close the producer.
        """
        await self._core.transactional().commit()

    async def abort_transaction(self) -> None:
        """Drop all pending records, and abort; read_committed consumers skip the sent ones."""
        await self._core.transactional().abort()

    async def prepare_transaction(self, *, can_time_out: bool = False) -> PreparedTxnState:
        """Send all pending records, and leave the end to complete_transaction (KIP-939).

        Store the result in the same step as the data that belongs to it. Needs
        transaction.two.phase.commit.enable; without it, and with can_time_out, the broker aborts
        the transaction after transaction.timeout.ms.
        """
        return await self._core.transactional().prepare(can_time_out=can_time_out)

    async def complete_transaction(self, prepared: PreparedTxnState | str) -> bool:
        """Commit if this is the prepared transaction, else abort; return True after a commit."""
        return await self._core.transactional().complete(_named(prepared))

    @property
    def prepared_transaction_state(self) -> PreparedTxnState | None:
        """The prepared transaction that awaits complete_transaction, if there is one."""
        return self._core.transactional().prepared_transaction_state

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin, and commit at the end of the block; an exception aborts, and is raised again.

        init_transactions is called if necessary. A failed commit is aborted if possible, so that
        the next transaction can begin.
        """
        transactions = self._core.transactional()
        await open_block(transactions)
        try:
            yield
        except BaseException:
            await drop_block(transactions)
            raise
        await close_block(transactions)


class TransactionCalls:
    """The transactional half of a synchronous producer; see AsyncTransactionCalls."""

    _thread: LoopThread
    _core: ProducerCore
    _beginning: Lock
    """Held while a thread begins a transaction; a second thread is refused."""

    def init_transactions(self, *, keep_prepared_txn: bool = False) -> None:
        """Register this producer by its transactional.id, before the first transaction.

        The former producer of the id is fenced, and its open transaction aborted. With
        keep_prepared_txn a prepared transaction is kept: then complete_transaction must be called
        first.
        """
        self._thread.run(self._core.transactional().init(keep_prepared_txn=keep_prepared_txn))

    def begin_transaction(self) -> None:
        """Begin a transaction: records sent from now on are in it."""
        transactions = self._core.transactional()
        self._begin(transactions, transactions.begin)

    def send_offsets_to_transaction(
        self, offsets: Mapping[Any, Any], group_metadata: GroupMetadata | str
    ) -> None:
        """Commit a group's offsets atomically with the transaction.

        Offsets by TopicPartition: the number of the next record to read, or an object with
        offset, metadata and leader_epoch. With `consumer.group_metadata()` the coordinator refuses
        a consumer that has left the group; with a bare group name it cannot.
        """
        commit = _commit_of(offsets, group_metadata)
        self._thread.run(self._core.transactional().send_offsets(*commit))

    def commit_transaction(self) -> None:
        """Send all pending records, and commit.

        TransactionAbortableError: nothing is committed, call abort_transaction. NoResponseError:
        the result is unknown, call this again. Any other error: close the producer.
        """
        transactions = self._core.transactional()
        self._commit(transactions, transactions.commit())

    def abort_transaction(self) -> None:
        """Drop all pending records, and abort; read_committed consumers skip the sent ones."""
        self._thread.run(self._core.transactional().abort())

    def prepare_transaction(self, *, can_time_out: bool = False) -> PreparedTxnState:
        """Send all pending records, and leave the end to complete_transaction (KIP-939).

        Store the result in the same step as the data that belongs to it. Needs
        transaction.two.phase.commit.enable; without it, and with can_time_out, the broker aborts
        the transaction after transaction.timeout.ms.
        """
        return self._thread.run(self._core.transactional().prepare(can_time_out=can_time_out))

    def complete_transaction(self, prepared: PreparedTxnState | str) -> bool:
        """Commit if this is the prepared transaction, else abort; return True after a commit."""
        transactions = self._core.transactional()
        return self._commit(transactions, transactions.complete(_named(prepared)))

    @property
    def prepared_transaction_state(self) -> PreparedTxnState | None:
        """The prepared transaction that awaits complete_transaction, if there is one."""
        return self._core.transactional().prepared_transaction_state

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin, and commit at the end of the block; an exception aborts, and is raised again.

        init_transactions is called if necessary. A failed commit is aborted if possible, so that
        the next transaction can begin.
        """
        transactions = self._core.transactional()
        self._begin(transactions, partial(open_block, transactions))
        try:
            yield
        except BaseException:
            self._thread.run(drop_block(transactions))
            raise
        self._commit(transactions, close_block(transactions))

    def _begin(
        self, transactions: Transactions, begin: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._thread.check()
        with self._beginning:
            if not transactions.begins_at_once():
                self._thread.run(begin())

    def _commit(self, transactions: Transactions, commit: Coroutine[Any, Any, T]) -> T:
        """Wait for a commit; after Ctrl-C the next call returns its result."""
        result = self._thread.run(commit)
        transactions.is_commit_unreported = False
        return result


async def open_block(transactions: Transactions) -> None:
    """Begin a transaction; register the producer before its first."""
    if transactions.state is State.UNINITIALIZED:
        await transactions.init()
    await transactions.begin()


async def drop_block(transactions: Transactions) -> None:
    """Abort, ignoring failures: an exception is being raised already."""
    with suppress(TransactionFailedError, TransactionStateError, OSError):
        await transactions.abort()


async def close_block(transactions: Transactions) -> None:
    """Commit; abort if the commit fails with an abortable error."""
    try:
        await transactions.commit()
    except TransactionFailedError:
        if transactions.state is State.ABORTABLE_ERROR:
            await drop_block(transactions)
        raise


def _commit_of(
    offsets: Mapping[Any, Any], group_metadata: GroupMetadata | str
) -> tuple[dict[TopicPartition, OffsetToCommit], GroupMetadata]:
    """Validate offsets to commit before they can fail the transaction."""
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets are a dict by TopicPartition, not {type(offsets).__name__}")
    group = GroupName(group_metadata) if isinstance(group_metadata, str) else group_metadata
    if not group.group_id:
        raise ValueError("the group id is empty: offsets are committed for a group")
    return dict(starmap(_named_position, offsets.items())), group


def _named(prepared: PreparedTxnState | str) -> PreparedTxnState:
    return PreparedTxnState.parse(prepared) if isinstance(prepared, str) else prepared


def _named_position(name: Any, offset: Any) -> tuple[TopicPartition, OffsetToCommit]:
    partition = TopicPartition(*name)
    number = offset if isinstance(offset, int) else offset.offset
    leader_epoch = getattr(offset, "leader_epoch", None)
    metadata = getattr(offset, "metadata", None) or ""
    if number < 0:
        raise ValueError(f"offset {number}: offsets begin with 0")
    if number > INT64_MAX:
        raise ValueError(f"offset {number}: offsets end with {INT64_MAX}")
    if not 0 <= partition.partition <= INT32_MAX:
        raise ValueError(f"{partition} is no partition: they are counted from 0 to {INT32_MAX}")
    if len(metadata.encode()) > STRING_BYTES_MAX:
        raise ValueError(f"{partition}: metadata of more than {STRING_BYTES_MAX} bytes")
    if leader_epoch is not None and not -1 <= leader_epoch <= INT32_MAX:
        raise ValueError(f"leader epoch {leader_epoch}: it is -1 to {INT32_MAX}")
    return partition, OffsetToCommit(number, metadata, -1 if leader_epoch is None else leader_epoch)
