"""A replica of the metadata log in memory: the test sets its leader and its high watermark."""

from collections.abc import Callable, Mapping, Sequence

from ottla.broker.metadata_store.quorum.snapshot_writer import SnapshotSettings
from ottla.broker.metadata_store.quorum.store import QuorumMetadataStore
from ottla.broker.quorum.metadata_replica import Fetched, ReplicaListener
from ottla.environment.clock import Clock
from ottla.machines.controller.settings import ControllerSettings
from ottla.metadata.record_frames import batch_of, metadata_records_of
from ottla.metadata.records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, LeaderEpoch, Offset
from ottla.raft.actions import Node
from ottla.raft.snapshots import SnapshotId
from ottla.raft.voters import VoterSet
from ottla.wire.records.batch import Buffer, RecordBatch, batch_at
from ottla.wire.records.quorum_control import LeaderChangeMessage, control_batch
from ottla.wire.schema import Message
from tests.metadata_building import CLUSTER_ID, InlineExecutor

LEVEL = 30
LEVELS = [FeatureLevelRecord(name="metadata.version", feature_level=LEVEL)]


def open_quorum_store(
    replica: "ReplicaTwin",
    clock: Clock,
    *,
    idle_ms: int = 0,
    bootstrap: Callable[[], Sequence[MetadataRecord]] = lambda: LEVELS,
    **snapshots: int,
) -> QuorumMetadataStore:
    """Open a store; its cluster begins with these records."""
    return QuorumMetadataStore(
        CLUSTER_ID,
        replica,
        ControllerSettings(broker_id=replica.node_id),
        clock=clock,
        threads=InlineExecutor(),
        bootstrap=bootstrap,
        snapshots=SnapshotSettings(**snapshots),
        idle_ms=idle_ms,
    )


class ReplicaTwin:
    """The twin of `QuorumReplica`, with the same promises and no network, disk or time."""

    def __init__(self, node_id: int = 1) -> None:
        self.node_id = BrokerId(node_id)
        self.epoch = LeaderEpoch(0)
        self.leader: Node | None = None
        self.voters = VoterSet()
        self.kraft_version = 1
        self.high_watermark = Offset(0)
        self.batches: list[RecordBatch] = []
        self.start_offset = Offset(0)
        self.snapshot: tuple[SnapshotId, list[RecordBatch]] | None = None
        self.fetched_by_id: dict[BrokerId, Fetched] = {}
        self.commits_at_once = False
        self._listeners: list[ReplicaListener] = []

    @property
    def is_leader(self) -> bool:
        return self.leader is not None and self.leader.node_id == self.node_id

    @property
    def end_offset(self) -> Offset:
        return self.batches[-1].end_offset if self.batches else self.start_offset

    def listen(self, listener: ReplicaListener) -> None:
        self._listeners.append(listener)

    def propose(self, batch: Buffer) -> Offset:
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this controller is not active")
        return self._append(batch)

    def read(self, start_offset: Offset, end_offset: Offset) -> Sequence[RecordBatch]:
        if start_offset < self.start_offset:
            raise LookupError(start_offset)
        return [one for one in self.batches if start_offset <= one.base_offset < end_offset]

    def newest_snapshot(self) -> tuple[SnapshotId, Sequence[RecordBatch]] | None:
        return self.snapshot

    async def save_snapshot(self, end_offset: Offset, batches: Sequence[Buffer]) -> SnapshotId:
        assert end_offset in {one.end_offset for one in self.batches}
        assert end_offset <= self.high_watermark
        snapshot_id = SnapshotId(end_offset, self.epoch)
        self.snapshot = snapshot_id, [batch_at(bytearray(one)) for one in batches]
        return snapshot_id

    def upgrade_kraft_version(self, level: int, *, is_validated_only: bool) -> Offset | None:
        raise NotImplementedError(level)

    def fetched(self) -> Mapping[BrokerId, Fetched]:
        return self.fetched_by_id

    async def handle(self, request: Message, version: int | None = None) -> Message:
        raise NotImplementedError(request)

    async def close(self) -> None:
        self.lose()

    # -- the test's side ------------------------------------------------------------------------

    def lead(self, epoch: int) -> None:
        """Win an election, and begin the epoch with its control batch."""
        self.epoch = LeaderEpoch(epoch)
        self.leader = Node(self.node_id, "here", 9093)
        change = LeaderChangeMessage(leader_id=self.node_id)
        self.append_control(change)
        self._tell_leader()

    def append_control(self, record: Message) -> None:
        self._append(
            control_batch([record], base_offset=0, leader_epoch=self.epoch, timestamp_ms=0)
        )

    def lose(self, epoch: int | None = None, leader_id: int | None = None) -> None:
        """Hear of another leader, or of none."""
        self.epoch = LeaderEpoch(self.epoch if epoch is None else epoch)
        self.leader = None if leader_id is None else Node(leader_id, "there", 9093)
        self._tell_leader()

    def commit(self, end_offset: int | None = None) -> None:
        """Have a majority sync the log up to an offset."""
        self.high_watermark = Offset(self.end_offset if end_offset is None else end_offset)
        for listener in self._listeners:
            listener.on_committed(self.high_watermark)

    def truncate(self, end_offset: int) -> None:
        """Cut the records that another leader does not have."""
        assert end_offset >= self.high_watermark
        self.batches = [one for one in self.batches if one.end_offset <= end_offset]

    def receive(self, *records: MetadataRecord) -> None:
        """Append a batch of another leader."""
        self._append(batch_of(records, LEVEL, 0))

    def install(self, end_offset: int, *records: MetadataRecord) -> None:
        """Replace the log by a snapshot of another leader."""
        self.snapshot = SnapshotId(end_offset, self.epoch), [batch_at(batch_of(records, LEVEL, 0))]
        self.batches, self.start_offset = [], Offset(end_offset)
        self.high_watermark = Offset(end_offset)
        for listener in self._listeners:
            listener.on_snapshot(self.snapshot[0])

    def records(self) -> list[MetadataRecord]:
        """Return all records in the log."""
        data = [one for one in self.batches if not one.is_control]
        return [record for batch in data for record in metadata_records_of(batch)]

    def data(self) -> list[MetadataRecord]:
        """Return the records that change the metadata."""
        marks = BeginTransactionRecord | EndTransactionRecord | NoOpRecord
        return [record for record in self.records() if not isinstance(record, marks)]

    def _append(self, batch: Buffer) -> Offset:
        added = batch_at(bytearray(batch))
        added.restamp(self.end_offset, self.epoch)
        self.batches.append(added)
        if self.commits_at_once:
            self.commit()
        return added.base_offset

    def _tell_leader(self) -> None:
        leader_id = None if self.leader is None else BrokerId(self.leader.node_id or 0)
        for listener in self._listeners:
            listener.on_leader(self.epoch, leader_id)
