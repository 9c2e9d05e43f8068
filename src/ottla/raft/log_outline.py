"""The shape of the metadata log, without its bytes: offsets, epochs, snapshots, control records.

Both classes follow the log: each append, cut, trim and replacement of the log is told to them.
They are made again from the log at a start.
"""

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.raft.snapshots import SnapshotId
from ottla.raft.voters import VoterSet, voter_set_of
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.quorum_control import (
    KRaftVersionRecord,
    VotersRecord,
    control_records_of,
)


class EpochEnd(NamedTuple):
    """An epoch, and the offset at which it ends in a log."""

    epoch: int
    end_offset: int


class Position(NamedTuple):
    """The answer to a fetch: where the asker's log leaves the leader's, if it does."""

    diverging: EpochEnd | None = None
    snapshot_id: SnapshotId | None = None


MATCHES = Position()


@dataclass(slots=True)
class LogOutline:
    """Offsets and epochs of the log, and the ids of its snapshots."""

    start_offset: int = 0
    end_offset: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Each epoch with its first offset, by rising epoch. The first may begin before the log."""
    snapshots: list[SnapshotId] = field(default_factory=list)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch, or of the snapshot at the start of an empty log."""
        if self.epochs:
            return self.epochs[-1][0]
        return next((one.epoch for one in self.snapshots if one.end_offset == self.start_offset), 0)

    @property
    def end(self) -> tuple[int, int]:
        """The last epoch and the end offset: the greater pair belongs to the more complete log."""
        return self.last_epoch, self.end_offset

    def append(self, batch: RecordBatch) -> None:
        """Add a batch at the end."""
        assert batch.base_offset == self.end_offset, (batch.base_offset, self.end_offset)
        assert batch.partition_leader_epoch >= self.last_epoch, "epochs never fall in a log"
        if not self.epochs or self.epochs[-1][0] != batch.partition_leader_epoch:
            self.epochs.append((batch.partition_leader_epoch, batch.base_offset))
        self.end_offset = batch.end_offset

    def truncate(self, end_offset: int) -> None:
        """Cut the log's end."""
        assert self.start_offset <= end_offset <= self.end_offset, end_offset
        self.end_offset = end_offset
        while self.epochs and self.epochs[-1][1] >= end_offset:
            self.epochs.pop()

    def add_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Add a snapshot of this log."""
        if snapshot_id not in self.snapshots:
            insort(self.snapshots, snapshot_id)

    def trim(self, snapshot_id: SnapshotId) -> None:
        """Forget the log before a snapshot, and older snapshots."""
        assert snapshot_id in self.snapshots, f"no snapshot {snapshot_id}"
        assert self.start_offset <= snapshot_id.end_offset <= self.end_offset, snapshot_id
        self.start_offset = snapshot_id.end_offset
        self.snapshots = [one for one in self.snapshots if one >= snapshot_id]
        kept = max(bisect_right(self.epochs, self.start_offset, key=lambda one: one[1]) - 1, 0)
        self.epochs = self.epochs[kept:]
        if self.end_offset == self.start_offset:
            self.epochs = []

    def replace_by(self, snapshot_id: SnapshotId) -> None:
        """Begin an empty log at the end of a snapshot."""
        self.start_offset = self.end_offset = snapshot_id.end_offset
        self.epochs, self.snapshots = [], [snapshot_id]

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return the greatest epoch of the log up to the given epoch, and its end."""
        index = bisect_right(self.epochs, epoch, key=lambda one: one[0]) - 1
        if index < 0:
            first = self.snapshots[0].epoch if self.snapshots else 0
            return EpochEnd(first, self.start_offset) if self.start_offset else EpochEnd(0, 0)
        is_last = index + 1 == len(self.epochs)
        end_offset = self.end_offset if is_last else self.epochs[index + 1][1]
        return EpochEnd(self.epochs[index][0], end_offset)

    def compare(self, offset: int, epoch: int) -> Position:
        """Compare a log that ends at this offset, with a last batch of this epoch, to this log."""
        latest = self.snapshots[-1] if self.snapshots else None
        if offset == 0 and latest is not None and latest.end_offset > 0:
            return Position(snapshot_id=latest)
        if self.start_offset == 0 and offset == 0 and epoch == 0:
            return MATCHES
        if latest is not None and self._is_before_snapshots(offset, epoch):
            return Position(snapshot_id=latest)
        if offset == self.start_offset and self.start_offset and epoch == self.snapshots[0].epoch:
            return MATCHES
        known = self.end_of_epoch(epoch)
        if known.epoch != epoch or known.end_offset < offset:
            return Position(diverging=known)
        return MATCHES

    def _is_before_snapshots(self, offset: int, epoch: int) -> bool:
        earliest = self.snapshots[0]
        if offset < self.start_offset or epoch < earliest.epoch:
            return True
        return offset == self.start_offset and epoch != earliest.epoch


@dataclass(slots=True)
class ControlHistory:
    """The voter sets and levels of kraft.version, by the offset of their record.

    They hold from the moment when they are appended, committed or not, and are taken back when the
    log is cut. Offset -1 belongs to the voters that the directory was formatted with.
    """

    voter_sets: list[tuple[int, VoterSet]] = field(default_factory=lambda: [(-1, VoterSet())])
    versions: list[tuple[int, int]] = field(default_factory=lambda: [(-1, 0)])
    read_end: int = 0
    """The offset up to which control records were read."""

    @property
    def voters(self) -> VoterSet:
        """The newest voter set."""
        return self.voter_sets[-1][1]

    @property
    def voters_offset(self) -> int:
        """The offset of the newest voter set's record, -1 if it is not in the log."""
        return self.voter_sets[-1][0]

    @property
    def kraft_version(self) -> int:
        """The newest level of kraft.version."""
        return self.versions[-1][1]

    def read(self, batch: RecordBatch) -> None:
        """Take over the control records of an appended batch, unless they were read before."""
        if batch.base_offset < self.read_end:
            return
        records = control_records_of(batch)
        self.read_end = batch.end_offset
        for offset, record in records:
            if isinstance(record, VotersRecord):
                self.voter_sets.append((offset, voter_set_of(record)))
            elif isinstance(record, KRaftVersionRecord):
                self.versions.append((offset, record.k_raft_version))

    def truncate(self, end_offset: int) -> None:
        """Take back the records from this offset on."""
        while len(self.voter_sets) > 1 and self.voter_sets[-1][0] >= end_offset:
            self.voter_sets.pop()
        while len(self.versions) > 1 and self.versions[-1][0] >= end_offset:
            self.versions.pop()
        self.read_end = min(self.read_end, end_offset)

    def trim(self, start_offset: int) -> None:
        """Forget entries that no offset from here on needs."""
        while len(self.voter_sets) > 1 and self.voter_sets[1][0] < start_offset:
            self.voter_sets.pop(0)
        while len(self.versions) > 1 and self.versions[1][0] < start_offset:
            self.versions.pop(0)

    def replace_by(self, snapshot_id: SnapshotId, voters: VoterSet, kraft_version: int) -> None:
        """Begin again at a snapshot."""
        self.voter_sets = [(snapshot_id.end_offset - 1, voters)]
        self.versions = [(snapshot_id.end_offset - 1, kraft_version)]
        self.read_end = snapshot_id.end_offset

    def voters_before(self, offset: int) -> VoterSet:
        """Return the voter set of the log up to, and without, this offset."""
        return next((one for at, one in reversed(self.voter_sets) if at < offset), VoterSet())

    def version_before(self, offset: int) -> int:
        """Return kraft.version of the log up to, and without, this offset."""
        return next((one for at, one in reversed(self.versions) if at < offset), 0)
