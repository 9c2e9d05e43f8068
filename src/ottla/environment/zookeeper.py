"""ZooKeeper, as a session of it sees it: a tree of small files, with versions and watches.

Three things make it what it is:

* an **ephemeral** node is there as long as the session that made it. A session ends when ZooKeeper
  has not heard of it for its time-out; the client hears of that later, if at all;
* a **watch** tells once that something has changed, not what: whoever is told has to look again;
* an operation whose connection was lost **may have happened**: `ConnectionLostError` says so.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1
Watch = Callable[[], None]
"""Called once: something about the node, or about its children, has changed. Look again."""


class ZooKeeperError(Exception):
    """What ZooKeeper has against an operation."""


class NoNodeError(ZooKeeperError):
    """There is no such node, or no parent for it."""


class NodeExistsError(ZooKeeperError):
    """The node is there already."""


class BadVersionError(ZooKeeperError):
    """The node has been changed since."""


class NotEmptyError(ZooKeeperError):
    """The node has children."""


class ConnectionLostError(ZooKeeperError):
    """Nobody knows whether it has happened, or will still happen."""


class SessionExpiredError(ZooKeeperError):
    """The session is over, and with it every ephemeral node that it had."""


class SessionState(Enum):
    """What a client knows of its session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is lost; the session may be over, or may go on."""
    EXPIRED = "expired"
    """The session is over for good."""


class Stat(NamedTuple):
    """What there is to know about a node beside its data."""

    created_zxid: int
    """The transaction that made it: another one when it is made again."""
    version: int
    """How often its data was changed."""
    owner_session: int
    """The session that it is there for; 0 if it stays."""


class Node(NamedTuple):
    """A node as it was read."""

    data: bytes
    stat: Stat


class Create(NamedTuple):
    """Make a node; its parent must be there."""

    path: str
    data: bytes = b""
    is_ephemeral: bool = False


class Write(NamedTuple):
    """Change a node's data."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Remove a node without children."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Go on only if a node has this version."""

    path: str
    version: int


Operation = Create | Write | Delete | Check


class ZooKeeperSession(Protocol):
    """One session. Paths are absolute, and below the chroot if there is one."""

    @property
    def session_id(self) -> int:
        """The number that its ephemeral nodes carry."""
        ...

    @property
    def state(self) -> SessionState:
        """What is known of the session now."""
        ...

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        """Tell someone of every change of the state from now on."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Read a node; a watch is rung when its data changes, or it goes.

        Raises NoNodeError if there is none.
        """
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Look for a node; a watch is rung when it comes, changes or goes."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names below a node, sorted; a watch is rung when one comes or goes."""
        ...

    async def commit(self, operations: Sequence[Operation]) -> None:
        """Do all of these or none, in order.

        The error is that of the first operation that cannot be done.
        """
        ...

    async def close(self) -> None:
        """End the session at once; its ephemeral nodes go."""
        ...


ConnectToZooKeeper = Callable[[str, float], Awaitable[ZooKeeperSession]]
"""Begins a session with one of `HOST:PORT,HOST:PORT/PATH`, that lasts so many seconds without a
sign of life; ZooKeeperError if there is nobody."""
