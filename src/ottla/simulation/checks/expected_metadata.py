"""The topics in ZooKeeper, and the registered incarnation of each broker: the truth of a cluster.

Brokers, including the controller, learn of changes later. Checks of brokers compare them with this.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from ottla.broker.metadata_store.zookeeper.znodes import (
    SEEN_EPOCHS,
    TOPICS,
    read_topic,
    state_path,
    topic_path,
)
from ottla.environment.zookeeper import Operation
from ottla.metadata.image import TopicImage
from ottla.simulation.world.zookeeper_tree import ZooKeeperTree

NEVER_SEEN: Final = -1


class Truth(Protocol):
    """The committed metadata, independent of the store."""

    @property
    def revision(self) -> object:
        """A value that differs after every change."""
        ...

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        """Every topic, as it is."""
        ...

    def broker_epoch(self, broker_id: int) -> int:
        """Return the life of a broker of which the topics tell."""
        ...


class ZooKeeperTruth:
    """Follows every commit; equal to a controller's view after a fresh read."""

    def __init__(self, tree: ZooKeeperTree) -> None:
        self.topics: dict[str, TopicImage] = {}
        self._tree = tree
        self._epochs: dict[int, int] = {}
        tree.on_commit.append(self._on_commit)

    @property
    def revision(self) -> object:
        """The number of the last change in the tree."""
        return self._tree.zxid

    def broker_epoch(self, broker_id: int) -> int:
        """Return the registration that a controller has taken note of."""
        return self._epochs.get(broker_id, NEVER_SEEN)

    def _on_commit(self, operations: Sequence[Operation]) -> None:
        changed: dict[str, None] = {}
        for operation in operations:
            if operation.path.startswith(f"{TOPICS}/"):
                changed[operation.path.split("/")[3]] = None
            elif operation.path.startswith(f"{SEEN_EPOCHS}/"):
                self._see_epoch(operation.path)
        for name in changed:
            self._see_topic(name)

    def _see_epoch(self, path: str) -> None:
        broker_id = int(path.rpartition("/")[2])
        if self._tree.exists(path) is None:
            self._epochs.pop(broker_id, None)
        else:
            self._epochs[broker_id] = int(self._tree.get(path).data)

    def _see_topic(self, name: str) -> None:
        if self._tree.exists(topic_path(name)) is None:
            self.topics.pop(name, None)
            return
        data = self._tree.get(topic_path(name)).data
        states: dict[int, tuple[bytes, int]] = {}
        for number in range(len(read_topic(name, data, {}).partitions)):
            path = state_path(name, number)
            if self._tree.exists(path) is not None:
                node = self._tree.get(path)
                states[number] = (node.data, node.stat.version)
        self.topics[name] = read_topic(name, data, states)
