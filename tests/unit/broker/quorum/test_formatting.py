"""The files that a formatted node begins with."""

from contextlib import suppress

import pytest

from ottla.broker.quorum.formatting import (
    AlreadyFormattedError,
    format_metadata_dir,
    read_bootstrap,
)
from ottla.metadata.record_frames import decode_record
from ottla.metadata.records import FeatureLevelRecord, MetadataRecord
from ottla.model.identifiers import BrokerId
from ottla.raft.snapshots import SnapshotStart, snapshot_data_of, snapshot_start_of
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import SimulatedCrash
from ottla.storage.files.checkpoints import MetaProperties, read_meta_properties
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.record import records_of
from tests.metadata_building import uuid_of

VOTERS = VoterSet((Voter(ReplicaKey(3, uuid_of(2)), (Endpoint("CONTROLLER", "c", 9093),)),))
FIRST: list[MetadataRecord] = [
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    FeatureLevelRecord(name="transaction.version", feature_level=2),
]
CHECKPOINT = "/meta/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def formatted(voters: VoterSet | None = None) -> SimulatedDisk:
    disk = SimulatedDisk()
    form(disk, voters)
    return disk


def form(disk: SimulatedDisk, voters: VoterSet | None = None) -> None:
    format_metadata_dir(
        disk,
        ["/data", "/meta"],
        "/meta",
        cluster_id="a-cluster",
        node_id=BrokerId(3),
        directory_ids={"/data": uuid_of(1), "/meta": uuid_of(2)},
        records=FIRST,
        voters=voters,
        now_ms=77,
    )


def content_of(disk: SimulatedDisk, path: str) -> bytes:
    file = disk.open_file(path)
    return file.read_at(0, file.size_bytes())


def test_each_directory_names_its_cluster_its_node_and_itself() -> None:
    disk = formatted()
    for path, directory_id in (("/data", uuid_of(1)), ("/meta", uuid_of(2))):
        mark = read_meta_properties(disk, f"{path}/meta.properties")
        assert mark == MetaProperties("a-cluster", BrokerId(3), directory_id)


def test_the_first_records_are_read_back() -> None:
    disk = formatted()
    values = [one.value for batch in read_bootstrap(disk, "/meta") for one in records_of(batch)]
    assert [decode_record(value) for value in values if value is not None] == FIRST
    assert not disk.exists("/data/bootstrap.checkpoint")
    assert read_bootstrap(disk, "/data") == []


def test_a_damaged_bootstrap_is_refused() -> None:
    disk = formatted()
    disk.open_file("/meta/bootstrap.checkpoint").write_at(140, b"\xff\xff\xff")
    with pytest.raises(ProtocolError, match=r"/meta/bootstrap\.checkpoint cannot be read"):
        read_bootstrap(disk, "/meta")


def test_the_first_voters_are_in_the_snapshot_of_offset_0() -> None:
    disk = formatted(VOTERS)
    content = content_of(disk, CHECKPOINT)
    assert snapshot_start_of(content) == SnapshotStart(77, 1, VOTERS)
    assert snapshot_data_of(content) == []


def test_a_controller_that_joins_later_has_no_voters() -> None:
    assert not formatted(None).exists(CHECKPOINT)


def test_a_formatted_directory_is_refused_and_stays() -> None:
    disk = formatted()
    with pytest.raises(AlreadyFormattedError, match="/data is formatted"):
        form(disk, VOTERS)
    assert not disk.exists(CHECKPOINT)


def test_a_power_cut_never_leaves_a_marked_metadata_directory_without_its_files() -> None:
    whole = formatted(VOTERS)
    for number in range(len(whole.faults.operations)):
        disk = SimulatedDisk()
        disk.faults.crash_at(number, "after")
        with suppress(SimulatedCrash):
            form(disk, VOTERS)
        disk.crash("lose_all")
        if disk.exists("/meta/meta.properties"):
            assert content_of(disk, CHECKPOINT) == content_of(whole, CHECKPOINT)
            assert read_bootstrap(disk, "/meta")
            assert disk.exists("/data/meta.properties")
