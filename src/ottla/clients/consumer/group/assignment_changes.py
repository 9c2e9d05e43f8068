"""Assign and revoke partitions, and call the rebalance listeners."""

import asyncio
from collections.abc import Callable, Collection
from contextvars import ContextVar
from typing import Final

from ottla.clients.consumer.state.subscription import SubscriptionState
from ottla.clients.threads.loop_thread import call_in_caller, is_for_a_thread
from ottla.model.identifiers import TopicPartition

Listener = Callable[[list[TopicPartition]], object]


class AssignmentChanges:
    """Changes the assignment. An exception of a listener is kept until the change is complete.

    Listeners run while the partitions in question are still assigned: they may commit them, ask for
    positions and seek. They may also unsubscribe and close; those calls then notify the listener of
    the remaining partitions only. Calls from other tasks wait until the listener returns.
    """

    def __init__(self, state: SubscriptionState) -> None:
        self._state = state
        self._error: Exception | None = None
        self._told: dict[TopicPartition, asyncio.Event] = {}
        """The partitions whose revocation a listener is handling; set when the listener returns."""

    async def revoke(self, names: Collection[TopicPartition]) -> None:
        """Call the listener, and drop partitions; meanwhile poll returns no records from them."""
        if names:
            self._state.mark_revoking(names)
            await self._tell_and_drop(self._state.listener.on_revoked, names)

    async def lose_all(self) -> None:
        """Drop every partition without a commit: other members own them already."""
        names = list(self._state.assigned)
        if not names:
            return
        self._state.mark_revoking(names)
        listener = self._state.listener
        await self._tell_and_drop(listener.on_lost or listener.on_revoked, names)

    async def assign(self, names: Collection[TopicPartition]) -> None:
        """Set the assignment, and call `on_assigned` with the added partitions, even if none."""
        new = [name for name in names if name not in self._state.assigned]
        self._state.set_assignment(names)
        await self._call(self._state.listener.on_assigned, new)

    def keep(self, error: Exception) -> None:
        """Keep an error for `raise_kept`, unless an earlier error is kept."""
        self._error = self._error or error

    def raise_kept(self) -> None:
        """Raise the kept exception of a listener, once."""
        if (error := self._error) is not None:
            self._error = None
            raise error

    async def _tell_and_drop(
        self, listener: Listener | None, names: Collection[TopicPartition]
    ) -> None:
        """Call the listener once per partition; then drop those not reassigned meanwhile."""
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
        """Whether the running listener made this call.

        For synchronous calls the answer is always yes: the consumer refuses a second thread.
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
    "assignment_of_running_listener", default=None
)
