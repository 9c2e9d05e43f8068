"""Asks the coordinators of transactions on behalf of partitions, on this broker or on others.

While a request to another broker is in flight, further enlistments are collected, and sent together
afterwards. No request is repeated: after a failure waiting callers get NETWORK_EXCEPTION, and their
clients retry.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

from ottla.broker.peers.broker_clients import BrokerClients
from ottla.machines.transactions.add_partitions import Enlistment
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import NO_LEADER
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, TopicPartition
from ottla.model.topic_names import TRANSACTION_STATE_TOPIC
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

VERSION: Final = 5
TRANSACTIONS_MAX: Final = 500
"""The maximum number of transactions in one request."""
WAITING_MAX: Final = 10_000
"""The maximum number of waiting callers per coordinator; further ones have to retry."""
ANSWER_MS_MAX: Final = 15_000

Enlist: TypeAlias = Callable[[Enlistment], Awaitable[Mapping[TopicPartition, ErrorCode]]]
"""Asks the coordinator of a transaction; returns the errors by partition.

Raises ApiError for an error of all partitions, such as an unreachable coordinator.
"""


class _Waiting(NamedTuple):
    transaction: AddPartitionsToTxnTransaction
    answer: "asyncio.Future[AddPartitionsToTxnResult | None]"
    """None if there was no response."""


class PartitionEnlistment:
    """Reaches the coordinators of transactions. Belongs to one event loop."""

    def __init__(
        self,
        index_of: Callable[[str], int],
        enlist: Enlist,
        peers: BrokerClients,
        image: Callable[[], ClusterImage],
    ) -> None:
        """`index_of` returns the partition of a transactional id; ApiError if there is none.

        `enlist` calls the coordinator on this broker.
        """
        self._index_of = index_of
        self._enlist = enlist
        self._peers = peers
        self._image = image
        self._waiting: dict[BrokerId, deque[_Waiting]] = {}
        self._senders: dict[BrokerId, asyncio.Task[None]] = {}

    async def enlist(self, wanted: Enlistment) -> Mapping[TopicPartition, ErrorCode]:
        """Verify that an open transaction has these partitions, or add them to it.

        Return the errors by partition; codes may be NONE. Raises ApiError if no coordinator could
        be reached.
        """
        broker_id = self._coordinator_of(wanted.transactional_id)
        if broker_id == self._peers.broker_id:
            return await self._enlist(wanted)
        return _codes(await self._ask(broker_id, _message(wanted)))

    def stop(self) -> None:
        """Send no more requests."""
        for sender in self._senders.values():
            sender.cancel()
        self._peers.close()

    def _coordinator_of(self, transactional_id: str) -> BrokerId:
        index = self._index_of(transactional_id)
        topic = self._image().topics.get(TRANSACTION_STATE_TOPIC)
        partition = None if topic is None else topic.partition(index)
        if partition is None or partition.leader == NO_LEADER:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "its coordinator partition has no leader"
            )
        return partition.leader

    async def _ask(
        self, broker_id: BrokerId, transaction: AddPartitionsToTxnTransaction
    ) -> AddPartitionsToTxnResult | None:
        waiting = self._waiting.setdefault(broker_id, deque())
        if len(waiting) >= WAITING_MAX:
            return None
        loop = asyncio.get_running_loop()
        one = _Waiting(transaction, loop.create_future())
        waiting.append(one)
        if broker_id not in self._senders:
            self._senders[broker_id] = loop.create_task(self._run(broker_id, waiting))
        return await one.answer

    async def _run(self, broker_id: BrokerId, waiting: deque[_Waiting]) -> None:
        """Send requests to one broker until none waits."""
        try:
            while waiting:
                count = min(len(waiting), TRANSACTIONS_MAX)
                asked = [waiting.popleft() for _ in range(count)]
                try:
                    await self._ask_all(broker_id, asked)
                finally:
                    _answer_all(asked, ())
        finally:
            del self._senders[broker_id]
            _answer_all(waiting, ())
            waiting.clear()

    async def _ask_all(self, broker_id: BrokerId, asked: Sequence[_Waiting]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[one.transaction for one in asked])
        try:
            response = await self._peers.ask(
                broker_id, request, VERSION, AddPartitionsToTxnResponse, timeout_ms=ANSWER_MS_MAX
            )
        except OSError:
            return
        if len(response.results_by_transaction) == len(asked):
            _answer_all(asked, response.results_by_transaction)


def _message(wanted: Enlistment) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=wanted.transactional_id,
        producer_id=wanted.producer.producer_id,
        producer_epoch=wanted.producer.epoch,
        verify_only=not wanted.is_adding,
        topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=[index for _, index in group])
            for topic, group in groupby(sorted(wanted.partitions), lambda one: one.topic)
        ],
    )


def _answer_all(
    asked: Sequence[_Waiting] | deque[_Waiting], results: Sequence[AddPartitionsToTxnResult]
) -> None:
    """Complete waiting callers with their results, in order; None for a missing result."""
    for number, one in enumerate(asked):
        if not one.answer.done():
            one.answer.set_result(results[number] if results else None)


def _codes(result: AddPartitionsToTxnResult | None) -> dict[TopicPartition, ErrorCode]:
    if result is None:
        raise ApiError(ErrorCode.NETWORK_EXCEPTION, "the coordinator does not answer")
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in result.topic_results
        for each in topic.results_by_partition
        if each.partition_error_code
    }
