"""Simulated replicas of the metadata log: virtual time, disks, and a network with faults.

A world of discrete events, without asyncio: a run of half a minute takes a tenth of a second.
Everything follows from the seed.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from ottla.raft import actions as acts
from ottla.raft.settings import QuorumSettings
from ottla.raft.snapshots import SnapshotStart
from ottla.raft.voters import NO_DIRECTORY, Endpoint, ReplicaKey, Voter, VoterSet
from ottla.simulation.quorum.checks import QuorumChecks
from ottla.simulation.quorum.disk import QuorumDisk, entry_of
from ottla.simulation.quorum.replica import LISTENER, PORT, Replica
from ottla.simulation.world.randomness import dice
from ottla.wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from ottla.wire.messages.vote import VoteRequest
from ottla.wire.reading import decode
from ottla.wire.schema import Message
from ottla.wire.writing import encode

_ADMIN: Final = 0
"""The number of the sender of an admin's requests."""
_ACTION_SHOWN_MAX: Final = 300


def directory_id(number: int, disks: int) -> bytes:
    """Return the directory id of a node's disk, after so many lost disks."""
    return number.to_bytes(8, "big") + (disks + 1).to_bytes(8, "big")


@dataclass(slots=True)
class Links:
    """Delays and faults of messages."""

    delay_ms: tuple[int, int] = (1, 10)
    late_share: float = 0.0
    """The share of messages that are late by up to a second, and so overtaken."""
    loss_share: float = 0.0
    cut: set[tuple[int, int]] = field(default_factory=set)
    """Links that lose everything, by sender and receiver."""
    hurt_ms: dict[tuple[int, int], int] = field(default_factory=dict)
    """By link, the time of the last message that was lost or late."""


class QuorumWorld:
    """Replicas, a network between them, and a queue of events."""

    def __init__(self, seed: int, *, keeps_lines: bool = False) -> None:
        self.seed = seed
        self.dice = dice(seed, "quorum")
        self.now_ms = 0
        self.disks: dict[int, QuorumDisk] = {}
        self.checks = QuorumChecks(self.disks)
        self.network = Links()
        self.replicas: dict[int, Replica] = {}
        self.bootstrap: list[int] = []
        self.crash_share = 0.0
        self.sync_ms = 5
        self.snapshot_every = 0
        self.snapshot_piece_bytes = 200
        self.fetch_bytes = 4000
        self.speaks_bytes = False
        self.steps = 0
        self.digest = 0
        """Equal for equal runs."""
        self.lines: list[str] | None = [] if keeps_lines else None
        self.acknowledged: list[str] = []
        self.admin_answers: dict[int, Message | None] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    # -- building ---------------------------------------------------------------------------------

    def form(
        self, voters: int, observers: int = 0, *, kraft_version: int = 1, **settings: Any
    ) -> None:
        """Format disks: the first replicas are voters, the others know only their servers.

        With kraft.version 0 all replicas know the voters from their settings.
        """
        numbers = range(1, voters + observers + 1)
        self.bootstrap = list(numbers)
        keys = [
            ReplicaKey(number, directory_id(number, 0) if kraft_version else NO_DIRECTORY)
            for number in numbers[:voters]
        ]
        first = VoterSet(
            tuple(Voter(key, (Endpoint(LISTENER, str(key.id), PORT),)) for key in keys)
        )
        start = SnapshotStart(0, kraft_version, first)
        self.checks.form(start)
        for number in numbers:
            own_id = directory_id(number, 0)
            if kraft_version == 0:
                self.disks[number] = QuorumDisk(own_id, static_voters=first)
            else:
                self.disks[number] = QuorumDisk(own_id, start if number <= voters else None)
            self.replicas[number] = Replica(self, number, QuorumSettings(**settings))

    def start(self) -> None:
        """Start all replicas."""
        for replica in self.replicas.values():
            replica.start()

    def wipe(self, replica: Replica) -> None:
        """Give a stopped node an empty disk, formatted without voters."""
        assert not replica.is_up, "only the disk of a stopped node can be changed"
        replica.disks_lost += 1
        self.disks[replica.number] = QuorumDisk(directory_id(replica.number, replica.disks_lost))

    # -- time -------------------------------------------------------------------------------------

    def at(self, at_ms: int, event: Callable[[], None]) -> None:
        """Let an event happen at a time."""
        self._count += 1
        heapq.heappush(self._events, (at_ms, self._count, event))

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        """Let an event happen later."""
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

    def _travel(self, sender: int, receiver: int, arrive: Callable[[], None]) -> None:
        """Carry a message, or lose it."""
        network, stream = self.network, self.dice
        is_cut = (sender, receiver) in network.cut
        if is_cut or (network.loss_share and stream.random() < network.loss_share):
            network.hurt_ms[sender, receiver] = self.now_ms
            return
        delay_ms = stream.randint(*network.delay_ms)
        if network.late_share and stream.random() < network.late_share:
            delay_ms += stream.randint(1, 1000)
            network.hurt_ms[sender, receiver] = self.now_ms
        self.after(delay_ms, arrive)

    def send_request(self, sender: Replica, action: acts.SendRequest) -> None:
        """Carry a request; a node without a process refuses the connection."""
        receiver = self.replicas.get(int(action.node.host))
        if receiver is None:
            return
        token = (sender.number, sender.life, action.correlation_id)
        request, life = self._copy(action.request), sender.life

        def arrive() -> None:
            if receiver.is_up and action.node.port in receiver.ports:
                receiver.deliver(receiver.life, lambda: self._serve(receiver, token, request))
            else:
                self._travel(receiver.number, sender.number, refused)

        def refused() -> None:
            sender.deliver(life, fail)

        def fail() -> None:
            sender.handle(lambda: sender.machine.on_failure(token[2], self.now_ms))
            if sender.is_up:
                sender.handle(lambda: sender.machine.on_unreachable(action.node, self.now_ms))

        self._travel(sender.number, receiver.number, arrive)

    def _serve(self, receiver: Replica, token: tuple[int, int, int], request: Message) -> None:
        if isinstance(request, ApiVersionsRequest):
            feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
            self.send_response(receiver, token, ApiVersionsResponse(supported_features=[feature]))
            return
        is_pre_vote = isinstance(request, VoteRequest) and request.topics[0].partitions[0].pre_vote
        if is_pre_vote and not receiver.has_pre_vote:
            self._answer(receiver, token, lambda one: one.on_unsupported(token[2], self.now_ms))
            return
        receiver.requests[token] = request
        receiver.handle(lambda: receiver.machine.on_request(token, request, self.now_ms))

    def send_response(self, receiver: Replica, token: Any, response: Message) -> None:
        """Carry a response to the sender of its request."""
        if token[0] == _ADMIN:
            self.admin_answers[token[2]] = response
            return
        copy = self._copy(response)
        self._answer(receiver, token, lambda one: one.on_response(token[2], copy, self.now_ms))

    def _answer(
        self,
        receiver: Replica,
        token: tuple[int, int, int],
        step: Callable[[Any], list[acts.Action]],
    ) -> None:
        sender = self.replicas[token[0]]

        def arrive() -> None:
            sender.deliver(token[1], lambda: sender.handle(lambda: step(sender.machine)))

        self._travel(receiver.number, sender.number, arrive)

    def _copy(self, message: Message) -> Message:
        """Send a message as bytes, in its newest version, in the runs that do so."""
        if not self.speaks_bytes:
            return message
        version = type(message).versions[1]
        return decode(type(message), version, memoryview(encode(message, version)))

    def ask(self, replica: Replica, request: Message) -> int:
        """Send an admin's request; its answer comes to `admin_answers` under this number."""
        number = len(self.admin_answers) + 1
        self.admin_answers[number] = None
        self.note(f"{replica.number} is asked: {type(request).__name__}")
        token = (_ADMIN, 0, number)

        def serve() -> None:
            replica.requests[token] = request
            replica.handle(lambda: replica.machine.on_request(token, request, self.now_ms))

        replica.deliver(replica.life, serve)
        return number

    # -- observation -----------------------------------------------------------------------------

    @property
    def leader(self) -> Replica | None:
        """The running leader of the highest epoch."""
        leading = [one for one in self.replicas.values() if one.leads]
        return max(leading, key=lambda one: one.machine.epoch, default=None)

    def trace(self, replica: Replica, action: acts.Action) -> None:
        """Add an action to the digest, and to the kept lines."""
        event = f"{self.now_ms} {replica.number} {type(action).__name__}"
        self.digest = crc32(event.encode(), self.digest)
        if self.lines is not None:
            self.lines.append(f"{self.now_ms:7} {replica!r} {_shown(action)}")

    def note(self, text: str) -> None:
        """Keep a line about an event."""
        if self.lines is not None:
            self.lines.append(f"{self.now_ms:7} -- {text}")


def _shown(action: acts.Action) -> str:
    if isinstance(action, acts.Append):
        entry = entry_of(action.batch)
        return f"Append {entry.base_offset}..{entry.end_offset} epoch {entry.epoch}"
    return str(action)[:_ACTION_SHOWN_MAX]
