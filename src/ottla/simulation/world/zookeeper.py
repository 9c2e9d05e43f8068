"""A ZooKeeper on the simulated network. The twin of `zookeeper.kazoo_session`.

It is one machine that never fails; the connection to it does. An operation whose request or
response is lost ends in `ConnectionLostError` after a part of the session timeout: if the response
was lost it has happened, if the request was lost it may happen later. Pings keep a session alive; a
process that is dead, paused or cut off for the whole timeout has lost its session, and learns of
that when it is back.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Final, TypeVar

from ottla.environment.zookeeper import (
    ConnectionLostError,
    Node,
    Operation,
    SessionExpiredError,
    SessionState,
    Stat,
    Watch,
    ZooKeeperError,
)
from ottla.simulation.world.network import SimulatedNetwork
from ottla.simulation.world.process import current_process
from ottla.simulation.world.virtual_loop import VirtualLoop
from ottla.simulation.world.zookeeper_tree import Ring, ZooKeeperTree

MACHINE: Final = "zookeeper"
T = TypeVar("T")


class SimulatedZooKeeper:
    """The server's side: the tree, and when each session was heard of last."""

    def __init__(self, loop: VirtualLoop, network: SimulatedNetwork) -> None:
        self.tree = ZooKeeperTree()
        self.loop = loop
        self.network = network
        self._context = Context()  # the server's work belongs to no process
        self._heard_at: dict[int, float] = {}
        self._session_by_machine: dict[str, int] = {}

    def connect(self, timeout_seconds: float) -> "SimulatedSession":
        """Begin a session for the process that asks."""
        session = self.tree.open_session()
        self.heard_of(session)
        self._session_by_machine[current_process().name] = session
        self._expire_later(session, timeout_seconds)
        return SimulatedSession(self, session, timeout_seconds)

    def heard_of(self, session: int) -> None:
        """Note that a session is alive."""
        self._heard_at[session] = self.loop.time()

    def later(self, seconds: float, callback: Callable[..., object], *args: object) -> None:
        """Call a function on the server's side after a delay, even if its client has died."""
        self.loop.call_later(seconds, callback, *args, context=self._context)

    def expire(self, session: int) -> None:
        """End a session."""
        self.loop.trace.add(self.loop.time(), MACHINE, "expires", session)
        self.tree.end_session(session)

    def expire_last_of(self, machine: str) -> None:
        """End the last session of a machine, however well it is."""
        session = self._session_by_machine.get(machine)
        if session is not None and self.tree.has_session(session):
            self.expire(session)

    def _expire_later(self, session: int, timeout_seconds: float) -> None:
        def look() -> None:
            left = self._heard_at[session] + timeout_seconds - self.loop.time()
            if not self.tree.has_session(session):
                return
            if left <= 0:
                self.expire(session)
            else:
                self.later(left, look)

        self.later(timeout_seconds, look)


class SimulatedSession:
    """The client's side. The contract is `ottla.environment.zookeeper`."""

    def __init__(self, server: SimulatedZooKeeper, session: int, timeout_seconds: float) -> None:
        self.session_id = session
        self.state = SessionState.CONNECTED
        self._server = server
        self._loop = server.loop
        self._process = current_process()
        self._machine = self._process.name
        self._patience_seconds = timeout_seconds / 2
        self._listeners: list[Callable[[SessionState], None]] = []
        self._ping_seconds = timeout_seconds / 3
        self._pinging = self._ping_later()

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        """Call the listener at every change of the state."""
        self._listeners.append(listener)

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Read a node."""
        return await self._ask(lambda: self._server.tree.get(path, self._notify(watch)))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Look for a node."""
        return await self._ask(lambda: self._server.tree.exists(path, self._notify(watch)))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names below a node."""
        return await self._ask(lambda: self._server.tree.children(path, self._notify(watch)))

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Do all of these or none."""
        await self._ask(lambda: self._server.tree.commit(self.session_id, operations))

    async def close(self) -> None:
        """End the session."""
        self._pinging.cancel()
        if self.state is not SessionState.EXPIRED:
            try:
                await self._ask(lambda: self._server.tree.end_session(self.session_id))
            finally:
                self._become(SessionState.EXPIRED)

    async def _ask(self, operation: Callable[[], T]) -> T:
        """Carry an operation to the server, and its answer back."""
        if self.state is SessionState.EXPIRED:
            raise SessionExpiredError(f"session {self.session_id} is over")
        answered = self._loop.create_future()
        self._carry(operation, answered)
        timer = self._loop.call_later(self._patience_seconds, self._give_up, answered)
        try:
            found: T = await answered
        except SessionExpiredError:
            self._become(SessionState.EXPIRED)
            raise
        finally:
            timer.cancel()
        self._become(SessionState.CONNECTED)
        return found

    def _carry(self, operation: Callable[[], T], answered: asyncio.Future[T]) -> None:
        there = self._server.network.link(self._machine, MACHINE)
        if not there.is_blocked:
            self._server.later(there.draw_delay(), self._arrive, operation, answered)
        elif self._server.tree.has_session(self.session_id):
            # It is sent again, and may arrive when no caller waits for it any more.
            self._server.later(self._ping_seconds, self._carry, operation, answered)

    def _arrive(self, operation: Callable[[], T], answered: asyncio.Future[T]) -> None:
        error: ZooKeeperError | None = None
        found: T | None = None
        if not self._server.tree.has_session(self.session_id):
            error = SessionExpiredError(f"session {self.session_id} is over")
        else:
            self._server.heard_of(self.session_id)
            try:
                found = operation()
            except ZooKeeperError as refused:
                error = refused
        back = self._server.network.link(MACHINE, self._machine)
        if not back.is_blocked:
            self._server.later(back.draw_delay(), _answer, answered, found, error)

    def _give_up(self, answered: asyncio.Future[T]) -> None:
        if not answered.done():
            answered.set_exception(ConnectionLostError("no answer"))
            self._become(SessionState.SUSPENDED)

    def _notify(self, watch: Watch | None) -> Ring | None:
        """Return the server's notification: it reaches the client after a delay, or gets lost."""
        if watch is None:
            return None

        def notify() -> None:
            back = self._server.network.link(MACHINE, self._machine)
            if back.is_blocked:
                # Told once the client is back: reconnecting sets its watches again.
                self._server.later(self._ping_seconds, notify)
            else:
                self._loop.call_later(back.draw_delay(), watch, context=self._process.context)

        return notify

    def _ping_later(self) -> asyncio.TimerHandle:
        return self._loop.call_later(self._ping_seconds, self._ping)

    def _ping(self) -> None:
        """Say that the session is alive; whether that is heard does not hold up the next time."""
        if self.state is not SessionState.EXPIRED:
            self._loop.create_task(self._say_nothing())
            self._pinging = self._ping_later()

    async def _say_nothing(self) -> None:
        with suppress(ZooKeeperError):
            await self._ask(lambda: None)

    def _become(self, state: SessionState) -> None:
        if state is not self.state and self.state is not SessionState.EXPIRED:
            self.state = state
            for listener in self._listeners:
                listener(state)


def _answer(answered: asyncio.Future[T], found: T, error: ZooKeeperError | None) -> None:
    if answered.done():
        return
    if error is not None:
        answered.set_exception(error)
    else:
        answered.set_result(found)
