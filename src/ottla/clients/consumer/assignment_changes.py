"""Partitions that come and go, and the listeners that hear of it."""

from collections.abc import Callable, Collection

from ottla.clients.consumer.subscription import SubscriptionState
from ottla.clients.loop_thread import call_in_caller
from ottla.model.identifiers import TopicPartition

Listener = Callable[[list[TopicPartition]], object]


class AssignmentChanges:
    """Changes the assignment. What a listener raises is kept until the change is complete.

    Listeners are called while the partitions in question are assigned: they may commit them, ask
    for positions and seek. They may also unsubscribe and close, and are then called for the other
    partitions alone.
    """

    def __init__(self, state: SubscriptionState) -> None:
        self._state = state
        self._error: Exception | None = None
        self._told: set[TopicPartition] = set()
        """Of these a listener hears at the moment that they go."""

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
        gone = set(names)
        news = gone - self._told
        if news:
            self._told |= news
            try:
                await self._call(listener, news)
            finally:
                self._told -= news
        self._state.set_assignment([name for name in self._state.assigned if name not in gone])

    async def _call(self, listener: Listener | None, names: Collection[TopicPartition]) -> None:
        if listener is None:
            return
        try:
            await call_in_caller(listener, sorted(names))
        except Exception as error:  # noqa: BLE001 - raised by raise_kept
            self.keep(error)
