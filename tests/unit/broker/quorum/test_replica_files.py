"""The folder of a replica at a start: its log, its snapshots, its vote, and damage."""

from contextlib import suppress

import pytest

from ottla.broker.metadata_store.embedded.metadata_log import MetadataLog
from ottla.broker.quorum.quorum_log import LogSettings
from ottla.broker.quorum.replica_files import DamagedReplicaError, FirstVoters, ReplicaFiles
from ottla.metadata.records import FeatureLevelRecord
from ottla.raft.election_state import ElectionState
from ottla.raft.log_outline import ControlHistory
from ottla.raft.snapshots import SnapshotId, SnapshotStart, snapshot_bytes
from ottla.raft.voters import ReplicaKey, VoterSet
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import SimulatedCrash
from ottla.wire.records.batch import RecordBatch, batch_at
from ottla.wire.records.quorum_control import KRaftVersionRecord, control_batch
from tests.metadata_building import uuid_of
from tests.quorum_nodes import batch_of, values_of, voter

FOLDER = "/meta/__cluster_metadata-0"
LOG = f"{FOLDER}/00000000000000000000.log"
STATIC = VoterSet((voter(1, "a", 9093, uuid_of(1)),))
OTHERS = VoterSet((voter(1, "a", 9093, uuid_of(1)), voter(2, "b", 9093, uuid_of(2))))
VOTE = ElectionState(7, None, ReplicaKey(2, uuid_of(2)))


def opened(disk: SimulatedDisk, voters: VoterSet = STATIC) -> ReplicaFiles:
    return ReplicaFiles(disk, "/meta", LogSettings(), FirstVoters(voters), 0)


def stamped(raw: bytes, offset: int, epoch: int) -> bytes:
    batch: RecordBatch = batch_at(bytearray(raw))
    batch.restamp(offset, epoch)  # type: ignore[arg-type]
    return bytes(batch.raw)


def append(files: ReplicaFiles, epoch: int, *values: bytes) -> None:
    files.log.append(stamped(batch_of(*values), files.log.end_offset, epoch), 0)


def voters_batch(voters: VoterSet, offset: int, epoch: int) -> bytes:
    records = [KRaftVersionRecord(version=0, k_raft_version=1), voters.record()]
    return bytes(control_batch(records, base_offset=offset, leader_epoch=epoch, timestamp_ms=0))


def save(files: ReplicaFiles, snapshot_id: SnapshotId, voters: VoterSet | None = None) -> None:
    start = SnapshotStart(5, 0 if voters is None else 1, voters)
    files.snapshots.save(snapshot_id, bytes(snapshot_bytes(snapshot_id, start, [batch_of(b"s")])))


def values(files: ReplicaFiles) -> list[bytes]:
    return values_of(list(files.log.read(files.log.start_offset, files.log.end_offset)))


def crashed(disk: SimulatedDisk) -> SimulatedDisk:
    disk.faults.heal()
    disk.crash("lose_all")
    return disk


def test_a_new_folder_has_the_first_voters_and_kafkas_files() -> None:
    disk = SimulatedDisk()
    files = opened(disk)
    assert files.history.voters == STATIC
    assert files.election == ElectionState()
    files.persist(VOTE, files.history)
    names = disk.list_directory(FOLDER)
    assert {"partition.metadata", "quorum-state", "00000000000000000000.log"} <= set(names)


def test_the_vote_survives_a_power_cut() -> None:
    disk = SimulatedDisk()
    files = opened(disk)
    files.persist(VOTE, ControlHistory([(-1, OTHERS)], [(-1, 1)]))
    assert opened(crashed(disk)).election == VOTE


def test_the_log_and_its_control_records_are_read_to_the_end() -> None:
    disk = SimulatedDisk()
    files = opened(disk)
    append(files, 1, b"one", b"two")
    files.log.append(voters_batch(OTHERS, 2, 3), 0)
    disk.kill()
    files = opened(disk)
    assert files.outline.end == (3, 4)
    assert files.outline.epochs == [(1, 0), (3, 2)]
    assert (files.history.voters, files.history.kraft_version) == (OTHERS, 1)
    assert values(files) == [b"one", b"two"]


def test_the_log_of_an_embedded_broker_goes_on() -> None:
    disk = SimulatedDisk()
    log = MetadataLog(disk, "/meta", 0)
    for level in range(3):
        log.append([FeatureLevelRecord(name="metadata.version", feature_level=level)], 0)
    log.flush(0)
    log.close(0)
    files = opened(disk)
    assert files.outline.end == (0, 3)
    append(files, 1, b"next")
    assert values(files)[-1] == b"next"
    assert len(values(files)) == 4


def test_a_restart_begins_with_the_voters_of_the_newest_snapshot() -> None:
    disk = SimulatedDisk()
    files = opened(disk)
    append(files, 1, b"one", b"two")
    save(files, SnapshotId(2, 1), OTHERS)
    append(files, 2, b"three")
    disk.kill()
    files = opened(disk)
    assert files.history.voters == OTHERS
    assert files.committed_offset == 2
    assert files.outline.snapshots == [SnapshotId(2, 1)]
    assert files.outline.start_offset == 0
    assert values(files) == [b"one", b"two", b"three"]


def test_leftovers_of_an_unfinished_snapshot_are_deleted() -> None:
    disk = SimulatedDisk()
    files = opened(disk)
    files.snapshots.write_piece(SnapshotId(9, 3), 0, b"the first piece")
    disk.kill()
    opened(disk)
    assert not [name for name in disk.list_directory(FOLDER) if "checkpoint.part" in name]


def install(files: ReplicaFiles, snapshot_id: SnapshotId) -> None:
    content = bytes(snapshot_bytes(snapshot_id, SnapshotStart(5, 1, OTHERS), [batch_of(b"s")]))
    files.snapshots.write_piece(snapshot_id, 0, content[:50])
    files.snapshots.write_piece(snapshot_id, 50, content[50:])
    files.install(snapshot_id, 0)


@pytest.mark.parametrize(("end_offset", "epoch"), [(9, 3), (3, 3)])
def test_an_interrupted_installation_leaves_the_old_log_or_the_snapshot(
    end_offset: int, epoch: int
) -> None:
    """The snapshot ends after the log, or inside of a log with other records."""
    snapshot_id = SnapshotId(end_offset, epoch)
    number, is_whole = 0, False
    while not is_whole:
        disk = SimulatedDisk()
        files = opened(disk)
        append(files, 1, b"one")
        append(files, 1, b"two", b"three")
        append(files, 2, b"four")
        save(files, SnapshotId(1, 1))
        files.log.close(0)
        disk.faults.crash_at(len(disk.faults.operations) + number, "after")
        number += 1
        with suppress(SimulatedCrash):
            install(files, snapshot_id)
            is_whole = True
        files = opened(crashed(disk))
        if snapshot_id in files.outline.snapshots:
            assert files.outline.start_offset == files.outline.end_offset == end_offset
            assert files.outline.last_epoch == epoch
            assert files.outline.snapshots == [snapshot_id]
            assert files.history.voters == OTHERS
        else:
            assert not is_whole
            assert values(files) == [b"one", b"two", b"three", b"four"]
    assert number > 3


def test_an_interrupted_deletion_leaves_a_log_that_begins_at_a_snapshot() -> None:
    number, is_whole = 0, False
    while not is_whole:
        disk = SimulatedDisk()
        files = ReplicaFiles(disk, "/meta", LogSettings(segment_bytes=1), FirstVoters(STATIC), 0)
        for value in (b"one", b"two", b"three", b"four"):
            append(files, 1, value)
        save(files, SnapshotId(1, 1))
        save(files, SnapshotId(3, 1))
        files.log.close(0)
        disk.faults.crash_at(len(disk.faults.operations) + number, "after")
        number += 1
        with suppress(SimulatedCrash):
            files.delete_before(SnapshotId(3, 1), 0)
            is_whole = True
        files = opened(crashed(disk))
        start, snapshots = files.outline.start_offset, files.outline.snapshots
        assert start in {0, *(one.end_offset for one in snapshots)}
        assert snapshots[-1] == SnapshotId(3, 1)
        assert all(one.end_offset >= start for one in snapshots)
        assert values(files)[-1] == b"four"
    assert number > 3


def broken(disk: SimulatedDisk, match: str) -> None:
    """See that a start is refused, and deletes nothing but leftovers."""
    before = {name: content(disk, name) for name in disk.list_directory(FOLDER)}
    with pytest.raises(DamagedReplicaError, match=match):
        opened(disk)
    after = {name: content(disk, name) for name in disk.list_directory(FOLDER)}
    kept = (".log", ".checkpoint", "quorum-state")
    assert {k: v for k, v in before.items() if k.endswith(kept)} == {
        k: v for k, v in after.items() if k.endswith(kept)
    }


def content(disk: SimulatedDisk, name: str) -> bytes:
    file = disk.open_file(f"{FOLDER}/{name}")
    return file.read_at(0, file.size_bytes())


@pytest.mark.parametrize("torn", [b"", b'{"leaderId":1,"lead', bytes(100), b"[]"])
def test_a_torn_vote_is_refused(torn: bytes) -> None:
    disk = SimulatedDisk()
    opened(disk).log.close(0)
    disk.create_file(f"{FOLDER}/quorum-state").write_at(0, torn)
    broken(disk, "quorum-state")


def test_a_damaged_snapshot_is_refused() -> None:
    disk = SimulatedDisk()
    files = opened(disk)
    append(files, 1, b"one")
    save(files, SnapshotId(1, 1))
    files.log.close(0)
    disk.flip_bit(f"{FOLDER}/{SnapshotId(1, 1).file_name}", 150, 3)
    broken(disk, "00000000000000000001-0000000001.checkpoint cannot be read")


def test_a_snapshot_without_its_end_is_refused() -> None:
    disk = SimulatedDisk()
    files = opened(disk)
    append(files, 1, b"one")
    save(files, SnapshotId(1, 1))
    files.log.close(0)
    file = disk.open_file(f"{FOLDER}/{SnapshotId(1, 1).file_name}")
    file.truncate(file.size_bytes() - 80)
    broken(disk, "cannot be read")


def test_damage_of_durable_records_is_refused() -> None:
    disk = SimulatedDisk()
    files = opened(disk)
    append(files, 1, b"one", b"two")
    append(files, 1, b"three")
    files.log.close(0)
    disk.flip_bit(LOG, 70, 1)
    broken(disk, "is damaged from offset 0")


def test_the_loss_of_durable_records_is_refused() -> None:
    disk = SimulatedDisk()
    files = opened(disk)
    append(files, 1, b"one")
    size_bytes = disk.open_file(LOG).size_bytes()
    append(files, 1, b"two")
    files.log.close(0)
    disk.open_file(LOG).truncate(size_bytes)
    broken(disk, "had been durable to 2")


def test_a_log_without_its_beginning_is_refused() -> None:
    disk = SimulatedDisk()
    files = ReplicaFiles(disk, "/meta", LogSettings(segment_bytes=1), FirstVoters(STATIC), 0)
    append(files, 1, b"one")
    append(files, 1, b"two")
    files.log.close(0)
    for name in disk.list_directory(FOLDER):
        if name.startswith("00000000000000000000."):
            disk.remove(f"{FOLDER}/{name}")
    broken(disk, "begins at offset 1, and there is no snapshot")


def test_a_torn_tail_is_cut_off() -> None:
    disk = SimulatedDisk()
    files = opened(disk)
    append(files, 1, b"one")
    files.log.close(0)
    files = opened(disk)
    append(files, 1, b"two")
    file = disk.open_file(LOG)
    file.truncate(file.size_bytes() - 3)
    disk.kill()
    files = opened(disk)
    assert values(files) == [b"one"]
    assert files.log.notes


def test_segments_are_smaller_than_the_retention() -> None:
    assert LogSettings().used_segment_bytes == 25 << 20
    assert LogSettings(segment_bytes=8 << 20).used_segment_bytes == 8 << 20
    assert LogSettings(retention_bytes=-1).used_segment_bytes == 1 << 30
    assert LogSettings(retention_bytes=0).used_segment_bytes == 1 << 20


def test_no_limit_is_never_exceeded() -> None:
    settings = LogSettings(retention_bytes=-1, retention_ms=1000)
    assert settings.is_exceeded(0, 1001)
    assert not settings.is_exceeded(1 << 40, 1000)
    assert not LogSettings(retention_ms=-1).is_exceeded(100 << 20, 1 << 50)
    assert LogSettings(retention_ms=-1).is_exceeded((100 << 20) + 1, 0)
