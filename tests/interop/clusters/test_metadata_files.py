"""Metadata logs: our code reads every record of a Kafka controller, and Kafka our snapshots."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, ConfigResource
from ottla.metadata.difference import image_records
from ottla.metadata.image import ClusterImage
from ottla.metadata.log_replay import MetadataLogReplay
from ottla.metadata.metadata_version import NEWEST_METADATA_VERSION
from ottla.metadata.record_frames import (
    batches_of,
    decode_record,
    encode_record,
    metadata_records_of,
)
from ottla.model.identifiers import Offset
from ottla.raft.snapshots import (
    SnapshotId,
    snapshot_bytes,
    snapshot_data_of,
    snapshot_id_of,
    snapshot_start_of,
)
from ottla.wire.records.batch import RecordBatch, batches
from ottla.wire.records.record import records_of
from tests.clients.admin_stories import eventually
from tests.interop.clusters.kafka_cluster import FIRST_CONTROLLER_ID, KafkaCluster, kafka_cluster
from tests.interop.clusters.metadata_story import AUTHORIZED, change_metadata, change_security
from tests.interop.kafka_dump import dump
from tests.interop.kafka_node import CLUSTER_ID, run_tool

OFTEN = {"metadata.log.max.record.bytes.between.snapshots": "800"}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A cluster with all kinds of metadata, cleanly stopped."""
    settings = {**AUTHORIZED, **OFTEN}
    folder = tmp_path_factory.mktemp("cluster")
    with kafka_cluster(folder, brokers=2, settings=settings) as cluster:
        cluster.start()
        change_metadata(cluster.bootstrap_servers)
        cluster.stop()
        yield cluster


def test_our_code_reads_every_record_and_writes_the_same_bytes(stopped: KafkaCluster) -> None:
    log = log_of(metadata_folder(stopped))
    assert log[0].base_offset == 0, "the log begins with its first record"
    check_frames(log)


def test_a_log_and_its_snapshots_replay_to_the_same_image(stopped: KafkaCluster) -> None:
    folder = metadata_folder(stopped)
    image_by_end = images_of(log_of(folder))
    snapshot_ids = snapshots_of(folder)
    assert len(snapshot_ids) > 1, "the controller has written too few snapshots"
    for snapshot_id in snapshot_ids:
        expected = image_by_end[Offset(snapshot_id.end_offset)]
        check_snapshot(folder / snapshot_id.file_name, snapshot_id, expected)
    image = image_by_end[max(image_by_end)]
    assert image.topics.keys() == {"kept", "moved"}
    assert [one.replicas for one in image.topics["moved"].partitions] == [(2,), (1,)]
    assert image.topic_settings("kept") == {"retention.ms": "1000"}
    assert len(image.kept_records) == 3, "an ACL, a user, a quota"


def test_kafkas_tools_read_a_snapshot_of_ours(stopped: KafkaCluster, tmp_path: Path) -> None:
    path = write_our_snapshot(stopped, tmp_path)
    found = dump([path], "--cluster-metadata-decoder")
    assert found.complaints == []
    kinds = [json.loads(one["value"] or "{}").get("type") for one in found.by_path[path].records]
    assert {"TOPIC_RECORD", "ACCESS_CONTROL_ENTRY_RECORD", "CLIENT_QUOTA_RECORD"} <= set(kinds)
    assert in_shell(path, "ls /image/topics/byName") == ["kept", "moved"]
    assert in_shell(path, "ls /image/scram/SCRAM-SHA-256") == ["felix"]


def test_a_kafka_controller_begins_with_a_snapshot_of_ours(stopped: KafkaCluster) -> None:
    """Only our snapshot is left of the log: topics, settings and ACLs come from it."""
    folder = metadata_folder(stopped)
    path = write_our_snapshot(stopped, folder.with_name("ours"))
    end = max(images_of(log_of(folder)))
    for file in folder.iterdir():
        if file.is_file() and file.name != "quorum-state":
            file.unlink()
    path.rename(folder / path.name)
    stopped.start()
    servers = stopped.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        found = {topic.name: topic for topic in admin.topics.list()}
        assert found.keys() == {"kept", "moved"}
        assert len(found["kept"].partitions) == 4
        assert {one.leader for one in found["kept"].partitions} <= {1, 2}
        resource = ConfigResource.topic("kept")
        assert admin.configs.describe(resource)[resource]["retention.ms"].value == "1000"
        admin.topics.create("new")
        eventually(lambda: "new" in {topic.name for topic in admin.topics.list()})
        assert admin.cluster.quorum().high_watermark > end
    change_security(servers)
    stopped.stop()
    assert "ERROR" not in stopped.nodes[FIRST_CONTROLLER_ID].output


def images_of(log: list[RecordBatch]) -> dict[Offset, ClusterImage]:
    """Return the image at the end of each batch."""
    replay = MetadataLogReplay(ClusterImage(CLUSTER_ID))
    image_by_end = {}
    for batch in log:
        replay.apply_batch(batch)
        replay.commit(batch.end_offset)
        image_by_end[replay.end_offset] = replay.image
    return image_by_end


def write_our_snapshot(cluster: KafkaCluster, directory: Path) -> Path:
    """Write a snapshot of the whole log, with the voters of Kafka's snapshot."""
    folder = metadata_folder(cluster)
    log = log_of(folder)
    images = images_of(log)
    end_offset = max(images)
    snapshot_id = SnapshotId(end_offset, log[-1].partition_leader_epoch)
    start = snapshot_start_of((folder / snapshots_of(folder)[-1].file_name).read_bytes())
    data = batches_of(image_records(images[end_offset]), NEWEST_METADATA_VERSION, 0)
    directory.mkdir(exist_ok=True)
    path = directory / snapshot_id.file_name
    path.write_bytes(snapshot_bytes(snapshot_id, start, data))
    return path


def in_shell(snapshot: Path, command: str) -> list[str]:
    """Run a command of `kafka-metadata-shell`, and return its words.

    The shell logs an error for each control record, also in Kafka's own snapshots.
    """
    tool = "org.apache.kafka.shell.MetadataShell"
    done = run_tool(tool, "--snapshot", str(snapshot), *command.split())
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if "Ignoring control record" not in line]
    return " ".join(lines).split()


def check_frames(log: list[RecordBatch]) -> None:
    """Our writer makes Kafka's bytes, where Kafka writes a record in its newest version."""
    equal = other = 0
    for batch in log:
        if batch.is_control:
            continue
        for record in records_of(batch):
            assert record.value is not None
            theirs = bytes(record.value)
            decoded = decode_record(theirs)
            ours = encode_record(decoded)
            assert decode_record(ours) == decoded
            if ours[:3] == theirs[:3]:  # frame, kind, version
                assert ours == theirs, decoded
                equal += 1
            else:
                other += 1
    assert equal > 5 * other


def check_snapshot(path: Path, snapshot_id: SnapshotId, expected: ClusterImage) -> None:
    """A snapshot has the image of the log up to its end, and ours has as many records."""
    content = path.read_bytes()
    start = snapshot_start_of(content)
    assert start.kraft_version == 1
    assert start.voters is not None
    data = snapshot_data_of(content)
    records = [record for batch in data for record in metadata_records_of(batch)]
    replay = MetadataLogReplay(ClusterImage(CLUSTER_ID))
    image = replay.load(records, Offset(snapshot_id.end_offset)).image
    assert image == expected
    ours = list(image_records(image))
    assert Counter(map(type, ours)) == Counter(map(type, records))
    assert MetadataLogReplay(ClusterImage(CLUSTER_ID)).load(ours, image.end_offset).image == image


def metadata_folder(cluster: KafkaCluster) -> Path:
    """Return the partition of the metadata log at the controller."""
    return cluster.nodes[FIRST_CONTROLLER_ID].directory / "metadata" / "__cluster_metadata-0"


def snapshots_of(folder: Path) -> list[SnapshotId]:
    """Return the snapshots behind the first, which has only the voters."""
    found = [snapshot_id_of(path.name) for path in sorted(folder.glob("*.checkpoint"))]
    return [one for one in found if one is not None and one.end_offset]


def log_of(folder: Path) -> list[RecordBatch]:
    """Read all batches."""
    return [batch for path in sorted(folder.glob("*.log")) for batch in batches(path.read_bytes())]
