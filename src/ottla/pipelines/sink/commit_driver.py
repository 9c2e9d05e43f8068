"""The driver's side of `exactly_once`, for an event loop; that module has the guarantees."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from ottla.clients.admin.admin_transactions import (
    TransactionAdmin,
    TransactionDescription,
    TransactionFilter,
    TransactionStatus,
)
from ottla.clients.admin.per_item_results import ItemsFailedError
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import NoResponseError
from ottla.clients.producer.state.settings import ProducerSettings, read_producer_settings
from ottla.clients.producer.transactions.coordinator_client import CoordinatorClient
from ottla.clients.producer.transactions.transaction_errors import ProducerFencedError
from ottla.clients.producer.transactions.transaction_requests import ProducerName, end
from ottla.clients.producer.transactions.transactions import Transactions
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.pipelines.sink.commit_decision import (
    CommitDecision,
    DecisionError,
    OpenTransaction,
    is_of_query,
    older_checkpoint,
)
from ottla.pipelines.sink.commit_log import CommitLog

ENDING_AT_ONCE_MAX: Final = 50
LOOK_SECONDS: Final = 10.0
"""The interval of searches for open transactions that no message reports: a speculative attempt may
finish after the decision about its batch."""
OVER: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""Error codes for a transaction that is no longer open, and was not committed."""
Settings = Mapping[str, Any]


class _NoRecords:
    """Empty record buffer, for transactions without a producer."""

    def refuse(self, reason: Exception | None) -> None:
        """Do nothing: no caller sends records."""

    async def flush(self) -> None:
        """Do nothing: no record is buffered."""

    async def drop(self, reason: Exception) -> None:
        """Do nothing: no record is buffered."""


def bare_transactions(view: ClusterView, settings: Settings, transactional_id: str) -> Transactions:
    """Return transactions that have no producer."""
    own = {**settings, "transactional.id": transactional_id}
    _, producer_settings = read_producer_settings(own, {})
    coordinator = CoordinatorClient(view, transactional_id)
    return Transactions(coordinator, producer_settings, _NoRecords())


class CommitDriver:
    """The decisions of one query, made in one event loop, one call at a time."""

    def __init__(
        self, view: ClusterView, settings: Settings, limits: ProducerSettings, query: str
    ) -> None:
        self._view = view
        self._settings = settings
        self._limit_seconds = limits.max_block_ms / 1000
        self._query = query
        self._admin = TransactionAdmin(view)
        self._log = CommitLog(view, query)
        self._held: Transactions | None = None
        self._last = CommitDecision()
        """The last decision, while the transactional id is held."""
        self._looked_at = -LOOK_SECONDS

    async def last_seen(self) -> CommitDecision:
        """Return the last visible decision; a newer one may be in flight."""
        if await self._log.is_there():
            await self._log.read()
        return self._log.last

    async def commit(
        self, batch_id: int, opened: tuple[OpenTransaction, ...], *, has_lost: bool
    ) -> bool:
        """Decide unless the batch is decided already, and end its transactions; see Decisions."""
        decided = await self._decided(batch_id, opened, has_lost=has_lost)
        if decided.batch_id < batch_id:
            return True  # the batch has no transactions
        await self._finish(decided)
        others = _without(opened, decided.committed)
        await self._abort(others)
        return bool(opened) and not others

    async def commit_once(self, opened: tuple[OpenTransaction, ...]) -> None:
        """Commit the only batch of a query, and delete its decision when it is done."""
        await self.commit(0, opened, has_lost=False)
        await self._log.forget()

    async def abort(self, opened: tuple[OpenTransaction, ...]) -> None:
        """Abort these and other open transactions of the query, except those decided to commit.

        A decided commit is completed: a driver may give up without knowing that its decision was
        written.
        """
        self._held = None
        await self._hold()
        if len(others := _without(opened, self._last.committed)) < len(opened):
            await self._finish(self._last)
        left = await self._left_open(opened)
        await self._abort((*others, *_without(left, self._last.committed)))

    async def _abort(self, opened: tuple[OpenTransaction, ...]) -> None:
        async def abort(transaction: OpenTransaction) -> None:
            with suppress(ApiError, OSError):
                await self._end(transaction, committed=False)

        await _each(abort, opened)

    async def _decided(
        self, batch_id: int, opened: tuple[OpenTransaction, ...], *, has_lost: bool
    ) -> CommitDecision:
        was_held = self._held is not None
        try:
            return await self._decide(batch_id, opened, has_lost=has_lost)
        except (ProducerFencedError, DecisionError):
            # Another process of the same driver may have decided since: read its decision.
            self._held = None
            if not was_held:
                raise
            return await self._decide(batch_id, opened, has_lost=True)
        except BaseException:
            self._held = None
            raise

    async def _decide(
        self, batch_id: int, opened: tuple[OpenTransaction, ...], *, has_lost: bool
    ) -> CommitDecision:
        """Return the last decision; it is about this batch if the batch has transactions."""
        is_first = self._held is None
        held = await self._hold()
        if self._last.batch_id == batch_id or not opened:
            return self._last
        if self._last.batch_id > batch_id:
            raise older_checkpoint(self._last.batch_id, batch_id)
        await self._check_open(opened)
        is_time = asyncio.get_running_loop().time() >= self._looked_at + LOOK_SECONDS
        left = await self._left_open(opened) if is_first or has_lost or is_time else ()
        decision = CommitDecision(batch_id, opened, left)
        await self._log.write(held, decision)
        self._last = decision
        return decision

    async def _hold(self) -> Transactions:
        """Take over the transactional id, which fences other drivers; read the last decision."""
        if self._held is None:
            await self._log.prepare()
            transactions = bare_transactions(self._view, self._settings, f"{self._query}.decisions")
            await transactions.init()
            await self._log.read()
            self._last = self._log.last
            self._held = transactions
        return self._held

    async def _check_open(self, opened: tuple[OpenTransaction, ...]) -> None:
        """Raise DecisionError unless all of these can still be committed."""
        doomed = set(self._last.aborted)
        found = await self._described([each.transactional_id for each in opened])
        for each in opened:
            state = found.get(each.transactional_id)
            if state is None or each in doomed or not _is_open(state, each):
                raise DecisionError(
                    f"the transaction {each.transactional_id} was aborted before its batch could "
                    "be committed: the batch took longer than the transaction's time-out, or "
                    "another driver runs the same query; nothing of the batch is committed, and "
                    "the query can be started again"
                )

    async def _left_open(self, opened: tuple[OpenTransaction, ...]) -> tuple[OpenTransaction, ...]:
        """Return the open transactions of this query's attempts that are not in `opened`."""
        wanted = {each.transactional_id for each in opened}
        listed = await self._admin.list(TransactionFilter(states={TransactionStatus.ONGOING}))
        self._looked_at = asyncio.get_running_loop().time()
        names = [
            each.transactional_id
            for each in listed
            if is_of_query(each.transactional_id, self._query)
            and each.transactional_id not in wanted
        ]
        return tuple(
            OpenTransaction(each.transactional_id, each.producer_id, each.producer_epoch)
            for each in (await self._described(names)).values()
            if each.state == TransactionStatus.ONGOING
        )

    async def _described(self, names: Sequence[str]) -> Mapping[str, TransactionDescription]:
        if not names:
            return {}
        try:
            return await self._admin.describe(names)
        except ItemsFailedError as error:
            missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            if any(each.code is not missing for each in error.failed.values()):
                raise
            return error.done

    async def _finish(self, decision: CommitDecision) -> None:
        """End all open transactions of a decision."""
        if decision.batch_id <= self._log.done_batch_id:
            return

        async def commit(transaction: OpenTransaction) -> None:
            try:
                await self._end(transaction, committed=True)
            except ApiError as error:
                if error.code not in OVER:
                    raise
                raise DecisionError(
                    f"batch {decision.batch_id} was to be committed, but its transaction "
                    f"{transaction.transactional_id} is not open any more. Probably no driver ran "
                    "to commit it within its time-out, and the broker has aborted it: its rows are "
                    "lost, unless they are read again by a query with a new checkpoint. Brokers "
                    f"with transaction.two.phase.commit.enable=true do not do that. ({error})"
                ) from error

        await self._abort(decision.aborted)
        await _each(commit, decision.committed)
        await self._log.note_done(decision.batch_id)

    async def _end(self, transaction: OpenTransaction, *, committed: bool) -> None:
        coordinator = CoordinatorClient(self._view, transaction.transactional_id)
        who = ProducerName(transaction.producer_id, transaction.epoch)

        async def ask() -> None:
            version = await coordinator.transaction_version()
            await end(coordinator, who, committed=committed, version=version)

        try:
            async with asyncio.timeout(self._limit_seconds):
                await coordinator.until_answered(ask)
        except TimeoutError:
            raise NoResponseError(
                f"the transaction {transaction.transactional_id} could not be ended within "
                f"max.block.ms; last: {coordinator.last_failure}"
            ) from None


def _without(
    opened: tuple[OpenTransaction, ...], others: tuple[OpenTransaction, ...]
) -> tuple[OpenTransaction, ...]:
    known = set(others)
    return tuple(each for each in opened if each not in known)


def _is_open(found: TransactionDescription, opened: OpenTransaction) -> bool:
    is_same = (found.producer_id, found.producer_epoch) == (opened.producer_id, opened.epoch)
    return is_same and found.state == TransactionStatus.ONGOING


async def _each(
    act: Callable[[OpenTransaction], Awaitable[None]], transactions: Iterable[OpenTransaction]
) -> None:
    """Apply `act` to all transactions, some at a time; try all before a failure is raised."""
    room = asyncio.Semaphore(ENDING_AT_ONCE_MAX)

    async def one(transaction: OpenTransaction) -> None:
        async with room:
            await act(transaction)

    outcomes = await asyncio.gather(*map(one, transactions), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
