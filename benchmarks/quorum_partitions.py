"""Many partitions in a quorum: snapshots, idle controllers, starts of a broker, and a failover.

The controllers are nodes without brokers, on this machine. A start of a broker is timed from its
process to its first acknowledgement, with the logs in the page cache. No peer is measured here.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import patch

from benchmarks.broker_costs import PERCENT
from benchmarks.broker_process import MeasuredBroker
from benchmarks.cluster_starts import BROKERS, SESSION_MS, MeasuredCluster, quorum_cluster
from benchmarks.comparison import SECONDS, Case, Unit
from benchmarks.failing_over import await_replicas, seconds_to_write_everywhere
from benchmarks.imports import with_bytecode_in
from benchmarks.librdkafka_load import topic_for
from benchmarks.side_by_side import CPU
from benchmarks.wire_client import WireClient
from ottla.broker.quorum.quorum_log import LogSettings
from ottla.broker.quorum.replica_files import FirstVoters, ReplicaFiles
from ottla.metadata.image import ClusterImage
from ottla.metadata.log_replay import MetadataLogReplay
from ottla.metadata.metadata_version import NEWEST_METADATA_VERSION
from ottla.metadata.record_frames import batches_of, metadata_records_of
from ottla.metadata.records import (
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.model.identifiers import Offset
from ottla.raft.snapshots import SnapshotId, SnapshotStart, snapshot_bytes
from ottla.runtime.disk import KernelDisk
from tests.cluster.quorum_nodes import NodeProcess, QuorumCluster
from tests.metadata_building import uuid_of

PARTITIONS: Final = 10_000
TOPICS: Final = 10
FAILOVER_PARTITIONS: Final = 2_000
SNAPSHOT_SECONDS: Final = {10_000: 0.5, 100_000: 4.0}
"""The partitions of a snapshot, and the seconds in which it is to be loaded."""
LOADS: Final = 5
RESTARTS: Final = 3
DEATHS: Final = 3
SETTLING_SECONDS: Final = 5
IDLE_SECONDS: Final = 20
CLUSTER_ID: Final = "of-the-benchmark"
RESIDENT: Final = Unit("MB", 1, is_time=True)
APART: Final = {1: "controller", 2: "controller", 3: "controller", 4: "broker"}
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}


def cases() -> Iterator[Case]:
    """Yield snapshots first, because they need no processes."""
    for partitions, asked in SNAPSHOT_SECONDS.items():
        with TemporaryDirectory() as folder:
            _write_snapshot(folder, partitions)
            figures = tuple(_load_seconds(folder, partitions) for _ in range(LOADS))
        yield _case(f"snapshot of {partitions:,} partitions is loaded", SECONDS, figures, asked)
    with TemporaryDirectory() as folder, patch.dict(os.environ, with_bytecode_in(f"{folder}/code")):
        nodes = Path(folder) / "nodes"
        nodes.mkdir()
        with QuorumCluster(nodes, APART, SETTINGS) as cluster:
            yield from _crowd_cases(cluster)
        with quorum_cluster() as three:
            seconds = tuple(_failover_seconds(three) for _ in range(DEATHS))
    work = f"{FAILOVER_PARTITIONS:,} partitions, kill -9, sessions of 3 s: all take writes"
    yield _case(work, SECONDS, seconds, SESSION_MS / 1000 + 1)


def _case(work: str, unit: Unit, figures: tuple[float, ...], asked: float | None) -> Case:
    return Case(work=work, unit=unit, ours=lambda: None, asked=asked, figures=figures)


# -- snapshots ------------------------------------------------------------------------------------


def _write_snapshot(folder: str, partitions: int) -> None:
    disk = KernelDisk()
    ReplicaFiles(disk, folder, LogSettings(), FirstVoters(), 0).close(0)
    data = list(batches_of(_records(partitions), NEWEST_METADATA_VERSION, 0))
    snapshot_id = SnapshotId(partitions, 1)
    content = snapshot_bytes(snapshot_id, SnapshotStart(), data)
    path = Path(folder) / "__cluster_metadata-0" / snapshot_id.file_name
    path.write_bytes(content)


def _records(partitions: int) -> Iterator[MetadataRecord]:
    """Yield topics of ten partitions with three replicas."""
    for number in range(partitions // 10):
        topic_id = uuid_of(number + 1)
        yield TopicRecord(name=f"topic-{number}", topic_id=topic_id)
        for partition in range(10):
            replicas = [(partition + place) % 3 + 1 for place in range(3)]
            yield PartitionRecord(
                partition_id=partition,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                removing_replicas=[],
                adding_replicas=[],
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[uuid_of(replica) for replica in replicas],
            )


def _load_seconds(folder: str, partitions: int) -> float:
    """Open the replica's directory, check the snapshot, and replay it, as a start does."""
    began = time.perf_counter()
    files = ReplicaFiles(KernelDisk(), folder, LogSettings(), FirstVoters(), 0)
    newest = files.outline.snapshots[-1]
    batches = files.snapshots.data_of(newest)
    replay = MetadataLogReplay(ClusterImage(CLUSTER_ID))
    records = (record for batch in batches for record in metadata_records_of(batch))
    change = replay.load(records, Offset(newest.end_offset))
    seconds = time.perf_counter() - began
    assert sum(len(topic.partitions) for topic in change.image.topics.values()) == partitions
    files.close(0)
    return seconds


# -- controllers and a broker ---------------------------------------------------------------------


def _crowd_cases(cluster: QuorumCluster) -> Iterator[Case]:
    (broker,) = cluster.brokers
    client = _client(broker)
    for number in range(TOPICS):
        client.create_topic(f"crowd-{number}", PARTITIONS // TOPICS)
    client.close()
    time.sleep(SETTLING_SECONDS)
    controllers = [MeasuredBroker(node.pid, 0) for node in cluster.controllers]
    before = [one.cpu_seconds() for one in controllers]
    time.sleep(IDLE_SECONDS)
    busy = [one.cpu_seconds() - then for one, then in zip(controllers, before, strict=True)]
    memory = max(one.memory_megabytes() for one in controllers)
    name = f"controller with {PARTITIONS:,} partitions"
    yield _case(f"{name}: memory of the largest of three", RESIDENT, (memory,), 60)
    percent = max(busy) / IDLE_SECONDS * 100
    yield _case(f"{name}: idle CPU of the busiest of three", PERCENT, (percent,), 1)
    restarts = [_restart(cluster, broker) for _ in range(RESTARTS)]
    seconds, busy_seconds = zip(*restarts, strict=True)
    work = f"broker with {PARTITIONS:,} partitions: from a clean stop to serving"
    yield _case(work, SECONDS, seconds, 5)
    yield _case(CPU, SECONDS, busy_seconds, None)


def _restart(cluster: QuorumCluster, broker: NodeProcess) -> tuple[float, float]:
    """Return the seconds of a start after a clean stop, and its CPU seconds."""
    broker.stop()
    began = time.perf_counter()
    cluster.start(broker)
    client = _client(broker)
    client.produce_until_acknowledged(f"crowd-{TOPICS - 1}")
    seconds = time.perf_counter() - began
    client.close()
    return seconds, MeasuredBroker(broker.pid, 0).cpu_seconds()


def _client(broker: NodeProcess) -> WireClient:
    return WireClient(int(broker.address("PLAINTEXT").rpartition(":")[2]))


# -- a failover -----------------------------------------------------------------------------------


def _failover_seconds(cluster: MeasuredCluster) -> float:
    with topic_for(cluster.port, "crowd", FAILOVER_PARTITIONS, BROKERS) as topic:
        await_replicas(cluster, topic)
        time.sleep(SETTLING_SECONDS)
        return seconds_to_write_everywhere(cluster, topic)
