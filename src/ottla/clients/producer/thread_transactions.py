"""Transactions of an application that has threads: what they can do without the client's own one.

To wake the client's thread, and to be woken by it, takes longer than the steps themselves. So a
thread begins, and commits what is the usual case: all that waits is one batch, and both it and the
end are answered soon. Whatever else comes up is left to the coroutines, which go on from there.
"""

from collections.abc import Callable
from typing import Final

from ottla.clients.producer.transaction_requests import ADDING_BY_WRITING, ProducerName
from ottla.clients.producer.transaction_state import State
from ottla.clients.producer.transactions import Transactions
from ottla.runtime.clock import SystemClock

_monotonic_ms: Final = SystemClock().monotonic_ms


class ThreadTransactions(Transactions):
    """Transactions, some steps of which any thread may take; but not two at the same time."""

    _has_begun_to_commit = False

    def begins_at_once(self) -> bool:
        """Begin, in any thread, if there is nothing to wait for or refuse; tell whether it has.

        While nobody calls, nothing changes what is READY.
        """
        if self.state is not State.READY or self._call.is_taken():
            return False
        self._is_closed = False
        self._enter(State.IN_TRANSACTION)
        return True

    def commits_at_once(self, delivers_at_once: Callable[[], bool]) -> bool:
        """Commit, in any thread, if all goes as usual; tell whether it has. If not, call `commit`.

        `delivers_at_once` tells whether all records are delivered, after doing that if it can.
        """
        if self._version < ADDING_BY_WRITING or not self._coordinator.ends.is_open:
            return False
        try:
            return self._call.lend() and self._commits_at_once(delivers_at_once)
        finally:  # also where Ctrl-C comes as soon as it was lent
            self._call.is_lent = False

    def _commits_at_once(self, delivers_at_once: Callable[[], bool]) -> bool:
        if self.state is not State.IN_TRANSACTION:
            return False
        self._enter(State.COMMITTING)
        self._has_begun_to_commit = True
        began_ms = _monotonic_ms()
        is_delivered = delivers_at_once()
        self._coordinator.ends.delivered(_monotonic_ms() - began_ms)
        return is_delivered and self._ends_at_once()

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
        self._has_begun_to_commit = False
        return True

    async def commit(self) -> None:
        """Commit, or go on with what a thread has begun, unless who closes the producer has."""
        async with self._call:
            is_finished = self._has_begun_to_commit and self.state is State.READY
            self._has_begun_to_commit = False
            if not is_finished:
                await self._commit()
