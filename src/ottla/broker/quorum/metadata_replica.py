"""The interface of a replica of the metadata log for the metadata store above it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.model.identifiers import BrokerId, LeaderEpoch, Offset
from ottla.raft.actions import Node
from ottla.raft.snapshots import SnapshotId
from ottla.raft.voters import VoterSet
from ottla.wire.records.batch import Buffer, RecordBatch
from ottla.wire.schema import Message


class Fetched(NamedTuple):
    """The state of another replica as its last Fetch tells it."""

    offset: Offset
    """The replica has every record before it."""
    high_watermark: Offset
    """The replica knows every record before it as committed; -1 if its version does not tell."""
    heard_ms: int
    """The time of the fetch, on the monotonic clock."""


class ReplicaListener(Protocol):
    """Told of changes, in their order, on the event loop; it must not raise."""

    def on_leader(self, epoch: LeaderEpoch, leader_id: BrokerId | None) -> None:
        """Take note of another epoch, or of its leader, which may be this replica."""
        ...

    def on_committed(self, high_watermark: Offset) -> None:
        """Take note that the log is committed up to here."""
        ...

    def on_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Take note that a snapshot has replaced the log; its end is the high watermark."""
        ...


class MetadataReplica(Protocol):
    """One replica of `__cluster_metadata`: a voter, or an observer. Belongs to one event loop."""

    @property
    def epoch(self) -> LeaderEpoch:
        """The present epoch of the quorum."""
        ...

    @property
    def leader(self) -> Node | None:
        """The leader and its address on the controller listener, if they are known."""
        ...

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads the present epoch."""
        ...

    @property
    def voters(self) -> VoterSet:
        """The newest voter set in the log."""
        ...

    @property
    def kraft_version(self) -> int:
        """The newest kraft.version in the log."""
        ...

    @property
    def high_watermark(self) -> Offset:
        """The log is known as committed up to here; the log's start before that is known."""
        ...

    @property
    def end_offset(self) -> Offset:
        """The first offset that is not in the log."""
        ...

    def listen(self, listener: ReplicaListener) -> None:
        """Tell a listener of all changes from now on; earlier changes are not repeated."""
        ...

    def propose(self, batch: Buffer) -> Offset:
        """Append a batch as the leader, and return the offset of its first record.

        The replica sets offsets and epoch in the batch. ApiError NOT_CONTROLLER if this replica
        does not lead; nothing is appended then. The batch is committed once `high_watermark` is
        above it, and may be lost if the leadership ends before that.
        """
        ...

    def upgrade_kraft_version(self, level: int, *, is_validated_only: bool) -> Offset | None:
        """Raise kraft.version as the leader; return the offset of the new level.

        None if the level holds already, or if it is only to be validated. ApiError NOT_CONTROLLER
        if this replica does not lead, REQUEST_TIMED_OUT while the voters change, and
        INVALID_UPDATE_VERSION for a level that a voter does not support.
        """
        ...

    def read(self, start_offset: Offset, end_offset: Offset) -> Sequence[RecordBatch]:
        """Return batches of this log from an offset on, about 1 MiB of them, at least one.

        None from `end_offset` on. LookupError if the log starts after `start_offset`: then the
        newest snapshot has the records.
        """
        ...

    def newest_snapshot(self) -> tuple[SnapshotId, Sequence[RecordBatch]] | None:
        """Return the newest snapshot with its data batches, without control batches."""
        ...

    async def save_snapshot(self, end_offset: Offset, batches: Sequence[Buffer]) -> SnapshotId:
        """Write a snapshot of the committed records before an offset, on a thread; then trim.

        The offset is the end of a committed batch. OSError if the disk refuses; one snapshot at a
        time. Older snapshots and the log before the newest
        snapshot go as `metadata.max.retention.*` says.
        """
        ...

    def fetched(self) -> Mapping[BrokerId, Fetched]:
        """Return the last fetches of the other replicas, voters and observers, in this epoch."""
        ...

    async def handle(self, request: Message, version: int | None = None) -> Message:
        """Answer a request of the quorum: Vote, Fetch, FetchSnapshot, AddRaftVoter and so on.

        The response has the fields of this version of the API alone; None is the newest. ApiError
        with KAFKA_STORAGE_ERROR while this replica takes no part in the quorum: its disk is full.
        """
        ...

    async def close(self) -> None:
        """Resign if this replica leads, wait until a successor is known or some time, and end.

        Requests of the other replicas must reach `handle` until then: the successor needs votes.
        """
        ...
