import pytest

from ottla.raft.log_outline import MATCHES, ControlHistory, EpochEnd, LogOutline, Position
from ottla.raft.snapshots import SnapshotId
from ottla.raft.voters import ReplicaKey, Voter, VoterSet
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import RecordBatch, batch_at
from ottla.wire.records.builder import BatchBuilder, build_batch
from ottla.wire.records.control import ControlType
from ottla.wire.records.quorum_control import control_batch
from ottla.wire.records.record import Record


def data(offset: int, epoch: int, count: int = 1) -> RecordBatch:
    records = [Record(offset + one, 0, None, b"") for one in range(count)]
    batch = batch_at(build_batch(records))
    batch.restamp(offset, epoch)
    return batch


def voters(offset: int, *ids: int) -> RecordBatch:
    found = VoterSet(tuple(Voter(ReplicaKey(one)) for one in ids))
    return batch_at(
        control_batch([found.record()], base_offset=offset, leader_epoch=1, timestamp_ms=0)
    )


def outline(*epochs: tuple[int, int]) -> LogOutline:
    """Return a log of batches: each epoch with its count of records."""
    found = LogOutline()
    for epoch, count in epochs:
        found.append(data(found.end_offset, epoch, count))
    return found


def test_an_epoch_ends_where_the_next_begins() -> None:
    log = outline((1, 5), (3, 5))
    assert [log.end_of_epoch(epoch) for epoch in range(5)] == [
        EpochEnd(0, 0),
        EpochEnd(1, 5),
        EpochEnd(1, 5),
        EpochEnd(3, 10),
        EpochEnd(3, 10),
    ]


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging"),
    [
        (10, 3, None),
        (7, 3, None),
        (5, 1, None),
        (0, 0, None),
        (6, 1, EpochEnd(1, 5)),
        (6, 2, EpochEnd(1, 5)),
        (11, 3, EpochEnd(3, 10)),
        (11, 4, EpochEnd(3, 10)),
        (2, 0, EpochEnd(0, 0)),
    ],
)
def test_a_log_is_compared(offset: int, epoch: int, diverging: EpochEnd | None) -> None:
    assert outline((1, 5), (3, 5)).compare(offset, epoch) == Position(diverging)


def test_a_log_before_the_start_needs_the_snapshot() -> None:
    log = outline((1, 5), (3, 5))
    snapshot_id = SnapshotId(7, 3)
    log.add_snapshot(snapshot_id)
    log.trim(snapshot_id)
    assert log.start_offset == 7
    needs = Position(snapshot_id=snapshot_id)
    assert [log.compare(*one) for one in ((0, 0), (5, 1), (7, 1), (8, 1))] == [needs] * 4
    assert log.compare(7, 3) == log.compare(9, 3) == MATCHES


def test_a_cut_takes_epochs_back() -> None:
    log = outline((1, 5), (3, 5))
    log.truncate(5)
    assert log.end == (1, 5)
    log.append(data(5, 4))
    assert log.end == (4, 6)


def test_an_empty_log_has_the_epoch_of_its_snapshot() -> None:
    log = outline((1, 5), (3, 5))
    log.replace_by(SnapshotId(20, 6))
    assert log.end == (6, 20)
    assert log.compare(20, 6) == MATCHES


def test_a_cut_takes_voters_back_and_they_are_read_again() -> None:
    history = ControlHistory()
    history.read(voters(0, 1, 2))
    history.read(voters(1, 1, 2, 3))
    history.truncate(1)
    assert [key.id for key in history.voters.keys] == [1, 2]
    history.read(voters(1, 1, 2, 4))
    assert [key.id for key in history.voters.keys] == [1, 2, 4]
    assert [key.id for key in history.voters_before(1).keys] == [1, 2]


def test_voters_before_a_trimmed_start_are_kept_if_they_still_hold() -> None:
    history = ControlHistory()
    history.read(voters(0, 1))
    history.read(voters(1, 1, 2))
    history.trim(5)
    assert history.voter_sets == [(1, history.voters)]
    assert [key.id for key in history.voters.keys] == [1, 2]


def test_malformed_control_records_change_nothing() -> None:
    builder = BatchBuilder(is_control=True, leader_epoch=1)
    builder.append(0, bytes((0, 0, 0, ControlType.KRAFT_VOTERS)), b"\0\0\x7f")
    history = ControlHistory()
    with pytest.raises(ProtocolError):
        history.read(batch_at(builder.build()))
    assert (history.read_end, history.voters) == (0, VoterSet())
