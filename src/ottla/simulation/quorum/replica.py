"""A simulated replica of the metadata log: it drives a machine on a simulated disk."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.model.address import Address
from ottla.model.error_code import ErrorCode
from ottla.raft import actions as acts
from ottla.raft.core import LogDivergedError
from ottla.raft.election_state import quorum_state_bytes
from ottla.raft.quorum_machine import QuorumMachine
from ottla.raft.settings import Identity, QuorumSettings
from ottla.raft.snapshots import SnapshotId, snapshot_bytes, snapshot_start_of
from ottla.raft.states import Leader, State
from ottla.raft.voters import Endpoint, ReplicaKey
from ottla.simulation.quorum.checks import InvariantError, chain_of_snapshot, data_chain
from ottla.simulation.quorum.disk import QuorumDisk
from ottla.simulation.world.randomness import SimulatedRandomness, dice
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import Record

if TYPE_CHECKING:
    from ottla.simulation.quorum.world import QuorumWorld
    from ottla.wire.schema import Message

CLUSTER: Final = "quorum-of-the-simulation"
PORT: Final = 9093
LISTENER: Final = "CONTROLLER"
STOP_MS: Final = 200
"""The time between a resignation and the end of the process."""


class Replica:
    """One node: its disk, and, while it runs, its machine."""

    def __init__(self, world: "QuorumWorld", number: int, settings: QuorumSettings) -> None:
        self.world = world
        self.number = number
        self.settings = settings
        self.port = PORT
        """The advertised port."""
        self.ports = {PORT}
        """The ports that accept connections: the advertised port may be wrong."""
        self.life = 0
        self.disks_lost = 0
        self.has_pre_vote = True
        self.is_controller = True
        self.is_up = False
        self.is_paused = False
        self.is_stopping = False
        self.inbox: list[Callable[[], None]] = []
        self.requests: dict[object, Message] = {}
        self.led: dict[int, State] = {}
        """By epoch, the state as its leader in this life."""
        self.high_watermark_before = 0
        self.applied, self.chain = 0, 0
        """The end of the applied batches, and the image there."""
        self._timer_ms: int | None = None
        self._has_changed_voters = False
        self._machine: QuorumMachine | None = None
        self._proposed: dict[int, tuple[int, str]] = {}

    def __repr__(self) -> str:
        if not self.is_up:
            return f"{self.number}:DOWN@-"
        return f"{self.number}:{self.machine.state.role.name}@{self.machine.epoch}"

    @property
    def disk(self) -> QuorumDisk:
        """The present disk of this node."""
        return self.world.disks[self.number]

    @property
    def machine(self) -> QuorumMachine:
        """The machine of the present life, or of the last life."""
        assert self._machine is not None, f"{self.number} has never run"
        return self._machine

    @property
    def key(self) -> ReplicaKey:
        """The name of this replica: it changes with the disk."""
        return ReplicaKey(self.number, self.disk.directory_id)

    @property
    def leads(self) -> bool:
        """Whether this replica runs, and leads its epoch."""
        return self.is_up and isinstance(self.machine.state, Leader)

    # -- lives ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a process on the disk."""
        assert not self.is_up, f"{self.number} runs already"
        self.life += 1
        self.is_up, self.is_paused, self.is_stopping = True, False, False
        self.inbox, self.requests, self._timer_ms = [], {}, None
        self.led, self._has_changed_voters = {}, False
        outline, history = self.disk.open()
        self._machine = QuorumMachine(
            Identity(
                self.key,
                CLUSTER,
                (Endpoint(LISTENER, str(self.number), self.port),),
                tuple(Address(str(number), PORT) for number in self.world.bootstrap),
                is_controller=self.is_controller,
            ),
            self.settings,
            SimulatedRandomness(dice(self.world.seed, f"replica {self.number} {self.life}")),
            self.disk.election,
            outline,
            history,
        )
        self.high_watermark_before = self.applied = outline.start_offset
        base = [key for key in self.disk.snapshots if key.end_offset == outline.start_offset]
        self.chain = chain_of_snapshot(self.disk.snapshots[base[0]]) if base else 0
        self._perform(self.machine.start(self.world.now_ms))

    def start_if_down(self) -> None:
        """Start a process if none runs."""
        if not self.is_up:
            self.start()

    def kill(self, *, has_power: bool = True) -> None:
        """End the process, with the unsynced changes of the disk if the power fails."""
        self.is_up = False
        self._proposed = {}
        if not has_power:
            self.disk.lose_power(self.world.dice)
            self.world.checks.check_durability(is_quick=True)

    def stop(self) -> None:
        """Resign, and end a moment later."""
        self.is_stopping = True
        self.handle(lambda: self.machine.stop(self.world.now_ms))
        life = self.life
        self.world.after(STOP_MS, lambda: self.kill() if self.life == life and self.is_up else None)

    # -- events -----------------------------------------------------------------------------------

    def deliver(self, life: int, event: Callable[[], None]) -> None:
        """Handle an event now, or after the pause; events for an earlier life are lost."""
        if not self.is_up or self.life != life:
            return
        if self.is_paused:
            self.inbox.append(event)
        else:
            event()

    def resume(self) -> None:
        """End a pause: first the messages, then the time."""
        if not self.is_up or not self.is_paused:
            return
        self.is_paused = False
        inbox, self.inbox = self.inbox, []
        for event in inbox:
            if self.is_up:
                event()
        if self.is_up:
            self.handle(lambda: self.machine.on_time(self.world.now_ms))

    def handle(self, step: Callable[[], list[acts.Action]]) -> None:
        """Report one event to the machine, and execute its actions."""
        try:
            actions = step()
        except LogDivergedError as error:
            raise InvariantError("Q5", f"{self.key} stops: {error}") from error
        self._perform(actions)

    def _perform(self, actions: list[acts.Action]) -> None:
        world = self.world
        for action in actions:
            world.trace(self, action)
            self._perform_one(action)
            if world.crash_share and world.dice.random() < world.crash_share:
                world.note(f"{self.number} dies in the middle of a step")
                self.kill(has_power=world.dice.random() < 0.5)
                world.after(world.dice.randint(100, 3000), self.start_if_down)
            if not self.is_up:
                return
        if self._has_changed_voters:
            self._has_changed_voters = False
            world.checks.log_changed(self)
        world.checks.stepped(self)
        self._set_timer()

    def _set_timer(self) -> None:
        wake_ms = self.machine.wake_ms
        if wake_ms is None or (self._timer_ms is not None and self._timer_ms <= wake_ms):
            return
        self._timer_ms = at_ms = max(wake_ms, self.world.now_ms)
        life = self.life

        def ring() -> None:
            # A paused process looks at its messages first, and at the time after that.
            if not self.is_up or self.life != life:
                return
            if self.is_paused:
                self._timer_ms = None
                return
            if self._timer_ms == at_ms:
                self._timer_ms = None
            self.handle(lambda: self.machine.on_time(self.world.now_ms))

        self.world.at(at_ms, ring)

    # -- actions ----------------------------------------------------------------------------------

    def _perform_one(self, action: acts.Action) -> None:
        match action:
            case acts.PersistElection():
                machine = self.machine
                ids = [key.id for key in machine.core.voters.keys]
                content = quorum_state_bytes(action.state, machine.kraft_version, ids)
                self.disk.quorum_state = content
                self.world.checks.persisted(self.key, action.state)
            case acts.SendRequest():
                self.world.send_request(self, action)
            case acts.SendResponse() | acts.SendRecords() | acts.SendSnapshot():
                self._respond(action)
            case acts.Committed():
                self._apply(action.high_watermark)
            case acts.LeaderChanged():
                self.world.note(f"{self.number} sees leader {action.leader_id}@{action.epoch}")
                self._proposed = {}
            case _:
                self._change_log(action)

    def _change_log(self, action: acts.Action) -> None:
        match action:
            case acts.Append():
                entry = self.disk.append(action.batch)
                assert entry.base_offset == action.base_offset, action
                self.world.checks.logged(self, entry)
                self._has_changed_voters |= entry.batch.is_control
            case acts.Truncate():
                self.world.note(f"{self.number} cuts its log at {action.end_offset}")
                self.disk.truncate(action.end_offset)
                self._has_changed_voters = True
                self._proposed = {}
                self.world.checks.check_durability(is_quick=True)
            case acts.Sync():
                self._sync(action)
            case acts.WriteSnapshot():
                self.disk.write_partial(action.position, action.content)
            case acts.InstallSnapshot():
                self._install(action.snapshot_id)
            case acts.DeleteBefore():
                self.disk.delete_before(action.snapshot_id)
            case _:
                raise AssertionError(f"no action: {action}")

    def _sync(self, action: acts.Sync) -> None:
        world, life, change = self.world, self.life, self.disk.changes

        def report() -> None:
            end = action.end_offset, action.generation
            self.handle(lambda: self.machine.on_synced(*end, world.now_ms))

        def done() -> None:
            if self.life == life and self.is_up:
                self.disk.sync_up_to(change)
                self.deliver(life, report)

        world.after(world.dice.randint(0, world.sync_ms), done)

    def _respond(self, action: acts.SendResponse | acts.SendRecords | acts.SendSnapshot) -> None:
        request = self.requests.pop(action.token, None)
        match action:
            case acts.SendResponse():
                self.world.checks.answered(self, action, request)
            case acts.SendRecords():
                self.world.checks.answered(self, action, request)
                bytes_max = min(action.bytes_max, self.world.fetch_bytes)
                records = self.disk.read(action.offset, bytes_max)
                action.response.responses[0].partitions[0].records = records
            case acts.SendSnapshot():
                self._add_piece(action)
        self.world.send_response(self, action.token, action.response)

    def _add_piece(self, action: acts.SendSnapshot) -> None:
        content = self.disk.snapshots[action.snapshot_id]
        piece = action.response.topics[0].partitions[0]
        piece.size = len(content)
        if action.position >= len(content):
            piece.error_code = ErrorCode.POSITION_OUT_OF_RANGE
            return
        bytes_max = min(action.bytes_max, self.world.snapshot_piece_bytes)
        piece.unaligned_records = content[action.position : action.position + bytes_max]

    def _install(self, snapshot_id: SnapshotId) -> None:
        content = self.disk.install(snapshot_id)
        self.chain = self.world.checks.installed(self, snapshot_id, content)
        self.applied = snapshot_id.end_offset
        self.world.note(f"{self.number} loads snapshot {snapshot_id}")
        start = snapshot_start_of(content)
        self.handle(
            lambda: self.machine.on_snapshot_installed(snapshot_id, start, self.world.now_ms)
        )

    # -- the state machine above ------------------------------------------------------------------

    def _apply(self, high_watermark: int) -> None:
        """Apply the committed batches to the image, and check both."""
        checks = self.world.checks
        for entry in self.disk.entries:
            if self.applied <= entry.base_offset < high_watermark:
                checks.applied(self, entry)
                self.chain = data_chain(self.chain, entry)
                self.applied = entry.end_offset
                checks.check_image(self.key, self.applied, self.chain)
        if self.applied != high_watermark:
            raise InvariantError("Q6", f"{self.key} commits {high_watermark} inside of a batch")
        self._acknowledge()
        self._consider_snapshot()

    def propose(self, value: str) -> None:
        """Append a value as the leader."""
        batch = build_batch([Record(0, 0, None, value.encode())])

        def step() -> list[acts.Action]:
            offset, actions = self.machine.propose(batch, self.world.now_ms)
            self._proposed[offset] = (self.machine.epoch, value)
            return actions

        self.handle(step)

    def _acknowledge(self) -> None:
        """Answer the values that are committed in the epoch in which they were proposed."""
        if not isinstance(self.machine.state, Leader):
            return
        for offset in [one for one in self._proposed if one < self.applied]:
            epoch, value = self._proposed.pop(offset)
            if epoch == self.machine.epoch:
                self.world.checks.acknowledged(offset, value)
                self.world.acknowledged.append(value)

    def _consider_snapshot(self) -> None:
        world = self.world
        newest = max(self.disk.snapshots, default=SnapshotId(0, 0))
        if not world.snapshot_every or self.applied - newest.end_offset < world.snapshot_every:
            return
        life = self.life
        world.after(1, lambda: self.deliver(life, self._take_snapshot))

    def _take_snapshot(self) -> None:
        newest = max(self.disk.snapshots, default=SnapshotId(0, 0))
        before = [one for one in self.disk.entries if one.end_offset <= self.applied]
        if not before or self.applied <= newest.end_offset:
            return
        snapshot_id = SnapshotId(self.applied, before[-1].epoch)
        start = self.machine.snapshot_start(snapshot_id, self.world.now_ms)
        image = build_batch([Record(0, 0, None, str(self.chain).encode())])
        content = bytes(snapshot_bytes(snapshot_id, start, [image]))
        self.world.checks.check_snapshot(snapshot_id, content)
        self.disk.snapshots[snapshot_id] = content
        self.machine.on_snapshot(snapshot_id)
        if self.world.dice.random() < 0.7:
            self.handle(lambda: self.machine.delete_before(snapshot_id))
