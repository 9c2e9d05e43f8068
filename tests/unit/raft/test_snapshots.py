import pytest

from ottla.raft.snapshots import (
    SnapshotId,
    SnapshotStart,
    snapshot_bytes,
    snapshot_data_of,
    snapshot_id_of,
    snapshot_start_of,
)
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import batches
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import Record, records_of

VOTERS = VoterSet((Voter(ReplicaKey(1, bytes(range(16))), (Endpoint("CONTROLLER", "a", 9093),)),))


def test_a_file_name_has_kafkas_digits() -> None:
    name = SnapshotId(1234, 5).file_name
    assert name == "00000000000000001234-0000000005.checkpoint"
    assert snapshot_id_of(name) == SnapshotId(1234, 5)


@pytest.mark.parametrize(
    "name",
    [
        "bootstrap.checkpoint",
        "1234-5.checkpoint",
        "00000000000000001234-0000000005.checkpoint.part",
        "00000000000000001234-0000000005.checkpoint.deleted",
        "00000000000000001234.log",
    ],
)
def test_other_files_are_no_snapshots(name: str) -> None:
    assert snapshot_id_of(name) is None


def test_a_snapshot_is_read_back() -> None:
    data = [build_batch([Record(0, 7, None, b"one"), Record(1, 7, None, b"two")])]
    content = snapshot_bytes(SnapshotId(9, 2), SnapshotStart(77, 1, VOTERS), data)
    assert snapshot_start_of(content) == SnapshotStart(77, 1, VOTERS)
    (batch,) = snapshot_data_of(content)
    assert [record.value for record in records_of(batch)] == [b"one", b"two"]
    offsets = [(one.base_offset, one.end_offset) for one in batches(content)]
    assert offsets == [(0, 3), (3, 5), (5, 6)]
    for one in batches(content):
        one.check_crc()
        assert one.partition_leader_epoch == 2


def test_a_snapshot_of_kraft_version_0_has_no_voters() -> None:
    content = snapshot_bytes(SnapshotId(9, 2), SnapshotStart(77), [])
    assert snapshot_start_of(content) == SnapshotStart(77)


def test_a_snapshot_without_its_ends_is_refused() -> None:
    content = snapshot_bytes(SnapshotId(9, 2), SnapshotStart(77, 1, VOTERS), [])
    first, last = batches(content)
    with pytest.raises(ProtocolError, match="no header"):
        snapshot_start_of(last.raw)
    with pytest.raises(ProtocolError, match="no footer"):
        snapshot_data_of(first.raw)
    with pytest.raises(ProtocolError, match="no header"):
        snapshot_start_of(b"")
