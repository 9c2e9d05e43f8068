"""Partitions that come and go, and the listeners that hear of it."""

import asyncio
from collections.abc import Callable, Collection
from contextvars import ContextVar
from typing import Final

from ottla.clients.consumer.state.subscription import SubscriptionState
from ottla.clients.threads.loop_thread import call_in_caller, is_for_a_thread
from ottla.model.identifiers import TopicPartition

Listener = Callable[[list[TopicPartition]], object]


class AssignmentChanges:
    """Changes the assignment. What a listener raises is kept until the change is complete.

    Listeners are called while the partitions in question are assigned: they may commit them, ask
    for positions and seek. They may also unsubscribe and close, and are then called for the other
    partitions alone. Another task that does so waits for them.
    """

    def __init__(self, state: SubscriptionState) -> None:
        self._state = state
        self._error: Exception | None = None
        self._told: dict[TopicPartition, asyncio.Event] = {}
        """Of these a listener hears at the moment that they go; set when it has."""

    async def revoke(
        self,
        names: Collection[TopicPartition],
        is_committed: Callable[[Collection[TopicPartition]], bool] | None = None,
    ) -> bool:
        """Give partitions back, after a last commit, if there is one to make, and the listener.

        False if the commit is not over: until it is, they stay, but nothing of them is handed out.
        """
        if not names:
            return True
        self._state.mark_revoking(names)
        if is_committed is not None and not is_committed(names):
            return False
        await self._tell_and_drop(self._state.listener.on_revoked, names)
        return True

    async def lose_all(self) -> None:
        """Give up everything: it belongs to others already, and must not be committed any more."""
        names = list(self._state.assigned)
        if not names:
            return
        self._state.mark_revoking(names)
        listener = self._state.listener
        await self._tell_and_drop(listener.on_lost or listener.on_revoked, names)

    async def assign(self, names: Collection[TopicPartition]) -> None:
        """Have exactly these partitions, and tell which are new, even if none is."""
        new = [name for name in names if name not in self._state.assigned]
        self._state.set_assignment(names)
        await self._call(self._state.listener.on_assigned, new)

    def keep(self, error: Exception) -> None:
        """Have this raised by `raise_kept`, if it is the first."""
        self._error = self._error or error

    def raise_kept(self) -> None:
        """Raise what a listener raised, once."""
        if (error := self._error) is not None:
            self._error = None
            raise error

    async def _tell_and_drop(
        self, listener: Listener | None, names: Collection[TopicPartition]
    ) -> None:
        """Tell the listener, but nothing twice, and drop what has not been given anew meanwhile."""
        if not self._is_in_listener:
            await self._until_told(names)
        assigned = self._state.assigned
        gone = {name: assigned[name] for name in names if name in assigned}
        news = gone.keys() - self._told.keys()
        if news:
            is_told = asyncio.Event()
            self._told |= dict.fromkeys(news, is_told)
            try:
                await self._call(listener, news)
            finally:
                for name in news:
                    del self._told[name]
                is_told.set()
        kept = [name for name, row in self._state.assigned.items() if gone.get(name) is not row]
        self._state.set_assignment(kept)

    @property
    def _is_in_listener(self) -> bool:
        """Whether it is a listener, if one is at work, that has called for this.

        Of threads there is one at a time: another one has been refused.
        """
        return _changes_told.get() is self or is_for_a_thread()

    async def _until_told(self, names: Collection[TopicPartition]) -> None:
        while told := [self._told[name] for name in names if name in self._told]:
            await told[0].wait()

    async def _call(self, listener: Listener | None, names: Collection[TopicPartition]) -> None:
        if listener is None:
            return
        before = _changes_told.set(self)
        try:
            await call_in_caller(listener, sorted(names))
        except Exception as error:  # noqa: BLE001 - raised by raise_kept
            self.keep(error)
        finally:
            _changes_told.reset(before)


_changes_told: Final[ContextVar[AssignmentChanges | None]] = ContextVar(
    "whose listener is at work", default=None
)
