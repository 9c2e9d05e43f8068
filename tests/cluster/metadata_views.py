"""The committed metadata of a cluster, read where it is kept: in ZooKeeper, or in the quorum's log.

The brokers are not asked: a paused or isolated broker has an old image.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.broker.quorum.replica_life import ReplicaWorld
from ottla.metadata.image import ClusterImage
from ottla.metadata.log_replay import MetadataLogReplay
from ottla.metadata.record_frames import metadata_records_of
from ottla.model.address import Address
from ottla.model.identifiers import Offset
from ottla.runtime import cold_reads
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import KernelDisk
from ottla.runtime.network import KernelNetwork
from ottla.runtime.randomness import SystemRandomness
from ottla.storage.files.checkpoints import META_PROPERTIES_FILE, read_meta_properties
from ottla.testing.child_process import HOST
from ottla.testing.cluster import Cluster
from tests.cluster.load import WAIT_SECONDS_MAX
from tests.interop.kafka_node import free_ports
from tests.quorum_nodes import QuorumNode, voter

OBSERVER = 1000
NO_BROKER = -1
T = TypeVar("T")


class PartitionState(NamedTuple):
    """The leader and the in-sync replicas of a partition."""

    leader: int = NO_BROKER
    in_sync: frozenset[int] = frozenset()
    leader_epoch: int = -1


class MetadataView(Protocol):
    """The metadata of a cluster, as it is committed."""

    def controller(self) -> int:
        """Return the id of the active controller; -1 if there is none."""

    def topics(self) -> Sequence[str]: ...

    def replicas(self, topic: str) -> dict[int, list[int]]:
        """Return the replicas of each partition; nothing if the topic is gone."""

    def state(self, topic: str, partition: int) -> PartitionState: ...

    def is_whole(self) -> bool:
        """Return whether each controller votes, with its present directory."""

    def close(self) -> None: ...


def view_of(cluster: Cluster) -> MetadataView:
    return QuorumView(cluster) if cluster.has_quorum else ZooKeeperView(cluster)


class ZooKeeperView:
    """The nodes in ZooKeeper."""

    def __init__(self, cluster: Cluster) -> None:
        self._zookeeper = KazooClient(cluster.zookeeper_connect)
        self._zookeeper.start(WAIT_SECONDS_MAX)

    def close(self) -> None:
        self._zookeeper.stop()
        self._zookeeper.close()

    def controller(self) -> int:
        try:
            return int(self._read("/controller")["brokerid"])
        except NoNodeError:
            return NO_BROKER

    def topics(self) -> Sequence[str]:
        topics: list[str] = self._zookeeper.get_children("/brokers/topics")
        return topics

    def replicas(self, topic: str) -> dict[int, list[int]]:
        try:
            partitions = self._read(f"/brokers/topics/{topic}")["partitions"]
        except NoNodeError:  # It is being deleted.
            return {}
        return {int(partition): replicas for partition, replicas in partitions.items()}

    def state(self, topic: str, partition: int) -> PartitionState:
        try:
            found = self._read(f"/brokers/topics/{topic}/partitions/{partition}/state")
        except NoNodeError:  # It is being created.
            return PartitionState()
        return PartitionState(
            int(found["leader"]), frozenset(found["isr"]), int(found["leader_epoch"])
        )

    def is_whole(self) -> bool:
        return True

    def _read(self, path: str) -> dict[str, Any]:
        content, _ = self._zookeeper.get(path)
        read: dict[str, Any] = json.loads(content)
        return read


class QuorumView:
    """An observer of the metadata log in this process."""

    def __init__(self, cluster: Cluster) -> None:
        assert cluster.quorum is not None
        self._cluster = cluster
        self._cluster_id = cluster.quorum.cluster_id
        self._ports = cluster.quorum.ports
        self._replay = MetadataLogReplay(ClusterImage(self._cluster_id))
        self._folder = TemporaryDirectory(prefix="ottla-observer-")
        self._threads = ThreadPoolExecutor(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._node = self._do(self._open())

    def close(self) -> None:
        self._do(self._node.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._threads.shutdown()
        self._folder.cleanup()

    def controller(self) -> int:
        return self._do(self._leader())

    def topics(self) -> Sequence[str]:
        return list(self._image().topics)

    def replicas(self, topic: str) -> dict[int, list[int]]:
        found = self._image().topics.get(topic)
        partitions = () if found is None else found.partitions
        return {number: list(one.replicas) for number, one in enumerate(partitions)}

    def state(self, topic: str, partition: int) -> PartitionState:
        found = self._image().topics.get(topic)
        if found is None or partition >= len(found.partitions):
            return PartitionState()
        one = found.partitions[partition]
        return PartitionState(one.leader, frozenset(one.isr), one.leader_epoch)

    def is_whole(self) -> bool:
        wanted = {node_id: self._directory_id(node_id) for node_id in self._ports}
        return self._do(self._voters()) == wanted

    def _directory_id(self, node_id: int) -> bytes | None:
        path = self._cluster.brokers[node_id].data_dir / META_PROPERTIES_FILE
        mark = read_meta_properties(KernelDisk(), str(path))
        return None if mark is None else mark.directory_id

    def _image(self) -> ClusterImage:
        return self._do(self._catch_up())

    async def _leader(self) -> int:
        replica = self._node.replica
        leader = replica.leader if replica.is_in_touch else None
        return NO_BROKER if leader is None or leader.node_id is None else leader.node_id

    async def _voters(self) -> dict[int, bytes]:
        return {key.id: key.directory_id for key in self._node.replica.voters.keys}

    async def _catch_up(self) -> ClusterImage:
        replica = self._node.replica
        assert not self._node.failures, self._node.failures
        while self._replay.end_offset < replica.high_watermark:
            try:
                found = replica.read(self._replay.end_offset, replica.high_watermark)
            except LookupError:
                snapshot = replica.newest_snapshot()
                assert snapshot is not None, "a log that begins late has a snapshot"
                records = [one for batch in snapshot[1] for one in metadata_records_of(batch)]
                self._replay.load(records, Offset(snapshot[0].end_offset))
            else:
                self._replay.catch_up(found)
        return self._replay.image

    async def _open(self) -> QuorumNode:
        return await QuorumNode.start(
            ReplicaWorld(KernelDisk(), KernelNetwork(), SystemClock(), SystemRandomness()),
            self._folder.name,
            voter(OBSERVER, HOST, free_ports(1)[0], SystemRandomness().uuid()),
            cold_reads=cold_reads,
            threads=self._threads,
            bootstrap=tuple(Address(HOST, port) for port in self._ports.values()),
            is_controller=False,
            cluster_id=self._cluster_id,
        )

    def _do(self, work: Awaitable[T]) -> T:
        async def done() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(WAIT_SECONDS_MAX)
