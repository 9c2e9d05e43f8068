"""One life of a replica: a `QuorumMachine`, its files and its requests, from a start to an end.

Events come from the event loop: requests, responses, ends of syncs, timers, proposals. Each is one
step of the machine. The actions of all steps are executed at once and in order; only a sync runs
on a thread. So nothing that promises leaves before the facts that it promises are durable.

A life ends for good with the first exception of an action: the actions behind it are dropped, as a
crash would drop them, and the next life begins from the files.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ottla.broker.quorum.metadata_replica import ReplicaListener
from ottla.broker.quorum.replica_files import ReplicaFiles
from ottla.broker.quorum.replica_peers import ReplicaPeers
from ottla.environment.clock import Clock
from ottla.environment.disk import Disk
from ottla.environment.network import Network
from ottla.environment.randomness import Randomness
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, LeaderEpoch, Offset
from ottla.raft import actions as acts
from ottla.raft.actions import Action, Node
from ottla.raft.quorum_machine import QuorumMachine
from ottla.raft.settings import Identity, QuorumSettings
from ottla.raft.snapshots import SnapshotId
from ottla.raft.states import Leader
from ottla.wire.records.batch import Buffer
from ottla.wire.schema import Message

LATE_MS: Final = 100
"""A timer that is later than this shows that the process was paused."""
GRACE_MS: Final = 50
"""The time between the end of a pause and the next deadline: waiting messages are handled."""
NO_PART: Final = "this replica takes no part in the quorum at present"


@dataclass(frozen=True, slots=True)
class ReplicaWorld:
    """The machine and the process that a replica runs on."""

    disk: Disk
    network: Network
    clock: Clock
    randomness: Randomness
    threads: Executor | None = None
    """Runs syncs, and writes snapshots; None is the executor of the event loop."""


class ReplicaLife:
    """See above. Belongs to one event loop. `start` comes first."""

    def __init__(
        self,
        world: ReplicaWorld,
        files: ReplicaFiles,
        identity: Identity,
        settings: QuorumSettings,
        listeners: Sequence[ReplicaListener],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self.files = files
        self.is_ended = False
        self._world = world
        self._loop = asyncio.get_running_loop()
        self._listeners = listeners
        self._on_failed = on_failed
        self.machine = QuorumMachine(
            identity, settings, world.randomness, files.election, files.outline, files.history
        )
        self._peers = ReplicaPeers(
            world.network, f"replica-{identity.key.id}", self, settings.request_timeout_ms
        )
        self._actions: deque[Action] = deque()
        self._is_performing = False
        self._perform_by_type: dict[type[Any], Callable[[Any], None]] = {
            acts.PersistElection: self._persist_election,
            acts.Append: self._append,
            acts.Truncate: self._truncate,
            acts.Sync: self._sync,
            acts.SendRequest: self._send_request,
            acts.SendResponse: self._send_response,
            acts.SendRecords: self._send_records,
            acts.SendSnapshot: self._send_snapshot,
            acts.WriteSnapshot: self._write_snapshot,
            acts.InstallSnapshot: self._install_snapshot,
            acts.DeleteBefore: self._delete_before,
            acts.Committed: self._committed,
            acts.LeaderChanged: self._leader_changed,
        }
        self._waiting: set[asyncio.Future[Message]] = set()
        self._wanted_sync: acts.Sync | None = None
        self._syncing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms: int | None = None
        self._last_ms = world.clock.monotonic_ms()
        self._paused_ms = 0
        self._told_leader: tuple[int, int | None] | None = None

    def start(self, committed_offset: int) -> None:
        """Begin; the log is known as committed up to this offset, or the newest snapshot's end."""
        core = self.machine.core
        known = max(committed_offset, self.files.committed_offset)
        core.high_watermark = min(known, core.outline.end_offset)
        self._step(lambda: self.machine.start(self._now_ms()))

    # -- questions ------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether this replica leads."""
        return not self.is_ended and isinstance(self.machine.state, Leader)

    @property
    def leader_id(self) -> int | None:
        """The leader; None if it is unknown, or if this replica has just resigned."""
        leader_id = self.machine.leader_id
        is_own = leader_id == self.machine.core.key.id
        return None if is_own and not self.leads else leader_id

    # -- steps ----------------------------------------------------------------------------------

    def _step(self, event: Callable[[], list[Action]]) -> None:
        """Report an event, and execute the actions; ends the life if one fails."""
        if self.is_ended:
            return
        try:
            self._actions.extend(event())
            self._perform_all()
        except Exception as error:  # noqa: BLE001 - later actions rely on the failed action
            self._fail(error)
            return
        if not self._is_performing:
            self._tell_leader(self.machine.epoch, self.leader_id)
            self._set_timer()

    def _perform_all(self) -> None:
        if self._is_performing:
            return  # A listener made a proposal: its actions come last.
        self._is_performing = True
        try:
            while self._actions:
                action = self._actions.popleft()
                self._perform_by_type[type(action)](action)
        finally:
            self._is_performing = False

    def _fail(self, error: Exception) -> None:
        if not self.is_ended:
            was_leader = self.leads
            self._halt()
            if was_leader:
                self._announce_end()
            self._on_failed(error)

    def _halt(self) -> None:
        """Report and execute nothing more."""
        self.is_ended = True
        self._actions.clear()
        if self._timer is not None:
            self._timer.cancel()
        for token in self._waiting:
            if not token.done():
                token.set_exception(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, NO_PART))

    def _announce_end(self) -> None:
        """Tell the voters that this leader has come to its end: they elect a successor at once.

        This promises nothing. The other actions of the machine are not executed: its state may be
        ahead of the files.
        """
        for action in self.machine.stop(self._now_ms()):
            if isinstance(action, acts.SendRequest):
                self._send_request(action)
        self._tell_leader(self.machine.epoch, None)

    def propose(self, batch: Buffer) -> Offset:
        """Append a batch as leader; NOT_CONTROLLER if this replica does not lead."""
        offset = self._as_leader(lambda: self.machine.propose(batch, self._now_ms()))
        assert offset is not None, "a proposal has an offset"
        return offset

    def upgrade_kraft_version(self, level: int, *, is_validated_only: bool) -> Offset | None:
        """Raise kraft.version as leader; the errors are in `VoterUpdates.upgrade`."""
        return self._as_leader(
            lambda: self.machine.upgrade_kraft_version(
                level, is_validated_only=is_validated_only, now_ms=self._now_ms()
            )
        )

    def _as_leader(self, event: Callable[[], tuple[int | None, list[Action]]]) -> Offset | None:
        """Report a call of the state machine above, and return the offset that it has led to."""
        if not self.leads:
            raise _not_active()
        offset, actions = event()  # An ApiError is the caller's: nothing has changed.
        self._step(lambda: actions)
        if not self.leads:
            raise _not_active()
        return None if offset is None else Offset(offset)

    async def handle(self, request: Message) -> Message:
        """Answer a request of the quorum."""
        token: asyncio.Future[Message] = self._loop.create_future()
        self._waiting.add(token)
        try:
            self._step(lambda: self.machine.on_request(token, request, self._now_ms()))
            return await token
        finally:
            self._waiting.discard(token)

    def stop(self) -> None:
        """Give a leadership up."""
        self._step(lambda: self.machine.stop(self._now_ms()))

    def delete_before(self, snapshot_id: SnapshotId) -> None:
        """Delete the log before a snapshot."""
        self._step(lambda: self.machine.delete_before(snapshot_id))

    async def on_thread(self, work: Callable[[], None]) -> None:
        """Run blocking work."""
        await self._loop.run_in_executor(self._world.threads, work)

    async def end(self) -> None:
        """Close the connections, and let a running sync come to its end."""
        self._halt()
        self._peers.close()
        if self._syncing is not None:
            await asyncio.wait([self._syncing])

    # -- ends of requests -----------------------------------------------------------------------

    def on_response(self, correlation_id: int, response: Message) -> None:
        """Report a response."""
        self._step(lambda: self.machine.on_response(correlation_id, response, self._now_ms()))

    def on_failure(self, correlation_id: int) -> None:
        """Report a request without a response."""
        self._step(lambda: self.machine.on_failure(correlation_id, self._now_ms()))

    def on_unsupported(self, correlation_id: int) -> None:
        """Report a request in a version that the node does not know."""
        self._step(lambda: self.machine.on_unsupported(correlation_id, self._now_ms()))

    def on_unreachable(self, node: Node) -> None:
        """Report that nothing listens at a node's address."""
        self._step(lambda: self.machine.on_unreachable(node, self._now_ms()))

    # -- time -----------------------------------------------------------------------------------

    @property
    def paused_ms(self) -> int:
        """The monotonic clock minus the time of the machine."""
        return self._paused_ms

    def _now_ms(self) -> int:
        """Return the time of an event: the time that this process has run.

        Pauses of the process do not count. A deadline that has passed during a pause says nothing
        about the leader, as long as the messages of that time are not handled.
        """
        clock = self._world.clock
        now_ms = clock.monotonic_ms() - self._paused_ms
        if self._due_ms is not None and now_ms > self._due_ms + LATE_MS:
            resumed_ms = max(self._last_ms, self._due_ms - GRACE_MS)
            self._paused_ms += now_ms - resumed_ms
            now_ms = resumed_ms
        self._last_ms = now_ms
        self.machine.core.wall_offset_ms = clock.now_ms() - now_ms
        return now_ms

    def _set_timer(self) -> None:
        wake_ms = self.machine.wake_ms
        if wake_ms is None or self.is_ended:
            return
        if self._due_ms is not None and self._due_ms <= wake_ms:
            return  # A timer that comes too early does no harm.
        if self._timer is not None:
            self._timer.cancel()
        self._due_ms = max(wake_ms, self._last_ms)
        self._timer = self._loop.call_later((self._due_ms - self._last_ms) / 1000, self._ring)

    def _ring(self) -> None:
        now_ms = self._now_ms()
        self._due_ms = None
        self._step(lambda: self.machine.on_time(now_ms))

    # -- actions: files -------------------------------------------------------------------------

    def _persist_election(self, action: acts.PersistElection) -> None:
        self.files.persist(action.state, self.machine.core.history)

    def _append(self, action: acts.Append) -> None:
        log = self.files.log
        assert action.base_offset == log.end_offset, (action.base_offset, log.end_offset)
        log.append(action.batch, self._world.clock.now_ms())

    def _truncate(self, action: acts.Truncate) -> None:
        self.files.log.truncate(action.end_offset)
        assert self.files.log.end_offset == action.end_offset, action

    def _sync(self, action: acts.Sync) -> None:
        # The task begins in the next iteration of the loop: one sync serves all appends of an
        # iteration, and the next sync all appends of its time.
        self._wanted_sync = action
        if self._syncing is None:
            self._syncing = self._loop.create_task(self._run_syncs())

    async def _run_syncs(self) -> None:
        log, clock = self.files.log, self._world.clock
        try:
            while (wanted := self._wanted_sync) is not None and not self.is_ended:
                self._wanted_sync = None
                flush = log.begin_sync()
                await self.on_thread(flush.run)
                log.end_sync(flush, clock.now_ms())
                self._step(partial(self._synced, wanted))
                if log.needs_checkpoint:
                    await self.on_thread(log.checkpoint())
        except Exception as error:  # noqa: BLE001 - as in _step
            self._fail(error)
        finally:
            self._syncing = None

    def _synced(self, sync: acts.Sync) -> list[Action]:
        return self.machine.on_synced(sync.end_offset, sync.generation, self._now_ms())

    def _write_snapshot(self, action: acts.WriteSnapshot) -> None:
        self.files.snapshots.write_piece(action.snapshot_id, action.position, action.content)

    def _install_snapshot(self, action: acts.InstallSnapshot) -> None:
        start = self.files.install(action.snapshot_id, self._world.clock.now_ms())
        for listener in self._listeners:
            listener.on_snapshot(action.snapshot_id)
        now_ms = self._now_ms()
        self._actions.extend(self.machine.on_snapshot_installed(action.snapshot_id, start, now_ms))

    def _delete_before(self, action: acts.DeleteBefore) -> None:
        self.files.delete_before(action.snapshot_id, self._world.clock.now_ms())

    # -- actions: messages ----------------------------------------------------------------------

    def _send_request(self, action: acts.SendRequest) -> None:
        self._peers.send(action.correlation_id, action.node, action.request)

    def _send_response(self, action: acts.SendResponse) -> None:
        self._answer(action.token, action.response)

    def _send_records(self, action: acts.SendRecords) -> None:
        # Read now, and not when it is sent: the log may be cut before that.
        records = self.files.log.read_bytes(action.offset, action.bytes_max)
        action.response.responses[0].partitions[0].records = records
        self._answer(action.token, action.response)

    def _send_snapshot(self, action: acts.SendSnapshot) -> None:
        found, size = self.files.snapshots.piece(
            action.snapshot_id, action.position, action.bytes_max
        )
        piece = action.response.topics[0].partitions[0]
        piece.size, piece.unaligned_records = size, found
        if action.position >= size:
            piece.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        self._answer(action.token, action.response)

    def _answer(self, token: object, response: Message) -> None:
        assert isinstance(token, asyncio.Future), token
        if not token.done():  # The caller may be gone.
            token.set_result(response)

    # -- actions: news --------------------------------------------------------------------------

    def _committed(self, action: acts.Committed) -> None:
        for listener in self._listeners:
            listener.on_committed(Offset(action.high_watermark))

    def _leader_changed(self, action: acts.LeaderChanged) -> None:
        is_own = action.leader_id == self.machine.core.key.id
        self._tell_leader(action.epoch, None if is_own and not self.leads else action.leader_id)

    def _tell_leader(self, epoch: int, leader_id: int | None) -> None:
        if self._told_leader == (epoch, leader_id):
            return
        self._told_leader = epoch, leader_id
        leader = None if leader_id is None else BrokerId(leader_id)
        for listener in self._listeners:
            listener.on_leader(LeaderEpoch(epoch), leader)


def _not_active() -> ApiError:
    return ApiError(ErrorCode.NOT_CONTROLLER, "this controller is not active")
