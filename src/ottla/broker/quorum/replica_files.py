"""The folder of a replica of the metadata log: its log, its snapshots, and `quorum-state`.

    __cluster_metadata-0/
      00000000000000000000.log …            the log, a partition's log
      <end offset>-<epoch>.checkpoint       snapshots
      quorum-state                          the epoch, its leader, and the vote
      recovery-point-offset-checkpoint      the log was durable up to here

All files but the last are Kafka's. Everything that a start finds is checked: a replica that has
lost durable records, or its vote, must not take part in the quorum as if it had them.
"""

import errno
import posixpath
from dataclasses import dataclass, field
from typing import Final

from ottla.broker.quorum.formatting import METADATA_PARTITION
from ottla.broker.quorum.quorum_log import DamagedLogError, LogSettings, QuorumLog
from ottla.broker.quorum.snapshot_files import DamagedSnapshotError, SnapshotFiles
from ottla.environment.disk import Disk
from ottla.model.api_error import ApiError
from ottla.raft.election_state import (
    QUORUM_STATE_BYTES_MAX,
    QUORUM_STATE_FILE,
    ElectionState,
    InvalidQuorumStateError,
    quorum_state_bytes,
    quorum_state_of,
)
from ottla.raft.log_outline import ControlHistory, LogOutline
from ottla.raft.snapshots import SnapshotId, SnapshotStart
from ottla.raft.voters import VoterSet
from ottla.storage.files.checkpoints import (
    PARTITION_METADATA_FILE,
    write_atomically,
    write_topic_id,
)
from ottla.storage.log.offline_on_error import is_refusal

TOPIC_ID: Final = bytes(15) + b"\x01"
"""The id of __cluster_metadata."""


class DamagedReplicaError(Exception):
    """A replica's folder cannot be used; the detail names the file."""


@dataclass(frozen=True, slots=True)
class FirstVoters:
    """The voters of a folder without a snapshot that has voters."""

    voters: VoterSet = field(default_factory=VoterSet)
    kraft_version: int = 0


class ReplicaFiles:
    """The open folder of one replica. Failures of the disk are OSErrors, or the log's ApiErrors."""

    def __init__(
        self, disk: Disk, metadata_dir: str, settings: LogSettings, first: FirstVoters, now_ms: int
    ) -> None:
        """Open the folder, or create it.

        DamagedReplicaError, and nothing is deleted but leftovers, if a file cannot be used.
        """
        self.disk = disk
        self.directory = posixpath.join(metadata_dir, str(METADATA_PARTITION))
        self._first = first
        self._make_directory(metadata_dir)
        self.snapshots = SnapshotFiles(disk, self.directory)
        try:
            self.election = self._read_election()
            self._starts = {one: self.snapshots.start_of(one) for one in self.snapshots.open()}
            self.log = QuorumLog(disk, self.directory, settings, now_ms)
            self._fit_log(now_ms)
            self.outline = self._outline()
            self.history = self._history()
        except (DamagedLogError, DamagedSnapshotError, InvalidQuorumStateError) as error:
            raise DamagedReplicaError(
                f"the metadata log cannot be used: {error}. Restore {self.directory}, or remove"
                " this controller from the quorum and format its directories again"
            ) from error
        except ApiError as error:
            cause = error.__cause__
            number = cause.errno if isinstance(cause, OSError) else None
            raise OSError(number or errno.EIO, error.detail) from error

    @property
    def committed_offset(self) -> int:
        """The offset up to which the log is known as committed: the newest snapshot's end."""
        ends = [one.end_offset for one in self.outline.snapshots]
        return max([self.outline.start_offset, *ends])

    # -- opening --------------------------------------------------------------------------------

    def _make_directory(self, metadata_dir: str) -> None:
        if self.disk.exists(self.directory):
            return
        self.disk.make_directory(self.directory)
        self.disk.sync_directory(metadata_dir)
        self.disk.sync_directory(posixpath.dirname(metadata_dir) or ".")
        path = posixpath.join(self.directory, PARTITION_METADATA_FILE)
        write_topic_id(self.disk, path, TOPIC_ID)

    def _read_election(self) -> ElectionState:
        path = self._election_path
        if not self.disk.exists(path):
            return ElectionState()
        return quorum_state_of(self.disk.open_file(path).read_at(0, QUORUM_STATE_BYTES_MAX + 1))

    def _fit_log(self, now_ms: int) -> None:
        """Make the log begin at a snapshot, or at offset 0.

        A crash may have ended the installation of a fetched snapshot, or the deletion of an old
        part of the log, in the middle.
        """
        newest = max(self._starts, default=SnapshotId(0, 0))
        if not self._log_has(newest):
            self.log.restart_at(newest.end_offset, now_ms)
            self.snapshots.remove_before(newest)
        elif self.log.start_offset > 0:
            later = [one for one in self._starts if one.end_offset >= self.log.start_offset]
            if not later:
                raise DamagedLogError(
                    f"{self.directory} begins at offset {self.log.start_offset}, and there is no"
                    " snapshot of the records before it"
                )
            self.log.delete_before(min(later).end_offset, now_ms)
            self.snapshots.remove_before(min(later))

    def _log_has(self, snapshot_id: SnapshotId) -> bool:
        """Whether a snapshot, which was committed, is one of this very log."""
        end_offset = snapshot_id.end_offset
        if end_offset in {0, self.log.start_offset}:
            return True
        before = [epoch for epoch, start in self.log.epochs if start < end_offset]
        return end_offset <= self.log.end_offset and before[-1:] == [snapshot_id.epoch]

    def _outline(self) -> LogOutline:
        log = self.log
        is_empty = log.start_offset == log.end_offset
        epochs = [] if is_empty else log.epochs
        return LogOutline(log.start_offset, log.end_offset, epochs, self.snapshots.ids())

    def _history(self) -> ControlHistory:
        """Read the control records up to the end of the log, from the newest snapshot on."""
        first = self._first
        history = ControlHistory([(-1, first.voters)], [(-1, first.kraft_version)])
        newest = max(self._starts, default=None)
        if newest is not None:
            start = self._starts[newest]
            voters = first.voters if start.voters is None else start.voters
            history.replace_by(newest, voters, start.kraft_version)
        try:
            for batch in self.log.read(history.read_end, self.log.end_offset):
                history.read(batch)
        except ApiError as error:
            raise DamagedLogError(f"{self.directory}: {error.detail}") from error
        return history

    # -- changes --------------------------------------------------------------------------------

    def persist(self, state: ElectionState, history: ControlHistory) -> None:
        """Write `quorum-state` durably."""
        voter_ids = [key.id for key in history.voters.keys]
        content = quorum_state_bytes(state, history.kraft_version, voter_ids)
        write_atomically(self.disk, self._election_path, content)

    def install(self, snapshot_id: SnapshotId, now_ms: int) -> SnapshotStart:
        """Replace the log by a fetched snapshot, and return its control records."""
        start = self.snapshots.install(snapshot_id)
        self._starts = {snapshot_id: start}
        self.log.restart_at(snapshot_id.end_offset, now_ms)
        self.snapshots.remove_before(snapshot_id)
        return start

    def note_start(self, snapshot_id: SnapshotId, start: SnapshotStart) -> None:
        """Remember the control records of a snapshot that was saved."""
        self._starts[snapshot_id] = start

    def timestamp_ms(self, snapshot_id: SnapshotId) -> int:
        """Return the time of the last record in a snapshot."""
        return self._starts[snapshot_id].last_timestamp_ms

    def delete_before(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        """Delete the log before a snapshot, and older snapshots."""
        self.log.delete_before(snapshot_id.end_offset, now_ms)
        self.snapshots.remove_before(snapshot_id)
        self._starts = {one: start for one, start in self._starts.items() if one >= snapshot_id}

    def is_refusal(self, error: Exception) -> bool:
        """Whether the disk may take the same later: it is full, or no descriptor is left."""
        cause = error.__cause__ if isinstance(error, ApiError) else error
        return isinstance(cause, OSError) and is_refusal(cause) and not self.log.is_offline

    def close(self, now_ms: int) -> None:
        """Make everything durable."""
        self.snapshots.close()
        self.log.close(now_ms)

    @property
    def _election_path(self) -> str:
        return posixpath.join(self.directory, QUORUM_STATE_FILE)
