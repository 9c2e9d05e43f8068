"""Simulated replicas of the metadata log: virtual time, disks, and a network with faults.

A world of discrete events, without asyncio: a run of half a minute takes some hundredths of a
second. Everything follows from the seed.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ottla.model.address import Address
from ottla.model.error_code import ErrorCode
from ottla.raft import actions as acts
from ottla.raft.core import LogDivergedError
from ottla.raft.election_state import quorum_state_bytes
from ottla.raft.quorum_machine import QuorumMachine
from ottla.raft.settings import Identity, QuorumSettings
from ottla.raft.snapshots import SnapshotId, SnapshotStart, snapshot_bytes, snapshot_start_of
from ottla.raft.states import Leader, State
from ottla.raft.voters import Endpoint, ReplicaKey, VoterSet
from ottla.wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from ottla.wire.messages.vote import VoteRequest
from ottla.wire.reading import decode
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import Record
from ottla.wire.schema import Message
from ottla.wire.writing import encode
from tests.simulation.quorum_checks import Broken, QuorumChecks, data_chain
from tests.simulation.quorum_disks import Entry, QuorumDisk, entry_of

CLUSTER = "quorum-of-the-simulation"
PORT = 9093


def directory_id(number: int, life: int) -> bytes:
    return number.to_bytes(8, "big") + (life + 1).to_bytes(8, "big")


class Dice:
    """The randomness of one replica."""

    def __init__(self, seed: object) -> None:
        self._random = Random(str(seed))

    def uuid(self) -> bytes:
        return self._random.randbytes(16)

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)


@dataclass
class Network:
    """Delays and faults of messages."""

    delay_ms: tuple[int, int] = (1, 10)
    late_share: float = 0.0
    """The share of messages that are late by up to a second, and so overtaken."""
    loss_share: float = 0.0
    cut: set[tuple[int, int]] = field(default_factory=set)
    """Links that lose everything, by sender and receiver."""


class Replica:
    """One node: its disk, and, while it runs, its machine."""

    def __init__(self, world: "QuorumWorld", number: int, disk: QuorumDisk) -> None:
        self.world = world
        self.number = number
        self.disk = disk
        self.port = PORT
        self.life = 0
        self.disks = 0
        """How many disks this node has lost."""
        self.has_pre_vote = True
        self.is_controller = True
        self.settings = QuorumSettings()
        self.is_up = False
        self.is_paused = False
        self.inbox: list[Callable[[], None]] = []
        self.requests: dict[Any, Message] = {}
        self.timer_ms: int | None = None
        self.has_changed_voters = False
        self.applied, self.chain = 0, 0
        self.high_watermark_before = 0
        self.led: dict[int, State] = {}
        self.machine: QuorumMachine = None  # type: ignore[assignment]
        self.proposed: dict[int, tuple[int, str]] = {}

    def __repr__(self) -> str:
        role = self.machine.state.role.name if self.is_up else "DOWN"
        return f"{self.number}:{role}@{self.machine.epoch if self.is_up else '-'}"

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.number, self.disk.directory_id)

    @property
    def leads(self) -> bool:
        return self.is_up and isinstance(self.machine.state, Leader)

    # -- lives ------------------------------------------------------------------------------------

    def start(self) -> None:
        assert not self.is_up
        self.life += 1
        self.is_up, self.is_paused = True, False
        self.inbox, self.requests, self.timer_ms = [], {}, None
        self.led = {}
        outline, history = self.disk.open()
        self.machine = QuorumMachine(
            Identity(
                self.key,
                CLUSTER,
                (Endpoint("CONTROLLER", str(self.number), self.port),),
                tuple(Address(str(number), PORT) for number in self.world.bootstrap),
                is_controller=self.is_controller,
            ),
            self.settings,
            Dice((self.world.seed, self.number, self.life)),
            self.disk.election,
            outline,
            history,
        )
        self.high_watermark_before = self.applied = outline.start_offset
        base = [key for key in self.disk.snapshots if key.end_offset == outline.start_offset]
        self.chain = self.world.checks.chains[outline.start_offset] if base else 0
        self._perform(self.machine.start(self.world.now_ms))

    def kill(self, *, has_power: bool = True) -> None:
        self.is_up = False
        self.proposed = {}
        if not has_power:
            self.disk.lose_power(self.world.dice)

    def stop(self) -> None:
        """Resign, and stop once the voters know it."""
        self.handle(lambda: self.machine.stop(self.world.now_ms))
        life = self.life
        self.world.after(200, lambda: self.kill() if self.life == life and self.is_up else None)

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
        try:
            actions = step()
        except LogDivergedError as error:
            raise Broken("Q5", f"{self.key} stops: {error}") from error
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
        if self.has_changed_voters:
            self.has_changed_voters = False
            world.checks.log_changed(self)
        world.checks.stepped(self)
        self._set_timer()

    def start_if_down(self) -> None:
        if not self.is_up:
            self.start()

    def _set_timer(self) -> None:
        wake_ms = self.machine.wake_ms
        if wake_ms is None or (self.timer_ms is not None and self.timer_ms <= wake_ms):
            return
        self.timer_ms = at_ms = max(wake_ms, self.world.now_ms)
        life = self.life

        def ring() -> None:
            if self.timer_ms == at_ms:
                self.timer_ms = None
            self.handle(lambda: self.machine.on_time(self.world.now_ms))

        def ring_unless_paused() -> None:
            # A paused process looks at its messages first, and at the time after that.
            if self.is_up and self.life == life:
                if self.is_paused:
                    self.timer_ms = None
                else:
                    ring()

        self.world.at(at_ms, ring_unless_paused)

    def _perform_one(self, action: acts.Action) -> None:
        name = type(action).__name__
        getattr(self, f"_do_{_SNAKE[name]}")(action)

    # -- actions ----------------------------------------------------------------------------------

    def _do_persist_election(self, action: acts.PersistElection) -> None:
        self.disk.quorum_state = quorum_state_bytes(action.state, 1)
        self.world.checks.persisted(self.key, action.state)

    def _do_append(self, action: acts.Append) -> None:
        entry = self.disk.append(action.batch)
        assert entry.base_offset == action.base_offset
        self.world.checks.logged(self, entry)
        self.has_changed_voters |= entry.batch.is_control

    def _do_truncate(self, action: acts.Truncate) -> None:
        self.disk.truncate(action.end_offset)
        self.has_changed_voters = True
        self.world.note(f"{self.number} cuts its log at {action.end_offset}")
        self.proposed = {}

    def _do_sync(self, action: acts.Sync) -> None:
        world, life, change = self.world, self.life, self.disk.changes

        def done() -> None:
            if self.life != life or not self.is_up:
                return
            self.disk.sync_up_to(change)
            self.deliver(
                life,
                lambda: self.handle(
                    lambda: self.machine.on_synced(
                        action.end_offset, action.generation, world.now_ms
                    )
                ),
            )

        world.after(world.dice.randint(0, world.sync_ms), done)

    def _do_send_request(self, action: acts.SendRequest) -> None:
        self.world.send_request(self, action)

    def _do_send_response(self, action: acts.SendResponse) -> None:
        request = self.requests.pop(action.token, None)
        self.world.checks.answered(self, action, request)
        self.world.send_response(self, action.token, action.response)

    def _do_send_records(self, action: acts.SendRecords) -> None:
        self.requests.pop(action.token, None)
        found, size = bytearray(), 0
        for entry in self.disk.entries:
            if entry.base_offset >= action.offset:
                size += len(entry.raw)
                if found and size > min(action.bytes_max, self.world.fetch_bytes):
                    break
                found += entry.raw
        assert found, "a response with records has none"
        action.response.responses[0].partitions[0].records = bytes(found)
        self.world.send_response(self, action.token, action.response)

    def _do_send_snapshot(self, action: acts.SendSnapshot) -> None:
        self.requests.pop(action.token, None)
        content = self.disk.snapshots[action.snapshot_id]
        piece = action.response.topics[0].partitions[0]
        piece.size = len(content)
        if action.position >= len(content):
            piece.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            bytes_max = min(action.bytes_max, self.world.snapshot_piece_bytes)
            piece.unaligned_records = content[action.position : action.position + bytes_max]
        self.world.send_response(self, action.token, action.response)

    def _do_write_snapshot(self, action: acts.WriteSnapshot) -> None:
        if action.position == 0:
            self.disk.partial = bytearray()
        assert len(self.disk.partial) == action.position
        self.disk.partial += action.content

    def _do_install_snapshot(self, action: acts.InstallSnapshot) -> None:
        content = self.disk.install(action.snapshot_id)
        self.chain = self.world.checks.installed(self, action.snapshot_id, content)
        self.applied = action.snapshot_id.end_offset
        self.world.note(f"{self.number} loads snapshot {action.snapshot_id}")
        self.handle(
            lambda: self.machine.on_snapshot_installed(
                action.snapshot_id, snapshot_start_of(content), self.world.now_ms
            )
        )

    def _do_delete_before(self, action: acts.DeleteBefore) -> None:
        self.disk.delete_before(action.snapshot_id)

    def _do_committed(self, action: acts.Committed) -> None:
        checks = self.world.checks
        for entry in self.disk.entries:
            if self.applied <= entry.base_offset < action.high_watermark:
                checks.applied(self, entry)
                self.chain = data_chain(self.chain, entry)
                self.applied = entry.end_offset
                if checks.chains.get(entry.end_offset) != self.chain:
                    raise Broken("Q5", f"{self.key} has another image at {entry.end_offset}")
        if self.applied != action.high_watermark:
            raise Broken("Q6", f"{self.key} commits {action.high_watermark} inside of a batch")
        self.world.acknowledge(self)
        self._consider_snapshot()

    def _do_leader_changed(self, action: acts.LeaderChanged) -> None:
        self.world.note(f"{self.number} sees leader {action.leader_id} in epoch {action.epoch}")
        self.proposed = {}

    # -- the state machine above ------------------------------------------------------------------

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
        self.disk.snapshots[snapshot_id] = bytes(snapshot_bytes(snapshot_id, start, [image]))
        self.machine.on_snapshot(snapshot_id)
        if self.world.dice.random() < 0.7:
            self.handle(lambda: self.machine.delete_before(snapshot_id))

    def propose(self, value: str) -> None:
        batch = build_batch([Record(0, 0, None, value.encode())])

        def step() -> list[acts.Action]:
            offset, actions = self.machine.propose(batch, self.world.now_ms)
            self.proposed[offset] = (self.machine.epoch, value)
            return actions

        self.handle(step)


_SNAKE = {
    cls.__name__: "".join(f"_{c.lower()}" if c.isupper() else c for c in cls.__name__)[1:]
    for cls in acts.Action.__args__
}


class QuorumWorld:
    """Replicas, a network between them, and a queue of events."""

    def __init__(self, seed: int, *, keeps_trace: bool = False) -> None:
        self.seed = seed
        self.dice = Random(seed)
        self.now_ms = 0
        self.checks = QuorumChecks()
        self.network = Network()
        self.replicas: dict[int, Replica] = {}
        self.bootstrap: list[int] = []
        self.crash_share = 0.0
        self.sync_ms = 5
        self.snapshot_every = 0
        self.snapshot_piece_bytes = 200
        self.fetch_bytes = 4000
        self.speaks_bytes = False
        self.lines: list[str] | None = [] if keeps_trace else None
        self.steps = 0
        self.acknowledged: list[str] = []
        self.admin_answers: dict[int, Message | None] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    # -- building ---------------------------------------------------------------------------------

    def form(self, voters: int, observers: int = 0, **settings: Any) -> None:
        """Format disks: the first replicas are voters, the others know only their servers."""
        numbers = range(1, voters + observers + 1)
        self.bootstrap = list(numbers)
        disks = {number: directory_id(number, 0) for number in numbers}
        machines = [
            Identity(
                ReplicaKey(number, disks[number]),
                CLUSTER,
                (Endpoint("CONTROLLER", str(number), PORT),),
            ).voter
            for number in numbers[:voters]
        ]
        start = SnapshotStart(0, 1, VoterSet(tuple(machines)))
        for number in numbers:
            disk = QuorumDisk(disks[number], start if number <= voters else None)
            self.replicas[number] = replica = Replica(self, number, disk)
            replica.settings = QuorumSettings(**settings)
        self.checks.committed_voters = VoterSet(tuple(machines))

    def start(self) -> None:
        for replica in self.replicas.values():
            replica.start()

    def wipe(self, replica: Replica) -> None:
        """Give a stopped node an empty disk, formatted without voters."""
        assert not replica.is_up
        replica.disks += 1
        replica.disk = QuorumDisk(directory_id(replica.number, replica.disks))

    # -- time -------------------------------------------------------------------------------------

    def at(self, at_ms: int, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (at_ms, self._count, event))

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, event)

    def run(self, until_ms: int, *, until: Callable[[], bool] | None = None) -> bool:
        """Run events up to a time, or until a condition holds; return whether it does."""
        while self._events and self._events[0][0] <= until_ms:
            if until is not None and until():
                return True
            at_ms, _, event = heapq.heappop(self._events)
            self.now_ms = max(at_ms, self.now_ms)
            self.steps += 1
            event()
        self.now_ms = until_ms
        return until is not None and until()

    # -- the network ------------------------------------------------------------------------------

    def _travel(self, sender: int, receiver: int, arrive: Callable[[], None]) -> bool:
        """Carry a message; return False if it is lost."""
        network, dice = self.network, self.dice
        if (sender, receiver) in network.cut:
            return False
        if network.loss_share and dice.random() < network.loss_share:
            return False
        delay_ms = dice.randint(*network.delay_ms)
        if network.late_share and dice.random() < network.late_share:
            delay_ms += dice.randint(1, 1000)
        self.after(delay_ms, arrive)
        return True

    def send_request(self, sender: Replica, action: acts.SendRequest) -> None:
        receiver = self.replicas.get(int(action.node.host))
        token = (sender.number, sender.life, action.correlation_id)
        request, life = self._copy(action.request), sender.life
        if receiver is None:
            return

        def arrive() -> None:
            if not receiver.is_up:
                self._travel(receiver.number, sender.number, refused)
                return
            receiver.deliver(receiver.life, lambda: self._serve(receiver, token, request))

        def refused() -> None:
            def fail() -> None:
                sender.handle(lambda: sender.machine.on_failure(token[2], self.now_ms))
                if sender.is_up:
                    sender.handle(lambda: sender.machine.on_unreachable(action.node, self.now_ms))

            sender.deliver(life, fail)

        self._travel(sender.number, receiver.number, arrive)

    def _serve(self, receiver: Replica, token: Any, request: Message) -> None:
        if isinstance(request, ApiVersionsRequest):
            feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            self.send_response(receiver, token, ApiVersionsResponse(supported_features=[feature]))
            return
        is_vote = isinstance(request, VoteRequest) and not receiver.has_pre_vote
        if is_vote and request.topics[0].partitions[0].pre_vote:
            self._unsupported(receiver, token)
            return
        receiver.requests[token] = request
        receiver.handle(lambda: receiver.machine.on_request(token, request, self.now_ms))

    def _unsupported(self, receiver: Replica, token: Any) -> None:
        sender = self.replicas[token[0]]

        def arrive() -> None:
            sender.deliver(
                token[1],
                lambda: sender.handle(lambda: sender.machine.on_unsupported(token[2], self.now_ms)),
            )

        self._travel(receiver.number, sender.number, arrive)

    def send_response(self, receiver: Replica, token: Any, response: Message) -> None:
        if token[0] == 0:
            self.admin_answers[token[2]] = response
            return
        sender, response = self.replicas[token[0]], self._copy(response)

        def arrive() -> None:
            sender.deliver(
                token[1],
                lambda: sender.handle(
                    lambda: sender.machine.on_response(token[2], response, self.now_ms)
                ),
            )

        self._travel(receiver.number, sender.number, arrive)

    def _copy(self, message: Message) -> Message:
        """Send a message as bytes, in its newest version, in the runs that do so."""
        if not self.speaks_bytes:
            return message
        version = type(message).versions[1]
        return decode(type(message), version, memoryview(encode(message, version)))

    def ask(self, replica: Replica, request: Message) -> int:
        """Send an admin's request; its answer comes to `admin_answers`."""
        number = len(self.admin_answers) + 1
        self.admin_answers[number] = None
        self.note(f"{replica.number} is asked: {type(request).__name__}")
        token = (0, 0, number)
        replica.deliver(
            replica.life,
            lambda: replica.handle(lambda: replica.machine.on_request(token, request, self.now_ms)),
        )
        return number

    # -- observation -----------------------------------------------------------------------------

    @property
    def leader(self) -> Replica | None:
        """The running leader of the highest epoch."""
        leading = [one for one in self.replicas.values() if one.leads]
        return max(leading, key=lambda one: one.machine.epoch, default=None)

    def acknowledge(self, replica: Replica) -> None:
        """Answer the values that are committed in the epoch in which they were proposed."""
        if not isinstance(replica.machine.state, Leader):
            return
        for offset in [one for one in replica.proposed if one < replica.applied]:
            epoch, value = replica.proposed.pop(offset)
            if epoch == replica.machine.epoch:
                self.acknowledged.append(value)

    def trace(self, replica: Replica, action: object) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.now_ms:7} {replica!r} {_short(action)}")

    def note(self, text: str) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.now_ms:7} -- {text}")


def _short(action: object) -> str:
    if isinstance(action, acts.Append):
        entry: Entry = entry_of(action.batch)
        return f"Append {entry.base_offset}..{entry.end_offset} epoch {entry.epoch}"
    return str(action)[:300]
