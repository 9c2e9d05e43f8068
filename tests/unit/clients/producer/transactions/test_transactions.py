"""A producer's transactions when two operations overlap and one fails.

The test plays the coordinator: it sets the time and the content of each response.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.clients.errors import NoResponseError
from ottla.clients.producer.batching.accumulator import Accumulator
from ottla.clients.producer.batching.ready_batch import PartitionQueue, ReadyBatch
from ottla.clients.producer.sending.batch_completion import BatchCompletion
from ottla.clients.producer.state.errors import DeliveryTimeoutError
from ottla.clients.producer.transaction_calls import GroupName
from ottla.clients.producer.transactions.transaction_errors import TransactionAbortableError
from ottla.clients.producer.transactions.transaction_requests import OffsetToCommit, ProducerName
from ottla.clients.producer.transactions.transaction_state import State
from ottla.clients.producer.transactions.transactions import Transactions
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

NAME = TopicPartition("orders", 0)
OFFSETS = {NAME: OffsetToCommit(1)}
GROUP = GroupName("group")
SETTINGS: Any = SimpleNamespace(
    max_block_ms=5_000,
    transaction_timeout_ms=60_000,
    transaction_two_phase_commit_enable=True,
    retries=9,
)


class Coordinator:
    """Responds to every request with the next epoch, after a delay."""

    transactional_id = "copier"
    view = None
    last_failure = None

    def __init__(self) -> None:
        self.epoch = 0
        self.refusal: ApiError | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def until_answered(self, _: Callable[[], Awaitable[Any]], *_more: Any) -> ProducerName:
        await self.may_answer.wait()
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise self.refusal
        self.epoch += 1
        return ProducerName(1, self.epoch)


class NoRecords:
    """An empty accumulator; its flush takes one loop iteration."""

    def refuse(self, _: Exception | None) -> None: ...

    async def flush(self) -> None:
        await asyncio.sleep(0)

    async def drop(self, _: Exception) -> None:
        await asyncio.sleep(0)


async def begun() -> tuple[Transactions, Coordinator]:
    """Return a producer in a version 2 transaction that its coordinator has registered."""
    coordinator: Any = Coordinator()
    transactions = Transactions(coordinator, SETTINGS, NoRecords())
    transactions._version = 2
    transactions._reset(State.READY)
    await transactions.begin()
    assert transactions.sends_at_once()
    return transactions, coordinator


def test_what_is_refused_after_a_batch_has_failed_is_no_worse_than_that() -> None:
    async def run() -> State:
        transactions, coordinator = await begun()
        coordinator.may_answer.clear()
        sending = asyncio.ensure_future(transactions.send_offsets(OFFSETS, GROUP))
        await asyncio.sleep(0)
        transactions.batch_failed(NAME, ApiError(ErrorCode.MESSAGE_TOO_LARGE))
        coordinator.refusal = ApiError(ErrorCode.ILLEGAL_GENERATION)
        coordinator.may_answer.set()
        with pytest.raises(TransactionAbortableError):
            await sending
        coordinator.refusal = None
        await transactions.abort()
        return transactions.state

    assert asyncio.run(run()) is State.READY


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, r"abort_transaction.* poll.* joins again"),
        (ErrorCode.ILLEGAL_GENERATION, r"abort_transaction.* poll.* joins again"),
        (ErrorCode.FENCED_INSTANCE_ID, r"abort_transaction.* close this consumer"),
    ],
)
def test_a_refusal_by_the_group_names_the_remedy(code: ErrorCode, advice: str) -> None:
    async def run() -> None:
        transactions, coordinator = await begun()
        coordinator.refusal = ApiError(code)
        for _ in range(2):
            with pytest.raises(TransactionAbortableError, match=advice):
                await transactions.send_offsets(OFFSETS, GROUP)

    asyncio.run(run())


def test_what_expired_on_its_way_spoils_its_own_transaction_only() -> None:
    async def run() -> tuple[State, int]:
        transactions, _ = await begun()
        completion, ready_batch = on_its_way(transactions)
        completion.give_up(ready_batch, DeliveryTimeoutError("too late"))
        assert transactions.state is State.ABORTABLE_ERROR
        await transactions.abort()
        await transactions.begin()
        completion.fail([ready_batch], NoResponseError("nor was there an answer"))
        return transactions.state, completion.counts.record_errors

    assert asyncio.run(run()) == (State.IN_TRANSACTION, 1)


def on_its_way(transactions: Transactions) -> tuple[BatchCompletion, ReadyBatch]:
    """Return a batch of one record that was sent."""
    accumulator = Accumulator(
        batch_bytes_max=1_000,
        request_bytes_max=10_000,
        memory_bytes_max=10_000,
        linger_ms=0,
        now_ms=None,
        monotonic_ms=lambda: 0,
        pick=lambda _topic, _count: 0,
        partitioner=None,
        wake=lambda: None,
    )
    accumulator.set_partition_count(NAME.topic, 1)
    accumulator.append(NAME.topic, b"value")
    (lane,) = accumulator.lanes()
    accumulator.close_open(lane)
    batch = lane.take()
    assert batch is not None
    queue = PartitionQueue(lane)
    ready_batch = ReadyBatch(queue, batch, 1, bytearray(80))
    queue.flying.append(ready_batch)
    nobody: Any = SimpleNamespace(forget=lambda _: None)
    completion = BatchCompletion(nobody, nobody, SETTINGS, accumulator, nobody, transactions)
    return completion, ready_batch


def test_closing_leaves_a_prepared_transaction_open() -> None:
    async def run() -> State:
        transactions, _ = await begun()
        preparing = asyncio.ensure_future(transactions.prepare())
        await asyncio.sleep(0)
        await transactions.leave(None)
        assert preparing.done()
        return transactions.state

    assert asyncio.run(run()) is State.PREPARED


def test_closing_waits_for_a_commit_that_waits_for_another_call() -> None:
    async def run() -> State:
        transactions, _ = await begun()
        calls = [transactions.send_offsets(OFFSETS, GROUP), transactions.commit()]
        running = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        await transactions.leave(None)
        await asyncio.gather(*running)
        return transactions.state

    assert asyncio.run(run()) is State.READY


def test_closing_completes_an_abandoned_commit() -> None:
    async def run() -> tuple[State, int]:
        transactions, coordinator = await begun()
        coordinator.may_answer.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await transactions.commit()
        assert transactions.state is State.COMMITTING
        coordinator.may_answer.set()
        await transactions.leave(None)
        return transactions.state, coordinator.epoch

    assert asyncio.run(run()) == (State.READY, 1)
