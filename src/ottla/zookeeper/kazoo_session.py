"""A session with a real ZooKeeper, through the package kazoo.

`ottla.simulation.world.zookeeper` implements the same contract. kazoo works in threads of its own;
its events are handed over to the event loop. Two of its behaviors are changed here. kazoo replaces
a lost session by another: here the loss is final. kazoo lets an operation without a connection
wait: here it fails after a timeout, and may still take effect.

A third behavior is dangerous: kazoo's thread keeps a session alive even if the event loop hangs. A
broker with a hanging loop would keep its leadership, and serve nothing. So another thread watches
the loop, and ends the session when the loop has not run for the session timeout (decision 0040).
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

from ottla.environment.zookeeper import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SessionState,
    Stat,
    Watch,
    Write,
    ZooKeeperError,
)

_STATES: Final = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}
_ERRORS: Final[Sequence[tuple[type[Exception], type[ZooKeeperError]]]] = (
    (exceptions.NoNodeError, NoNodeError),
    (exceptions.NodeExistsError, NodeExistsError),
    (exceptions.BadVersionError, BadVersionError),
    (exceptions.NotEmptyError, NotEmptyError),
    (exceptions.SessionExpiredError, SessionExpiredError),
    (exceptions.ConnectionLoss, ConnectionLostError),
    (exceptions.OperationTimeoutError, ConnectionLostError),
    (exceptions.SessionMovedError, ConnectionLostError),
)
_NOT_THE_CAUSE: Final = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
"""The errors of a commit's operations before and after the failed operation."""
BEATS_PER_TIMEOUT: Final = 10
"""The number of heartbeats of the loop per session timeout."""
_log = logging.getLogger(__name__)
# A command configures no logging. Without a handler, Python prints each failed attempt of kazoo to
# stderr, before the command's own sentence; a broker's handlers get these lines all the same.
logging.getLogger("kazoo").addHandler(logging.NullHandler())


async def connect(hosts: str, timeout_seconds: float) -> "KazooSession":
    """Begin a session with servers `host:port,host:port/chroot`; a missing chroot is created.

    ConnectionLostError if no server responds within the timeout.
    """
    loop = asyncio.get_running_loop()
    servers, slash, chroot = hosts.partition("/")
    if slash and chroot:
        maker = await loop.run_in_executor(None, _started, servers, timeout_seconds)
        try:
            await loop.run_in_executor(None, maker.ensure_path, f"/{chroot}")
        except exceptions.KazooException as error:
            raise _error(error) from error
        finally:
            await loop.run_in_executor(None, _stop, maker)
    client = await loop.run_in_executor(None, _started, hosts, timeout_seconds)
    return KazooSession(client, loop, timeout_seconds)


class KazooSession:
    """One session, from its beginning to its end. Belongs to one event loop."""

    def __init__(
        self, client: KazooClient, loop: asyncio.AbstractEventLoop, timeout_seconds: float
    ) -> None:
        """Take over a connected client."""
        self.session_id: int = client.client_id[0] if client.client_id else 0
        self._state = SessionState.CONNECTED
        self._client = client
        self._loop = loop
        self._patience_seconds = timeout_seconds
        self._listeners: list[Callable[[SessionState], None]] = []
        self._is_over = threading.Event()
        self._stopping = threading.Lock()
        client.add_listener(self._on_kazoo_state)
        if client.state != KazooState.CONNECTED or not self.session_id:
            self._on_kazoo_state(client.state)
        self._beat_seconds = timeout_seconds / BEATS_PER_TIMEOUT
        self._beats = 0
        self._beat()
        threading.Thread(target=self._watch_loop, name="zookeeper-watch", daemon=True).start()

    @property
    def state(self) -> SessionState:
        """The known state of the session; EXPIRED as soon as any thread ends it."""
        return SessionState.EXPIRED if self._is_over.is_set() else self._state

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        """Call the listener at every change of the state."""
        self._listeners.append(listener)

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Read a node."""
        data, stat = await self._ask(lambda: self._client.get_async(path, self._ring(watch)))
        return Node(data, _stat(stat))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return a node's stat; None if it does not exist."""
        stat = await self._ask(lambda: self._client.exists_async(path, self._ring(watch)))
        return None if stat is None else _stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names below a node."""
        names = await self._ask(lambda: self._client.get_children_async(path, self._ring(watch)))
        return sorted(names)

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Apply all of these operations or none."""
        transaction = self._client.transaction()
        for operation in operations:
            _add(transaction, operation)
        outcomes = await self._ask(transaction.commit_async)
        failures = [one for one in outcomes if isinstance(one, Exception)]
        for failure in failures:
            if not isinstance(failure, _NOT_THE_CAUSE):
                raise _error(failure, operations[outcomes.index(failure)].path)
        if failures:
            raise _error(failures[0])

    async def close(self) -> None:
        """End the session."""
        self._is_over.set()
        await self._loop.run_in_executor(None, self._stop)
        self._become(SessionState.EXPIRED)

    # -- between kazoo's threads and the event loop ---------------------------------------------

    async def _ask(self, begin: Callable[[], Any]) -> Any:
        """Begin an operation, and wait for kazoo's result."""
        if self._is_over.is_set():
            raise SessionExpiredError(f"session {self.session_id:#x} is over")
        answered = self._loop.create_future()
        begin().rawlink(lambda result: self._call(_answer, answered, result))
        try:
            async with asyncio.timeout(self._patience_seconds):
                return await answered
        except TimeoutError:
            raise ConnectionLostError("no answer") from None
        except exceptions.KazooException as error:
            raise _error(error) from None

    def _ring(self, watch: Watch | None) -> Callable[[object], None] | None:
        return None if watch is None else lambda _: self._call(watch)

    def _on_kazoo_state(self, state: str) -> None:
        """Handle a change of the connection, in kazoo's thread."""
        if state == KazooState.LOST:
            # kazoo would open a new session: no operation may be sent in it.
            self._is_over.set()
            threading.Thread(target=self._stop, name="zookeeper-stop", daemon=True).start()
        self._call(self._become, _STATES[state])

    def _call(self, callback: Callable[..., object], *args: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: there is no listener left
            self._loop.call_soon_threadsafe(callback, *args)

    def _become(self, state: SessionState) -> None:
        if self._is_over.is_set():
            state = SessionState.EXPIRED
        if state is not self._state and self._state is not SessionState.EXPIRED:
            self._state = state
            for listener in self._listeners:
                listener(state)

    def _stop(self) -> None:
        with self._stopping:
            _stop(self._client)

    # -- the watch over the event loop ----------------------------------------------------------

    def _beat(self) -> None:
        self._beats += 1
        if not self._is_over.is_set():
            self._loop.call_later(self._beat_seconds, self._beat)

    def _watch_loop(self) -> None:
        """End the session when the loop hangs; runs in a separate thread.

        The broker's leases hold for one session timeout after the last confirmation, which the loop
        has handled. One heartbeat later, all leases have expired, and other brokers may lead. From
        then on `state` is EXPIRED, before the loop runs any other code.
        """
        seen = silent_beats = 0
        while not self._is_over.wait(self._beat_seconds):
            silent_beats = silent_beats + 1 if self._beats == seen else 0
            seen = self._beats
            if silent_beats > BEATS_PER_TIMEOUT + 1:
                self._is_over.set()
                self._call(self._become, SessionState.EXPIRED)
                _log.error(
                    "the event loop hangs for more than %.1f s: ending session %#x with ZooKeeper",
                    self._patience_seconds,
                    self.session_id,
                )
                self._stop()


def _started(hosts: str, timeout_seconds: float) -> KazooClient:
    """Return a connected client; blocks."""
    try:
        client = KazooClient(hosts, timeout=timeout_seconds)
    except ValueError as error:
        raise ConnectionLostError(
            f"{hosts!r} is not a list of ZooKeeper servers: {error}"
        ) from None
    if not client.start_async().wait(timeout_seconds):
        _stop(client)
        raise ConnectionLostError(f"no ZooKeeper server answers at {hosts}")
    return client


def _stop(client: KazooClient) -> None:
    client.stop()
    client.close()


def _answer(answered: "asyncio.Future[Any]", result: Any) -> None:
    if answered.done():
        return
    if result.exception is not None:
        answered.set_exception(result.exception)
    else:
        answered.set_result(result.value)


def _add(transaction: Any, operation: Operation) -> None:
    match operation:
        case Create(path, data, is_ephemeral):
            transaction.create(path, data, ephemeral=is_ephemeral)
        case Write(path, data, version):
            transaction.set_data(path, data, version)
        case Delete(path, version):
            transaction.delete(path, version)
        case Check(path, version):
            transaction.check(path, version)


def _stat(stat: Any) -> Stat:
    return Stat(stat.czxid, stat.version, stat.ephemeralOwner)


def _error(error: Exception, detail: str = "") -> ZooKeeperError:
    for theirs, ours in _ERRORS:
        if isinstance(error, theirs):
            return ours(detail or str(error))
    return ZooKeeperError(f"{error!r} {detail}")
