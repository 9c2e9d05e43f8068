"""The production producer as a transactional client of simulations.

It has the interface of `TransactionalClient`. It retries by itself, and nothing of it is late on
purpose.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import NoResponseError
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.clients.producer.state.settings import ProducerSettings
from ottla.clients.producer.transactions.transaction_errors import (
    FatalTransactionError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.simulation.world.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.clients.producer.batching.accumulator import Delivery

CLOSE_SECONDS: Final = 1.0


class RealTransactionalClient:
    """One transactional id; `init` makes a producer for it, also after a fatal error."""

    def __init__(
        self,
        transactional_id: str,
        open_view: Callable[[], ClusterView],
        machine: Machine,
        *,
        timeout_ms: int,
        block_ms: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.commits_asked = 0
        self._open_view = open_view
        self._machine = machine
        self._settings = ProducerSettings(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            delivery_timeout_ms=block_ms,
            max_block_ms=block_ms,
            linger_ms=0,
        )
        self._producer: AsyncProducer | None = None
        self._is_begun = False
        self._closing: dict[asyncio.Task[None], None] = {}

    @property
    def needs_init(self) -> bool:
        """Whether there is no producer, or none that can go on."""
        return self._producer is None

    async def init(self) -> None:
        """Become the producer of the transactional id."""
        self.close()
        producer = self._producer = AsyncProducer.in_world(
            self._open_view(), self._machine.clock, self._machine.randomness, self._settings
        )
        try:
            await producer.init_transactions()
        except (ApiError, OSError):
            self.close()
            raise

    def begin(self) -> None:
        """Begin a transaction with the next operation."""
        self.commits_asked = 0
        self._is_begun = False

    async def send(self, partition: TopicPartition, values: Sequence[bytes]) -> int:
        """Write some values; return the first offset, -1 if it is unknown."""
        with self._closing_where_lost():
            sent = [await self._send(partition, value) for value in values]
            offsets = [(await delivery).offset for delivery in sent]
        # Others may have written in between, where these were in several batches.
        is_one_batch = offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        return offsets[0] if is_one_batch else -1

    async def send_unheard(self, partition: TopicPartition, values: Sequence[bytes]) -> None:
        """Write without waiting for the result."""
        with self._closing_where_lost():
            for value in values:
                await self._send(partition, value)

    async def send_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Let a group be there if the transaction commits."""
        with self._closing_where_lost():
            producer = await self._begun()
            await producer.send_offsets_to_transaction(offsets, group_id)

    async def end(self, *, is_commit: bool) -> None:
        """Commit or abort; return when that is decided."""
        self.commits_asked += 2 * is_commit  # it asks again by itself
        try:
            producer = await self._begun()
            await (producer.commit_transaction() if is_commit else producer.abort_transaction())
        except TransactionAbortableError:
            raise
        except (ApiError, OSError):
            self.close()
            raise

    def close(self) -> None:
        """Close the producer, which goes on until that is done."""
        if self._producer is not None:
            task = asyncio.get_running_loop().create_task(_close(self._producer))
            self._closing[task] = None
            task.add_done_callback(self._closing.pop)
            self._producer = None

    async def _begun(self) -> AsyncProducer:
        if self._producer is None:
            raise NoResponseError("there is no producer any more")
        if not self._is_begun:
            await self._producer.begin_transaction()
            self._is_begun = True
        return self._producer

    async def _send(self, partition: TopicPartition, value: bytes) -> "Delivery":
        producer = await self._begun()
        return await producer.send(partition.topic, value, partition=partition.partition)

    @contextmanager
    def _closing_where_lost(self) -> "Iterator[None]":
        """Close the producer where only that helps; else its transaction can be aborted."""
        try:
            yield
        except TransactionAbortedError as error:
            raise NoResponseError(str(error)) from error
        except FatalTransactionError:
            self.close()
            raise


async def _close(producer: AsyncProducer) -> None:
    with suppress(ApiError, OSError):
        await producer.close(CLOSE_SECONDS)
