"""The state of a ZooKeeper: nodes, sessions, watches; without time and network."""

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ottla.environment.zookeeper import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    Stat,
    Write,
)

Ring = Callable[[], None]


@dataclass(slots=True)
class _Znode:
    data: bytes
    created_zxid: int
    owner_session: int = 0
    version: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> Stat:
        return Stat(self.created_zxid, self.version, self.owner_session)


class ZooKeeperTree:
    """Does one operation after the other; watches are rung when all of a commit is done."""

    def __init__(self) -> None:
        self.zxid = 0
        self.on_commit: list[Callable[[Sequence[Operation]], None]] = []
        """Called with every commit after all of it is applied."""
        self._nodes: dict[str, _Znode] = {"/": _Znode(b"", 0)}
        self._sessions: dict[int, None] = {}
        self._last_session = 0
        self._node_watches: dict[str, list[Ring]] = {}
        self._child_watches: dict[str, list[Ring]] = {}

    # -- sessions -------------------------------------------------------------------------------

    def open_session(self) -> int:
        """Begin a session, and return its number."""
        self._last_session += 1
        self._sessions[self._last_session] = None
        return self._last_session

    def has_session(self, session: int) -> bool:
        """Tell whether a session goes on."""
        return session in self._sessions

    def end_session(self, session: int) -> None:
        """End a session: its ephemeral nodes go."""
        if session not in self._sessions:
            return
        del self._sessions[session]
        owned = [path for path, node in self._nodes.items() if node.owner_session == session]
        for path in owned:
            self.zxid += 1
            self._remove(path)
            self._notify([path], [posixpath.dirname(path)])

    # -- reading --------------------------------------------------------------------------------

    def get(self, path: str, notify: Ring | None = None) -> Node:
        """Read a node."""
        node = self._node(path)
        if notify is not None:
            self._node_watches.setdefault(path, []).append(notify)
        return Node(node.data, node.stat())

    def exists(self, path: str, notify: Ring | None = None) -> Stat | None:
        """Look for a node."""
        node = self._nodes.get(path)
        if notify is not None:
            self._node_watches.setdefault(path, []).append(notify)
        return None if node is None else node.stat()

    def children(self, path: str, notify: Ring | None = None) -> list[str]:
        """Return the names below a node."""
        node = self._node(path)
        if notify is not None:
            self._child_watches.setdefault(path, []).append(notify)
        return sorted(node.children)

    # -- writing --------------------------------------------------------------------------------

    def commit(self, session: int, operations: Sequence[Operation]) -> None:
        """Do all of these, or none."""
        if session not in self._sessions:
            raise SessionExpiredError(f"session {session} is over")
        undo: list[Ring] = []
        nodes: list[str] = []
        parents: list[str] = []
        self.zxid += 1
        try:
            for one in operations:
                self._do(session, one, undo, nodes, parents)
        except Exception:
            self.zxid -= 1
            for step in reversed(undo):
                step()
            raise
        for look in self.on_commit:
            look(operations)
        self._notify(nodes, parents)

    def _do(
        self,
        session: int,
        operation: Operation,
        undo: list[Ring],
        nodes: list[str],
        parents: list[str],
    ) -> None:
        path = operation.path
        if isinstance(operation, Create):
            self._create(operation, session)
            undo.append(lambda: self._remove(path))
            parents.append(posixpath.dirname(path))
        else:
            node = self._node(path)
            if operation.version not in {ANY_VERSION, node.version}:
                raise BadVersionError(f"{path} has version {node.version}")
            if isinstance(operation, Check):
                return
            if isinstance(operation, Write):
                before = (node.data, node.version)
                node.data, node.version = operation.data, node.version + 1
                undo.append(lambda: self._restore(node, *before))
            else:
                self._delete(operation, node)
                undo.append(lambda: self._put(path, node))
                parents.append(posixpath.dirname(path))
        nodes.append(path)

    def _create(self, operation: Create, session: int) -> None:
        if operation.path in self._nodes:
            raise NodeExistsError(operation.path)
        self._node(posixpath.dirname(operation.path))
        owner = session if operation.is_ephemeral else 0
        self._put(operation.path, _Znode(operation.data, self.zxid, owner))

    def _delete(self, operation: Delete, node: _Znode) -> None:
        if node.children:
            raise NotEmptyError(operation.path)
        self._remove(operation.path)

    def _node(self, path: str) -> _Znode:
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        return node

    def _put(self, path: str, node: _Znode) -> None:
        self._nodes[path] = node
        self._nodes[posixpath.dirname(path)].children[posixpath.basename(path)] = None

    def _remove(self, path: str) -> None:
        del self._nodes[path]
        del self._nodes[posixpath.dirname(path)].children[posixpath.basename(path)]

    @staticmethod
    def _restore(node: _Znode, data: bytes, version: int) -> None:
        node.data, node.version = data, version

    def _notify(self, nodes: Sequence[str], parents: Sequence[str]) -> None:
        notified: list[Ring] = []
        for path in dict.fromkeys(nodes):
            notified += self._node_watches.pop(path, [])
        for path in dict.fromkeys(parents):
            notified += self._child_watches.pop(path, [])
        for notify in notified:
            notify()
