"""Transactions of a synchronous producer: the steps that the caller's thread can take itself.

Switching to the client's thread and back takes longer than the steps themselves. So a thread
begins transactions itself. It also commits in the usual case: a single batch is pending, and its
response and that of EndTxn arrive soon. In all other cases the coroutines continue from there.
"""

from collections.abc import Callable
from typing import Final

from ottla.clients.producer.transactions.transaction_requests import ADDING_BY_WRITING, ProducerName
from ottla.clients.producer.transactions.transaction_state import State
from ottla.clients.producer.transactions.transactions import Transactions
from ottla.runtime.clock import SystemClock

NS_PER_MS: Final = 1_000_000
_monotonic_ns: Final = SystemClock().monotonic_ns


class ThreadTransactions(Transactions):
    """Transactions with steps for any thread; never two at the same time."""

    _has_begun_to_commit = False

    def begins_at_once(self) -> bool:
        """Begin in the calling thread if the state is READY and no call is running.

        Returns whether it has begun. Only calls can change the READY state.
        """
        if self.state is not State.READY or self._call.is_taken():
            return False
        self._is_closed = False
        self._enter(State.IN_TRANSACTION)
        return True

    def commits_at_once(self, delivers_at_once: Callable[[], bool]) -> bool:
        """Commit in the calling thread in the usual case; return whether it has.

        If not, call `commit`. `delivers_at_once` sends the pending records if it can, and returns
        whether all are delivered.
        """
        if self._version < ADDING_BY_WRITING or not self._coordinator.ends.is_open:
            return False
        try:
            return self._call.lend() and self._commits_at_once(delivers_at_once)
        finally:  # also if Ctrl-C arrives right after `lend`
            self._call.is_lent = False

    def _commits_at_once(self, delivers_at_once: Callable[[], bool]) -> bool:
        if self.state is not State.IN_TRANSACTION:
            return False
        self._enter(State.COMMITTING)
        self._has_begun_to_commit = True
        began_ns = _monotonic_ns()
        if not delivers_at_once() or not self._ends_at_once():
            return False
        self._took(began_ns)
        self._has_begun_to_commit = False
        return True

    def _ends_at_once(self) -> bool:
        if self.state is not State.COMMITTING:  # records were refused
            return False
        self._is_closed = True
        if self._is_started:
            told = self._coordinator.ends.ask(*self._who)
            if told is None:
                return False
            self._become(ProducerName(*told))
        self._reset(State.READY)
        return True

    def _took(self, began_ns: int) -> None:
        self._coordinator.ends.ways.took((_monotonic_ns() - began_ns) / NS_PER_MS)

    async def commit(self) -> None:
        """Commit, or complete a commit that a thread began; a closed producer may have done so."""
        async with self._call:
            is_finished = self._has_begun_to_commit and self.state is State.READY
            self._has_begun_to_commit = False
            if is_finished:
                return
            began_ns = _monotonic_ns()
            await self._commit()
            if not self._coordinator.ends.ways.is_short:
                self._took(began_ns)
