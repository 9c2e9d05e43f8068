"""A replica of the metadata log: the implementation of `MetadataReplica`.

A replica on a full disk takes part in nothing until there is room, and then begins another life
(`replica_life.py`) from its files, as after a crash. A leader resigns first. Any other failure is
final: `on_failed` is called, and the process must end.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Self

from ottla.broker.quorum.metadata_replica import Fetched, ReplicaListener
from ottla.broker.quorum.quorum_log import READ_BYTES, LogSettings
from ottla.broker.quorum.replica_files import FirstVoters, ReplicaFiles
from ottla.broker.quorum.replica_life import NO_PART, ReplicaLife, ReplicaWorld
from ottla.broker.quorum.snapshot_files import DamagedSnapshotError
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, LeaderEpoch, Offset
from ottla.raft.actions import Node
from ottla.raft.messages import fit_response
from ottla.raft.settings import Identity, QuorumSettings
from ottla.raft.snapshots import SnapshotId, snapshot_bytes
from ottla.raft.voters import VoterSet
from ottla.wire.records.batch import Buffer, RecordBatch, batch_at, batches
from ottla.wire.schema import Message

RESIGN_MS_MAX: Final = 1000
"""The time that a leader that is closed waits for its successor."""
COMMIT_MS_MAX: Final = 100
"""The time that it waits before for a follower with its whole log, which is then the successor."""
ROOM_BYTES: Final = 8 << 20
"""The room that a replica on a full disk waits for: a decision of the largest size."""
ROOM_CHECK_MS: Final = 1000
_log = logging.getLogger(__name__)


class QuorumReplica:
    """See above, and `MetadataReplica`. Belongs to one event loop."""

    def __init__(
        self,
        world: ReplicaWorld,
        metadata_dir: str,
        identity: Identity,
        settings: QuorumSettings,
        log_settings: LogSettings,
        first: FirstVoters,
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._world = world
        self._metadata_dir = metadata_dir
        self._identity = identity
        self._settings = settings
        self._log_settings = log_settings
        self._first = first
        self._on_failed = on_failed
        self._listeners: list[ReplicaListener] = [self]
        self._life: ReplicaLife
        self._known_committed = 0
        self._news = asyncio.Event()
        self._recovery: asyncio.Task[None] | None = None
        self._has_failed = False
        self._is_closing = False

    @classmethod
    async def open(
        cls,
        world: ReplicaWorld,
        metadata_dir: str,
        identity: Identity,
        *,
        settings: QuorumSettings,
        log_settings: LogSettings,
        first: FirstVoters,
        on_failed: Callable[[Exception], None],
    ) -> Self:
        """Open the replica in `<metadata_dir>/__cluster_metadata-0`, and let it take part.

        `first` has the voters of `controller.quorum.voters`, or the only voter of an embedded
        broker; voters in the log or in a snapshot replace them. Call `listen` before the
        next suspension, or read the properties: earlier changes are not repeated.

        DamagedReplicaError or OSError if the folder cannot be used.
        """
        replica = cls(world, metadata_dir, identity, settings, log_settings, first, on_failed)
        await replica._begin()
        return replica

    async def _begin(self) -> None:
        """Begin a life from the files."""
        clock = self._world.clock
        opening = partial(
            ReplicaFiles,
            self._world.disk,
            self._metadata_dir,
            self._log_settings,
            self._first,
            clock.now_ms(),
        )
        loop = asyncio.get_running_loop()
        files = await loop.run_in_executor(self._world.threads, opening)
        for note in files.log.notes:
            _log.warning("metadata log: %s", note)
        self._life = ReplicaLife(
            self._world, files, self._identity, self._settings, self._listeners, self._on_error
        )
        self._life.start(self._known_committed)

    # -- the listener of its own life -----------------------------------------------------------

    def on_leader(self, _epoch: LeaderEpoch, _leader_id: BrokerId | None) -> None:
        """Wake `close`, which waits for a successor."""
        self._news.set()

    def on_committed(self, high_watermark: Offset) -> None:
        """Remember the high watermark over all lives, and wake `close`."""
        self._known_committed = max(self._known_committed, high_watermark)
        self._news.set()

    def on_snapshot(self, snapshot_id: SnapshotId) -> None:
        """Take note that a snapshot has replaced the log."""

    # -- questions ------------------------------------------------------------------------------

    @property
    def epoch(self) -> LeaderEpoch:
        """The present epoch of the quorum."""
        return LeaderEpoch(self._life.machine.epoch)

    @property
    def leader(self) -> Node | None:
        """The leader and its address, if they are known."""
        life = self._life
        if life.is_ended or life.leader_id is None:
            return None
        return life.machine.core.leader

    @property
    def is_in_touch(self) -> bool:
        """Whether this replica leads, or has an answer of the leader within a fetch timeout."""
        life = self._life
        return not life.is_ended and life.machine.is_in_touch

    @property
    def is_voter(self) -> bool:
        """Whether this very replica, by id and directory id, is in the newest voter set."""
        return self._life.machine.core.is_voter

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads the present epoch."""
        return self._life.leads

    @property
    def voters(self) -> VoterSet:
        """The newest voter set in the log."""
        return self._life.machine.core.voters

    @property
    def kraft_version(self) -> int:
        """The newest kraft.version in the log."""
        return self._life.machine.core.history.kraft_version

    @property
    def high_watermark(self) -> Offset:
        """The log is known as committed up to here."""
        return Offset(max(self._known_committed, self._life.machine.high_watermark))

    @property
    def end_offset(self) -> Offset:
        """The first offset that is not in the log."""
        return self._life.files.log.end_offset

    def fetched(self) -> Mapping[BrokerId, Fetched]:
        """Return the last fetches of the other replicas from this leader."""
        found: dict[BrokerId, Fetched] = {}
        for key, progress in self._life.machine.progress.items():
            if progress.fetched_at_ms is None:
                continue
            heard_ms = progress.fetched_at_ms + self._life.paused_ms
            known = found.get(BrokerId(key.id))
            if known is None or known.heard_ms < heard_ms:
                found[BrokerId(key.id)] = Fetched(
                    Offset(progress.end_offset), Offset(progress.high_watermark), heard_ms
                )
        return found

    # -- the log --------------------------------------------------------------------------------

    def listen(self, listener: ReplicaListener) -> None:
        """Tell a listener of all changes from now on."""
        self._listeners.append(listener)

    def propose(self, batch: Buffer) -> Offset:
        """Append a batch as the leader; see `MetadataReplica`."""
        if self._is_closing:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this controller stops")
        return self._life.propose(batch)

    def upgrade_kraft_version(self, level: int, *, is_validated_only: bool) -> Offset | None:
        """Raise kraft.version as the leader; see `MetadataReplica`."""
        return self._life.upgrade_kraft_version(level, is_validated_only=is_validated_only)

    def read(self, start_offset: Offset, end_offset: Offset) -> Sequence[RecordBatch]:
        """Return batches of this log; see `MetadataReplica`."""
        log = self._life.files.log
        if start_offset < log.start_offset:
            raise LookupError(f"the log starts at {log.start_offset}, after {start_offset}")
        if start_offset >= min(end_offset, log.end_offset):
            return []
        found = []
        for batch in batches(log.read_bytes(start_offset, READ_BYTES)):
            if batch.base_offset >= end_offset:
                break
            batch.check_crc()
            found.append(batch)
        return found

    async def handle(self, request: Message, version: int | None = None) -> Message:
        """Answer a request of the quorum, in a version; see `MetadataReplica`."""
        if self._life.is_ended:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, NO_PART)
        response = await self._life.handle(request)
        if version is not None:
            fit_response(response, version)
        return response

    # -- snapshots ------------------------------------------------------------------------------

    def newest_snapshot(self) -> tuple[SnapshotId, Sequence[RecordBatch]] | None:
        """Return the newest snapshot with its data batches."""
        files = self._life.files
        if not files.outline.snapshots:
            return None
        newest = files.outline.snapshots[-1]
        return newest, files.snapshots.data_of(newest)

    async def save_snapshot(self, end_offset: Offset, batches: Sequence[Buffer]) -> SnapshotId:
        """Write a snapshot of the committed records before an offset; see `MetadataReplica`."""
        life = self._life
        files, machine = life.files, life.machine
        known = [one for one in files.outline.snapshots if one.end_offset == end_offset]
        if known:
            return known[0]
        last = batch_at(files.log.read_bytes(end_offset - 1, 1))
        assert last.end_offset == end_offset, f"a snapshot ends inside of {last}"
        snapshot_id = SnapshotId(end_offset, last.partition_leader_epoch)
        start = machine.snapshot_start(snapshot_id, last.max_timestamp_ms)

        def save() -> None:
            files.snapshots.save(snapshot_id, bytes(snapshot_bytes(snapshot_id, start, batches)))

        await life.on_thread(save)
        if life.is_ended:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, NO_PART)
        if end_offset <= files.outline.start_offset:
            files.snapshots.remove(snapshot_id)  # Meanwhile a newer snapshot was fetched.
            return files.outline.snapshots[-1]
        machine.on_snapshot(snapshot_id)
        files.note_start(snapshot_id, start)
        self._trim()
        return snapshot_id

    def _trim(self) -> None:
        """Delete old parts of the log, as `metadata.max.retention.*` says."""
        life, settings = self._life, self._log_settings
        files, outline = life.files, life.files.outline
        while not life.is_ended:
            later = [one for one in outline.snapshots if one.end_offset > outline.start_offset]
            if not later:
                return
            size_bytes = files.log.size_bytes + files.snapshots.size_bytes()
            age_ms = self._world.clock.now_ms() - files.timestamp_ms(later[0])
            if not settings.is_exceeded(size_bytes, age_ms):
                return
            life.delete_before(later[0])

    # -- ends -----------------------------------------------------------------------------------

    def _on_error(self, error: Exception) -> None:
        """Begin another life after an error that allows it."""
        if self._life.files.is_refusal(error):
            _log.error("metadata log: this controller waits until there is room: %s", error)
        elif isinstance(error, DamagedSnapshotError):
            _log.error("metadata log: a fetched snapshot is damaged, and fetched again: %s", error)
        else:
            self._fail(error)
            return
        if self._recovery is None:  # A life that ends in its first step is in a recovery.
            self._recovery = asyncio.get_running_loop().create_task(self._recover())

    def _fail(self, error: Exception) -> None:
        """Report an error that no other life can help against."""
        self._has_failed = True
        self._on_failed(error)

    async def _recover(self) -> None:
        """Wait for room, and begin another life until one survives its first step."""
        while self._life.is_ended and not self._has_failed:
            life = self._life
            await pause(ROOM_CHECK_MS)
            await life.end()
            try:
                if self._world.disk.free_bytes(self._metadata_dir) >= ROOM_BYTES:
                    await self._begin()
            except Exception as error:  # noqa: BLE001 - the process must end
                if not life.files.is_refusal(error):
                    self._fail(error)
        if not self._has_failed:
            _log.warning("metadata log: this controller takes part again")
        self._recovery = None

    async def close(self) -> None:
        """Resign if this replica leads, wait for a successor or some time, and end.

        Requests of the other replicas must reach `handle` until then: the successor needs votes.
        """
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait([self._recovery])
        life = self._life
        is_open = not life.is_ended
        if life.leads and len(self.voters) > 1:
            self._is_closing = True
            await self._until(lambda: self.high_watermark >= self.end_offset, COMMIT_MS_MAX)
            life.stop()
            wait_ms = min(RESIGN_MS_MAX, self._settings.election_timeout_ms)
            await self._until(lambda: life.leader_id is not None, wait_ms)
        await life.end()
        if is_open:
            life.files.close(self._world.clock.now_ms())

    async def _until(self, is_so: Callable[[], bool], wait_ms: int) -> None:
        """Wait for a state that news may bring, but not longer than this."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                while not is_so():
                    self._news.clear()
                    await self._news.wait()
