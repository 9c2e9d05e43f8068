"""A session with a simulated ZooKeeper tree, without a network."""

from collections.abc import Sequence

from ottla.environment.zookeeper import Node, Operation, SessionState, Stat, Watch
from ottla.simulation.world.zookeeper_tree import ZooKeeperTree


class DirectSession:
    """Operations complete at once and never fail."""

    def __init__(self, tree: ZooKeeperTree) -> None:
        self.session_id = tree.open_session()
        self.state = SessionState.CONNECTED
        self.tree = tree

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        return self.tree.get(path, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return self.tree.exists(path, watch)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self.tree.children(path, watch)

    async def commit(self, operations: Sequence[Operation]) -> None:
        self.tree.commit(self.session_id, operations)

    async def close(self) -> None:
        self.tree.end_session(self.session_id)
