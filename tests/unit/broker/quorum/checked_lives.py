"""The invariants of the simulated quorum, checked for replicas with their real driver.

Each executed action is mirrored on a disk of the quorum's world, and judged by the same checks: Q1
to Q4, Q6 to Q9, and of Q5 the order of the batches. A life that begins must find everything that
its predecessor had synced.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.broker.quorum.replica_life import ReplicaLife
from ottla.raft import actions as acts
from ottla.raft.election_state import quorum_state_bytes
from ottla.raft.quorum_machine import QuorumMachine
from ottla.raft.snapshots import SnapshotStart
from ottla.raft.voters import ReplicaKey
from ottla.simulation.quorum.checks import InvariantError, QuorumChecks
from ottla.simulation.quorum.disk import QuorumDisk, entry_of, has_entry
from ottla.wire.schema import Message
from tests.unit.broker.quorum.simulated_quorum import PORT, Quorum

if TYPE_CHECKING:
    from ottla.raft.states import State

SNAPSHOT_BYTES_MAX = 1 << 20


class CheckedReplica:
    """One life of a replica, as the checks see it."""

    def __init__(self, checks: QuorumChecks, disk: QuorumDisk, life: ReplicaLife) -> None:
        self.checks, self.disk, self.life = checks, disk, life
        self.led: dict[int, State] = {}
        self.requests: dict[object, Message] = {}
        self.ports = {PORT}
        everyone = dict.fromkeys(life.machine.core.voters.keys, self)
        self.world = SimpleNamespace(replicas={key.id: self for key in everyone})
        self._check_files()
        self.high_watermark_before = self.machine.high_watermark
        self.applied = disk.start_offset
        self._apply()

    @property
    def machine(self) -> QuorumMachine:
        return self.life.machine

    @property
    def key(self) -> ReplicaKey:
        return self.machine.core.key

    def _check_files(self) -> None:
        """Check that the files have everything that was synced, and mirror them."""
        disk, files = self.disk, self.life.files
        start_offset, end_offset = files.log.start_offset, files.log.end_offset
        found = [entry_of(bytes(one.raw)) for one in files.log.read(start_offset, end_offset)]
        for entry in disk.durable:
            if entry.base_offset >= start_offset and not has_entry(found, entry):
                raise InvariantError("Q7", f"{self.key} has lost the synced batch {entry[:3]}")
        if disk.election != files.election:
            raise InvariantError("Q9", f"{self.key} has lost {disk.election}")
        disk.start_offset, disk.entries, disk.durable = start_offset, found, list(found)
        self._mirror_snapshots()

    def _mirror_snapshots(self) -> None:
        snapshots = self.life.files.snapshots
        self.disk.snapshots = {
            one: snapshots.piece(one, 0, SNAPSHOT_BYTES_MAX)[0] for one in snapshots.ids()
        }

    def performed(self, action: acts.Action) -> None:
        """Mirror and check an action that was executed."""
        disk, checks = self.disk, self.checks
        match action:
            case acts.PersistElection():
                ids = [key.id for key in self.machine.core.voters.keys]
                version = self.machine.kraft_version
                disk.quorum_state = quorum_state_bytes(action.state, version, ids)
                checks.persisted(self.key, action.state)
            case acts.Append():
                checks.logged(self, disk.append(action.batch))
            case acts.Truncate():
                disk.truncate(action.end_offset)
                disk.sync(len(disk.unsynced))
                checks.check_durability(is_quick=True)
            case acts.InstallSnapshot() | acts.DeleteBefore():
                disk.start_offset = action.snapshot_id.end_offset
                is_new = isinstance(action, acts.InstallSnapshot)
                kept = [] if is_new else disk.entries
                disk.entries = [one for one in kept if one.base_offset >= disk.start_offset]
                disk.durable = [one for one in disk.durable if one in disk.entries]
                self.applied = max(self.applied, disk.start_offset)
                self._mirror_snapshots()
            case acts.Committed():
                self._apply()
            case acts.SendResponse() | acts.SendRecords():
                request = self.requests.pop(action.token, None)
                checks.answered(self, action, request)
            case _:
                pass

    def _apply(self) -> None:
        for entry in self.disk.entries:
            if self.applied <= entry.base_offset < self.machine.high_watermark:
                self.checks.applied(self, entry)
                self.applied = entry.end_offset

    def synced(self, sync: acts.Sync) -> None:
        disk = self.disk
        if sync.generation == self.machine.core.generation:
            disk.durable = [one for one in disk.entries if one.end_offset <= sync.end_offset]
            disk.unsynced = [one for one in disk.entries if one.end_offset > sync.end_offset]

    def stepped(self) -> None:
        self.checks.stepped(self)
        self.checks.log_changed(self)


class Violations(list[InvariantError]):
    """All violations: the driver takes them as failures of its disk, and ends the life."""

    @contextmanager
    def noted(self) -> Iterator[None]:
        try:
            yield
        except InvariantError as violation:
            self.append(violation)
            raise


def _checked(
    replica: CheckedReplica, perform: Callable[[Any], None], violations: Violations
) -> Callable[[Any], None]:
    def performing(action: Any) -> None:
        perform(action)
        with violations.noted():
            replica.performed(action)

    return performing


@contextmanager
def checked_lives(quorum: Quorum) -> Iterator[QuorumChecks]:
    """Check all lives of the replicas of a quorum; the end raises the first violation."""
    disks = {
        number: QuorumDisk(own.key.directory_id, static_voters=quorum.voters)
        for number, own in quorum.own.items()
    }
    checks = QuorumChecks(disks)
    checks.form(SnapshotStart(0, quorum.kraft_version, quorum.voters))
    start, step, synced = ReplicaLife.start, ReplicaLife._step, ReplicaLife._synced
    replicas: dict[ReplicaLife, CheckedReplica] = {}
    violations = Violations()

    def starting(self: ReplicaLife, committed_offset: int) -> None:
        with violations.noted():
            replica = CheckedReplica(checks, disks[self.machine.core.key.id], self)
        replicas[self] = replica
        self._perform_by_type = {
            kind: _checked(replica, perform, violations)
            for kind, perform in self._perform_by_type.items()
        }
        on_request = self.machine.on_request

        def noting(token: object, request: Message, now_ms: int) -> list[acts.Action]:
            replica.requests[token] = request
            return on_request(token, request, now_ms)

        self.machine.on_request = noting
        start(self, committed_offset)

    def stepping(self: ReplicaLife, event: Callable[[], list[acts.Action]]) -> None:
        step(self, event)
        if not self.is_ended and not self._is_performing:
            with violations.noted():
                replicas[self].stepped()

    def syncing(self: ReplicaLife, sync: acts.Sync) -> list[acts.Action]:
        replicas[self].synced(sync)
        return synced(self, sync)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReplicaLife, "start", starting)
        patch.setattr(ReplicaLife, "_step", stepping)
        patch.setattr(ReplicaLife, "_synced", syncing)
        yield checks
    if violations:
        raise violations[0]
