"""A replica of ours of a Kafka cluster's metadata log: an observer, or the voter of a folder."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from ottla.broker.quorum.replica_life import ReplicaWorld
from ottla.metadata.image import ClusterImage
from ottla.metadata.log_replay import MetadataLogReplay
from ottla.metadata.record_frames import metadata_records_of
from ottla.model.address import Address
from ottla.model.identifiers import Offset, uuid_from_text
from ottla.runtime import cold_reads
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import KernelDisk
from ottla.runtime.network import KernelNetwork
from ottla.runtime.randomness import SystemRandomness
from tests.interop.kafka_node import CLUSTER_ID, free_ports
from tests.quorum_nodes import QuorumNode, voter

STORY_SECONDS_MAX = 90


@asynccontextmanager
async def our_replica(
    metadata_dir: Path,
    node_id: int,
    directory_id: bytes,
    *,
    controllers: str,
    port: int = 0,
) -> AsyncIterator[QuorumNode]:
    """Run a replica in a directory, beside these controllers, until the block ends.

    A replica with a port may be a voter; without one it is an observer.
    """
    world = ReplicaWorld(KernelDisk(), KernelNetwork(), SystemClock(), SystemRandomness())
    addresses = [one.split(":") for one in controllers.split(",")]
    with ThreadPoolExecutor(1) as threads:
        node = await QuorumNode.start(
            world,
            str(metadata_dir),
            voter(node_id, "127.0.0.1", port or free_ports(1)[0], directory_id),
            cold_reads=cold_reads,
            threads=threads,
            bootstrap=tuple(Address(host, int(number)) for host, number in addresses),
            is_controller=port != 0,
            cluster_id=CLUSTER_ID,
        )
        try:
            yield node
        finally:
            await node.stop()


def image_of(node: QuorumNode) -> ClusterImage:
    """Return the committed image: the newest snapshot, and the log after it."""
    replay = MetadataLogReplay(ClusterImage(CLUSTER_ID))
    if (snapshot := node.replica.newest_snapshot()) is not None:
        snapshot_id, data = snapshot
        records = [record for batch in data for record in metadata_records_of(batch)]
        replay.load(records, Offset(snapshot_id.end_offset))
    while found := node.replica.read(replay.end_offset, node.replica.high_watermark):
        replay.catch_up(found)
    return replay.image


async def until(node: QuorumNode, is_so: Callable[[], bool]) -> None:
    """Wait for a change of a replica."""
    while not is_so():
        await node.watcher.changed.wait()


def run(story: Awaitable[None]) -> None:
    """Run a story to its end."""

    async def limited() -> None:
        await asyncio.wait_for(story, STORY_SECONDS_MAX)

    asyncio.run(limited())


def directory_id_of(metadata_dir: Path) -> bytes:
    """Read the id of a formatted directory."""
    lines = (metadata_dir / "meta.properties").read_text().splitlines()
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    return uuid_from_text(fields["directory.id"])
