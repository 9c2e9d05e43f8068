"""The disk of a simulated replica: a log with an unsynced tail, snapshots, and `quorum-state`."""

from bisect import bisect_left
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import NamedTuple

from ottla.raft.election_state import ElectionState, quorum_state_bytes, quorum_state_of
from ottla.raft.log_outline import ControlHistory, LogOutline
from ottla.raft.snapshots import SnapshotId, SnapshotStart, snapshot_bytes, snapshot_start_of
from ottla.raft.voters import VoterSet
from ottla.wire.records.batch import RecordBatch, batch_at


class Entry(NamedTuple):
    """One batch of a log."""

    base_offset: int
    end_offset: int
    epoch: int
    raw: bytes

    @property
    def batch(self) -> RecordBatch:
        """The batch itself."""
        return batch_at(self.raw)


def entry_of(raw: bytes) -> Entry:
    """Return the entry of a batch."""
    batch = batch_at(raw)
    return Entry(batch.base_offset, batch.end_offset, batch.partition_leader_epoch, raw)


class QuorumDisk:
    """The files of a replica. `entries` is the page cache, `durable` is on the platters.

    A disk is formatted with the snapshot of offset 0, which has the voters, or without any; with
    kraft.version 0 the voters are a setting of the node.
    """

    def __init__(
        self,
        directory_id: bytes,
        start: SnapshotStart | None = None,
        static_voters: VoterSet | None = None,
    ) -> None:
        self.directory_id = directory_id
        self.static_voters = static_voters or VoterSet()
        self.quorum_state = quorum_state_bytes(ElectionState(), 1)
        self._parsed = self.quorum_state, quorum_state_of(self.quorum_state)
        self.start_offset = 0
        self.entries: list[Entry] = []
        self.durable: list[Entry] = []
        self.changes = 0
        """Counts all changes of the log."""
        self.unsynced: list[Entry | int] = []
        """Entries that were appended, and offsets of cuts, since the last sync."""
        self.snapshots: dict[SnapshotId, bytes] = {}
        self.partial = bytearray()
        if start is not None:
            zero = SnapshotId(0, 0)
            self.snapshots[zero] = bytes(snapshot_bytes(zero, start, []))

    @property
    def election(self) -> ElectionState:
        """The content of `quorum-state`."""
        if self._parsed[0] != self.quorum_state:
            self._parsed = self.quorum_state, quorum_state_of(self.quorum_state)
        return self._parsed[1]

    @property
    def end_offset(self) -> int:
        """The end of the log in the page cache."""
        return self.entries[-1].end_offset if self.entries else self.start_offset

    def append(self, raw: bytes) -> Entry:
        """Append a batch."""
        entry = entry_of(raw)
        assert entry.base_offset == self.end_offset, "a gap in the log"
        self.entries.append(entry)
        self.unsynced.append(entry)
        self.changes += 1
        return entry

    def truncate(self, end_offset: int) -> None:
        """Cut the log's end."""
        _cut(self.entries, end_offset)
        self.unsynced.append(end_offset)
        self.changes += 1

    def sync_up_to(self, change: int) -> None:
        """End a sync that began when so many changes were made."""
        self.sync(max(len(self.unsynced) - (self.changes - change), 0))

    def sync(self, count: int) -> None:
        """Make the first changes since the last sync durable."""
        for change in self.unsynced[:count]:
            if isinstance(change, Entry):
                self.durable.append(change)
            else:
                _cut(self.durable, change)
        del self.unsynced[:count]

    def lose_power(self, dice: Random) -> None:
        """Keep any part of the unsynced changes, in order."""
        self.sync(dice.randint(0, len(self.unsynced)))
        self.unsynced = []
        self.entries = list(self.durable)

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Return batches from an offset on, at least one."""
        found = bytearray()
        for entry in self.entries:
            if entry.base_offset >= offset:
                if found and len(found) + len(entry.raw) > bytes_max:
                    break
                found += entry.raw
        assert found, f"no records from offset {offset} on"
        return bytes(found)

    def write_partial(self, position: int, content: bytes) -> None:
        """Add a piece to the snapshot that is being fetched."""
        if position == 0:
            self.partial = bytearray()
        assert len(self.partial) == position, position
        self.partial += content

    def install(self, snapshot_id: SnapshotId) -> bytes:
        """Replace the log by the partial snapshot, and return its content."""
        content = bytes(self.partial)
        self.snapshots = {snapshot_id: content}
        self.start_offset = snapshot_id.end_offset
        self.entries, self.durable, self.unsynced = [], [], []
        return content

    def delete_before(self, snapshot_id: SnapshotId) -> None:
        """Delete the log before a snapshot, and older snapshots."""
        self.start_offset = snapshot_id.end_offset
        self.snapshots = {key: one for key, one in self.snapshots.items() if key >= snapshot_id}
        self.entries = [one for one in self.entries if one.base_offset >= self.start_offset]
        self.durable = [one for one in self.durable if one.base_offset >= self.start_offset]
        self.unsynced = [
            one
            for one in self.unsynced
            if not isinstance(one, Entry) or one.base_offset >= self.start_offset
        ]

    def open(self) -> tuple[LogOutline, ControlHistory]:
        """Sync the log, and read its outline and control records, as a driver does."""
        self.sync(len(self.unsynced))
        next_offset = self.start_offset
        for index, entry in enumerate(self.durable):
            if entry.base_offset != next_offset:
                del self.durable[index:]
                break
            next_offset = entry.end_offset
        self.entries = list(self.durable)
        outline = LogOutline(self.start_offset, self.start_offset)
        history = ControlHistory([(-1, self.static_voters)])
        outline.snapshots = sorted(key for key in self.snapshots)
        base = [key for key in outline.snapshots if key.end_offset == self.start_offset]
        if base:
            start = snapshot_start_of(self.snapshots[base[0]])
            voters = self.static_voters if start.voters is None else start.voters
            history.replace_by(base[0], voters, start.kraft_version)
        for entry in self.entries:
            outline.append(entry.batch)
            history.read(entry.batch)
        return outline, history

    def has(self, entry: Entry) -> bool:
        """Whether a committed batch, or a snapshot with it, is durable."""
        return entry.end_offset <= self.start_offset or has_entry(self.durable, entry)


def has_entry(entries: list[Entry], entry: Entry) -> bool:
    """Whether a log has exactly this batch."""
    index = bisect_left(entries, entry.base_offset, key=lambda one: one.base_offset)
    return index < len(entries) and entries[index] == entry


def _cut(entries: list[Entry], end_offset: int) -> None:
    while entries and entries[-1].end_offset > end_offset:
        entries.pop()
