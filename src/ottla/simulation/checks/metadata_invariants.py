"""Invariants of metadata in ZooKeeper, checked at every write and every publication.

M9   all brokers have the same image at the same offset, and no broker goes back
M10  the controller writes only while it holds its epoch, no other broker writes the controller's
     nodes, epochs never fall, and no broker registers again before it has resigned
R9   a fenced broker is not in the ISR; only ISR members lead while there are enough

The truth is in ZooKeeper: the topics, and the registered incarnation of each broker. Brokers,
including the controller, learn of changes later.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from ottla.broker.metadata_store.zookeeper.store import NO_EPOCH, ZooKeeperMetadataStore
from ottla.broker.metadata_store.zookeeper.znodes import (
    BROKER_IDS,
    CONTROLLER_EPOCH,
    PERSISTENT_PATHS,
    SEEN_EPOCHS,
    TOPICS,
    read_topic,
    state_path,
    topic_path,
)
from ottla.environment.zookeeper import Check, Create, Operation, Write
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.metadata.records import NO_LEADER, MetadataRecord
from ottla.simulation.checks.checkers import Violation
from ottla.simulation.world.process import Process
from ottla.simulation.world.zookeeper_tree import ZooKeeperTree

NEVER_SEEN: Final = -1

OWNED_BY_CONTROLLER: Final = (
    "/brokers/topics/",
    "/config/",
    "/admin/",
    "/feature",
    "/latest",
    "/ottla",
)
R9: Final = "R9"
MIN_ISR: Final = "min.insync.replicas"


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


class ExpectedMetadata:
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


class MetadataInvariants:
    """Collects violations in `broken`."""

    def __init__(
        self,
        tree: ZooKeeperTree,
        process_of_broker: Callable[[int], Process | None],
        min_isr: int = 1,
    ) -> None:
        """`min_isr` is how many have to be in sync where a topic says nothing itself."""
        self.broken: list[str] = []
        self._tree = tree
        self._process_of_broker = process_of_broker
        self._min_isr = min_isr
        self._image_by_offset: dict[int, ClusterImage] = {}
        self._stores: dict[int, tuple[Process | None, ZooKeeperMetadataStore]] = {}
        tree.on_commit.append(self._on_commit)

    def follow(self, broker_id: int, store: ZooKeeperMetadataStore) -> None:
        """Look at all that the store of a broker's process publishes."""
        last = store.image

        def on_change(image: ClusterImage, _: Sequence[MetadataRecord]) -> None:
            nonlocal last
            self._on_image(broker_id, last, image)
            last = image

        store.subscribe(on_change)
        self._stores[broker_id] = (self._process_of_broker(broker_id), store)

    def violations(self) -> list[Violation]:
        """Return the violations, with the names of their invariants."""
        return [
            Violation(R9, one.removeprefix(f"{R9} "))
            if one.startswith(R9)
            else Violation("M10", one)
            for one in self.broken
        ]

    # -- writes ---------------------------------------------------------------------------------

    def _on_commit(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            self._on_operation(operation, operations)
            if operation.path.endswith("/state") and isinstance(operation, Create | Write):
                epoch = int(self._tree.get(CONTROLLER_EPOCH).data)
                written_by = json.loads(operation.data)["controller_epoch"]
                if written_by != epoch:
                    self.broken.append(f"{operation.path} of epoch {written_by} in epoch {epoch}")

    def _on_operation(self, operation: Operation, operations: Sequence[Operation]) -> None:
        is_owned = operation.path.startswith(OWNED_BY_CONTROLLER)
        is_fenced = isinstance(operations[0], Check) and operations[0].path == CONTROLLER_EPOCH
        is_setup = isinstance(operation, Create) and any(
            path == operation.path or path.startswith(f"{operation.path}/")
            for path in PERSISTENT_PATHS
        )
        if is_owned and not is_fenced and not is_setup:
            self.broken.append(f"without a fence: {operation}")
        if isinstance(operation, Create) and operation.path.startswith(f"{BROKER_IDS}/"):
            self._on_registration(int(operation.path.rpartition("/")[2]))

    def _on_registration(self, broker_id: int) -> None:
        process, store = self._stores.get(broker_id, (None, None))
        is_same = process is not None and process is self._process_of_broker(broker_id)
        if is_same and store is not None and store.broker_epoch != NO_EPOCH:
            self.broken.append(f"broker {broker_id} registers again without having stepped down")

    # -- publications ---------------------------------------------------------------------------

    def _on_image(self, broker_id: int, last: ClusterImage, image: ClusterImage) -> None:
        if image.end_offset < last.end_offset:
            self.broken.append(f"broker {broker_id} goes back from {last.end_offset}")
        known = self._image_by_offset.setdefault(image.end_offset, image)
        if known != image:
            self.broken.append(f"broker {broker_id} sees something else at {image.end_offset}")
        self._look_at_members(image)
        for topic_id, topic in image.topics_by_id.items():
            old = last.topics_by_id.get(topic_id)
            if old is topic:
                continue
            for number, one in enumerate(topic.partitions):
                if one.leader != NO_LEADER and one.leader not in one.isr:
                    self.broken.append(
                        f"{topic.name}-{number} is led by a replica that is not in sync"
                    )
                before = None if old is None else old.partition(number)
                if before is not None and (
                    before.leader_epoch > one.leader_epoch
                    or before.partition_epoch > one.partition_epoch
                    or (before.leader != one.leader and before.leader_epoch == one.leader_epoch)
                ):
                    self.broken.append(f"{topic.name}-{number}: {before} became {one}")

    def _look_at_members(self, image: ClusterImage) -> None:
        fenced = {one.broker_id for one in image.brokers.values() if one.is_fenced}
        for topic in image.topics.values():
            min_isr = int(image.topic_settings(topic.name).get(MIN_ISR, self._min_isr))
            for number, one in enumerate(topic.partitions):
                if fenced.intersection(one.isr):
                    self.broken.append(
                        f"{R9} {topic.name}-{number} has a fenced broker in sync: {one}"
                    )
                is_enough = len(one.isr) >= min(min_isr, len(one.replicas))
                if is_enough and one.eligible_leader_replicas:
                    self.broken.append(f"{R9} {topic.name}-{number} has enough in sync: {one}")
