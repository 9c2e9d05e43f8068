"""ZooKeeper, as a session of it sees it: a tree of small files, with versions and watches.

Three properties matter:

* an **ephemeral** node exists as long as the session that created it. A session ends when ZooKeeper
  receives no heartbeat within the session timeout; the client learns of that later, if at all;
* a **watch** fires once when something has changed, without saying how: the client reads again;
* an operation with a lost connection **may have happened**: `ConnectionLostError` says so.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1
Watch = Callable[[], None]
"""Called once: something about the node, or about its children, has changed. Look again."""


class ZooKeeperError(Exception):
    """ZooKeeper refuses an operation."""


class NoNodeError(ZooKeeperError):
    """There is no such node, or no parent for it."""


class NodeExistsError(ZooKeeperError):
    """The node is there already."""


class BadVersionError(ZooKeeperError):
    """The node has been changed since."""


class NotEmptyError(ZooKeeperError):
    """The node has children."""


class ConnectionLostError(ZooKeeperError):
    """The connection was lost: the operation may have happened, or may still happen."""


class SessionExpiredError(ZooKeeperError):
    """The session is over, and with it every ephemeral node that it had."""


class SessionState(Enum):
    """The state of a session, as the client knows it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is lost; the session may be over, or may go on."""
    EXPIRED = "expired"
    """The session is over for good."""


class Stat(NamedTuple):
    """A node's metadata."""

    created_zxid: int
    """The transaction that created the node; it changes when the node is created again."""
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
        """The state of the session as far as it is known."""
        ...

    def on_state(self, listener: Callable[[SessionState], None]) -> None:
        """Call the listener at every change of the state."""
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
        """Apply all of these operations, in order, or none.

        The error is the error of the first operation that fails.
        """
        ...

    async def close(self) -> None:
        """End the session at once; its ephemeral nodes go."""
        ...


ConnectToZooKeeper = Callable[[str, float], Awaitable[ZooKeeperSession]]
"""Begins a session with a connection string `HOST:PORT,HOST:PORT/PATH` and a session timeout in
seconds; ZooKeeperError if no server answers."""
