"""A quorum under faults: drawn from a seed, run, healed, and judged.

Faults: processes die or lose power, also in the middle of a step; pauses; links and nodes that are
cut off in one or both directions; lost and late messages; lost disks; wrong addresses. Meanwhile
voters are added, removed and moved, join by themselves, take snapshots every few records, and some
voters do not know PreVote. Then all faults end, and the quorum must be well again (Q12).
"""

import traceback
from collections import Counter
from dataclasses import dataclass
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final

from ottla.model.api_error import ApiError
from ottla.raft.actions import Action
from ottla.raft.states import Follower, Leader
from ottla.raft.voters import NO_DIRECTORY, ReplicaKey
from ottla.simulation.checks.checkers import Violation
from ottla.simulation.checks.history import Outcome
from ottla.simulation.quorum.checks import InvariantError
from ottla.simulation.quorum.leader_watch import LeaderWatch
from ottla.simulation.quorum.replica import CLUSTER, LISTENER, PORT, Replica
from ottla.simulation.quorum.world import QuorumWorld
from ottla.simulation.stories.report import Report
from ottla.simulation.world.randomness import dice
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest

FAULTS: Final = (
    "kill",
    "power",
    "pause",
    "isolate",
    "one_way",
    "split",
    "stop",
    "wipe",
    "loss",
    "late",
)
CHANGES: Final = ("add", "remove", "update", "mistake", "upgrade")
WRONG_PORT: Final = PORT - 1
"""No node accepts connections there."""
SECONDS: Final = 12.0
LED_MS: Final = 10_000
"""After the last fault a leader commits within ten election timeouts."""
HEALED_MS: Final = 30_000
"""After the last fault all changes of the voters end: each takes a few fetch timeouts."""
LOST_MS: Final = 5_000
"""The time until no replica waits for a message that was lost."""
QUIET_MS: Final = 4_000
"""The time that a leader must last when all is well."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The parameters of a run."""

    voters: int = 3
    observers: int = 1
    faults: tuple[str, ...] = FAULTS
    changes: tuple[str, ...] = CHANGES
    fault_pause_ms: int = 700
    change_pause_ms: int = 700
    snapshot_every: int = 0
    has_auto_join: bool = False
    old_voters: int = 0
    """The number of voters without PreVote."""
    kraft_version: int = 1
    bootstrap: int = 0
    """The number of bootstrap servers, which are voters and keep their disks; 0 for all nodes."""
    crash_share: float = 0.0
    write_pause_ms: int = 100
    sync_ms: int = 5

    @classmethod
    def draw(cls, stream: Random) -> "Setting":
        """Draw all parameters."""
        return cls(
            voters=stream.choice((1, 2, 3, 3, 3, 4, 5)),
            observers=stream.choice((0, 1, 1, 2)),
            faults=tuple(one for one in FAULTS if stream.random() < 0.6),
            changes=tuple(one for one in CHANGES if stream.random() < 0.6),
            fault_pause_ms=stream.choice((300, 700, 1500)),
            change_pause_ms=stream.choice((200, 500, 1500)),
            snapshot_every=stream.choice((0, 5, 20)),
            has_auto_join=stream.random() < 0.4,
            old_voters=stream.choice((0, 0, 0, 1, 2)),
            kraft_version=stream.choice((0, 1, 1, 1, 1)),
            bootstrap=stream.choice((0, 0, 0, 1, 2)),
            crash_share=stream.choice((0.0, 0.0, 0.002, 0.01)),
            write_pause_ms=stream.choice((60, 150, 400)),
            sync_ms=stream.choice((2, 5, 50, 300)),
        )


class QuorumStory:
    """One run."""

    def __init__(self, world: QuorumWorld, setting: Setting) -> None:
        self.world = world
        self.setting = setting
        self.faults: Counter[str] = Counter()
        self._dice = dice(world.seed, "story")
        self._is_over = False
        self._number = 0

    def run(self, seconds: float) -> None:
        """Run for this time with faults, heal, and judge; InvariantError names the violation."""
        world, setting = self.world, self.setting
        world.snapshot_every, world.crash_share = setting.snapshot_every, setting.crash_share
        world.sync_ms = setting.sync_ms
        world.speaks_bytes = world.seed % 16 == 0
        world.form(
            setting.voters,
            setting.observers,
            kraft_version=setting.kraft_version,
            has_auto_join=setting.has_auto_join,
        )
        if setting.bootstrap:
            count = min(setting.bootstrap, setting.voters)
            world.bootstrap = self._dice.sample(range(1, setting.voters + 1), count)
        for replica in list(world.replicas.values())[: setting.old_voters]:
            replica.has_pre_vote = False
        world.start()
        if not setting.old_voters:
            LeaderWatch(world).begin()
        self._write()
        self._fault()
        self._change()
        world.run(round(seconds * 1000))
        self._is_over = True
        self._heal()
        self._settle()

    # -- work -------------------------------------------------------------------------------------

    def _write(self) -> None:
        if leaders := [one for one in self.world.replicas.values() if _can_write(one)]:
            self._number += 1
            self._dice.choice(leaders).propose(f"{self._number}")
        self.world.after(self.setting.write_pause_ms, self._write)

    def _fault(self) -> None:
        if self._is_over or not self.setting.faults:
            return
        self._do(self._dice.choice(self.setting.faults))
        self.world.after(self._some(self.setting.fault_pause_ms), self._fault)

    def _change(self) -> None:
        if self._is_over or not self.setting.changes:
            return
        self._do(self._dice.choice(self.setting.changes))
        self.world.after(self._some(self.setting.change_pause_ms), self._change)

    def _do(self, name: str) -> None:
        self.faults[name] += 1
        self.world.note(f"fault: {name}")
        replica = self._dice.choice(list(self.world.replicas.values()))
        getattr(self, f"_do_{name}")(replica)

    def _some(self, mean_ms: int) -> int:
        return int(self._dice.expovariate(1 / mean_ms)) + 1

    # -- faults -----------------------------------------------------------------------------------

    def _do_kill(self, replica: Replica) -> None:
        if replica.is_up:
            replica.kill()
            self.world.after(self._some(1000), replica.start_if_down)

    def _do_power(self, replica: Replica) -> None:
        is_everywhere = self._dice.random() < 0.2
        for one in self.world.replicas.values() if is_everywhere else [replica]:
            if one.is_up:
                one.kill(has_power=False)
                self.world.after(self._some(1000), one.start_if_down)
        self.world.checks.check_durability()

    def _do_stop(self, replica: Replica) -> None:
        if replica.is_up and not replica.is_paused:
            replica.stop()
            self.world.after(200 + self._some(1000), replica.start_if_down)

    def _do_pause(self, replica: Replica) -> None:
        if replica.is_up:
            replica.is_paused = True
            self.world.after(self._some(1500), replica.resume)

    def _do_isolate(self, replica: Replica) -> None:
        others = [one for one in self.world.replicas if one != replica.number]
        self._cut({(replica.number, one) for one in others})

    def _do_split(self, _: Replica) -> None:
        part = {one for one in self.world.replicas if self._dice.random() < 0.5}
        rest = set(self.world.replicas) - part
        self._cut({(one, other) for one in part for other in rest})

    def _cut(self, links: set[tuple[int, int]]) -> None:
        links = links | {(two, one) for one, two in links}
        self.world.network.cut |= links
        self.world.after(self._some(2000), lambda: self._join(links))

    def _join(self, links: set[tuple[int, int]]) -> None:
        self.world.network.cut -= links

    def _do_one_way(self, replica: Replica) -> None:
        others = [one for one in self.world.replicas if one != replica.number]
        if others:
            link = {(replica.number, self._dice.choice(others))}
            self.world.network.cut |= link
            self.world.after(self._some(3000), lambda: self._join(link))

    def _do_loss(self, _: Replica) -> None:
        self.world.network.loss_share = self._dice.choice((0.02, 0.2))
        self.world.after(self._some(1000), self._stop_loss)

    def _stop_loss(self) -> None:
        self.world.network.loss_share = 0.0

    def _do_late(self, _: Replica) -> None:
        self.world.network.late_share = self._dice.choice((0.05, 0.3))
        self.world.after(self._some(1500), self._stop_late)

    def _stop_late(self) -> None:
        self.world.network.late_share = 0.0

    def _do_wipe(self, replica: Replica) -> None:
        """Lose a disk, if the others keep all that is committed."""
        world = self.world
        if self.setting.bootstrap and replica.number in world.bootstrap:
            return
        voters = world.checks.committed_voters
        newest = [world.checks.voters_on(disk) for disk in world.disks.values()]
        if any(one and one.keys != voters.keys for one in newest) or len(voters) < 3:
            return  # A change is going on: fewer disks may be needed for the next set's majority.
        if any(key.directory_id == NO_DIRECTORY for key in voters.keys):
            return  # With kraft.version 0, a voter with an empty disk votes, as in Kafka.
        # Also batches that only the lost disk has acknowledged: a commit may follow.
        needed = [*world.checks.truth[-1:], *replica.disk.entries[-1:]]
        for key in voters.keys:
            disk = world.checks.disk_of(key)
            is_kept = disk is not None and all(disk.has(entry) for entry in needed)
            if key != replica.key and not (is_kept and world.replicas[key.id].is_up):
                return
        if replica.is_up:
            replica.kill()
        world.wipe(replica)
        world.checks.check_durability()
        world.after(self._some(500), replica.start_if_down)

    # -- changes of the voters --------------------------------------------------------------------

    def _do_add(self, replica: Replica) -> None:
        if (leader := self._any_leader()) is not None:
            self.world.ask(leader, add_request(replica, is_early=self._dice.random() < 0.5))

    def _do_remove(self, _: Replica) -> None:
        leader = self._any_leader()
        if leader is None or leader.is_paused:
            return
        keys = leader.machine.core.voters.keys
        lost = [key for key in keys if self.world.checks.disk_of(key) is None]
        if lost:
            # To remove another voter would leave a majority of lost disks.
            self.world.ask(leader, remove_request(lost[0]))
        elif len(keys) > 2 or self._dice.random() < 0.2:
            self.world.ask(leader, remove_request(self._dice.choice(keys)))

    def _do_update(self, replica: Replica) -> None:
        """Move a replica to another port; its former ports stay open."""
        port = PORT + self._dice.randint(0, 5)
        replica.ports.add(port)
        self._advertise(replica, port)

    def _do_mistake(self, replica: Replica) -> None:
        """Let a replica advertise a wrong address for some time."""
        self._advertise(replica, WRONG_PORT)
        self.world.after(self._some(4000), lambda: self._correct(replica))

    def _correct(self, replica: Replica) -> None:
        if replica.port == WRONG_PORT:
            self._advertise(replica, PORT)

    def _advertise(self, replica: Replica, port: int) -> None:
        if replica.is_up:
            replica.kill()
            self.world.after(self._some(300), replica.start_if_down)
        replica.port = port

    def _do_upgrade(self, _: Replica) -> None:
        leader = self._any_leader()
        if leader is not None and not leader.is_paused:
            self._upgrade(leader)

    def _upgrade(self, leader: Replica) -> bool:
        """Raise kraft.version to 1; return False if the leader refuses."""

        def step() -> list[Action]:
            return leader.machine.upgrade_kraft_version(
                1, is_validated_only=False, now_ms=self.world.now_ms
            )[1]

        try:
            leader.handle(step)
        except ApiError:
            return False
        return True

    def _any_leader(self) -> Replica | None:
        leaders = [one for one in self.world.replicas.values() if one.leads]
        return self._dice.choice(leaders) if leaders else None

    # -- the end ----------------------------------------------------------------------------------

    def _heal(self) -> None:
        world = self.world
        world.note("all faults end")
        world.crash_share = 0.0
        world.network.cut, world.network.loss_share, world.network.late_share = set(), 0.0, 0.0
        for replica in world.replicas.values():
            replica.resume()
            self._correct(replica)
            replica.start_if_down()
        world.checks.check_durability()

    def _settle(self) -> None:
        world = self.world
        committed, end_ms = world.checks.truth_end, world.now_ms + HEALED_MS
        if not world.run(world.now_ms + LED_MS, until=lambda: world.checks.truth_end > committed):
            raise InvariantError("Q12", f"no commit in {LED_MS} ms: {[*world.replicas.values()]}")
        self._require_well(end_ms)
        if "upgrade" in self.setting.changes:
            self._require_upgrade()
        # A Fetch that was lost before the end of the faults lets its follower time out now.
        world.run(world.now_ms + LOST_MS)
        self._require_well(world.now_ms + HEALED_MS)
        before = (world.leader, world.leader and world.leader.machine.epoch)
        count = len(world.acknowledged)
        world.run(world.now_ms + QUIET_MS)
        if (world.leader, world.leader and world.leader.machine.epoch) != before:
            raise InvariantError("Q12", f"{before} was replaced by {world.leader} without a reason")
        if len(world.acknowledged) == count:
            raise InvariantError("Q12", "nothing is committed although all is well")
        if not world.run(world.now_ms + 1000, until=self._have_all_caught_up):
            raise InvariantError("Q12", "a replica does not follow the leader")
        world.checks.check_durability()

    def _require_well(self, end_ms: int) -> None:
        world = self.world
        if not world.run(end_ms, until=self._is_well):
            raise InvariantError("Q12", f"not well for long: {list(world.replicas.values())}")

    def _require_upgrade(self) -> None:
        """Upgrade kraft.version: each voter has told the leader its entry."""
        world = self.world
        if not world.run(world.now_ms + HEALED_MS, until=self._has_upgraded):
            raise InvariantError("Q12", "kraft.version cannot be upgraded although all is well")
        self._require_well(world.now_ms + HEALED_MS)

    def _has_upgraded(self) -> bool:
        leader = self.world.leader
        return leader is not None and self._upgrade(leader)

    def _is_well(self) -> bool:
        leader = self.world.leader
        if leader is None:
            return False
        state, core = leader.machine.state, leader.machine.core
        assert isinstance(state, Leader), state
        is_stable = state.high_watermark is not None and state.change is None
        if not is_stable or core.history.voters_offset >= core.high_watermark:
            return False
        if core.voters != self.world.checks.committed_voters or self._is_joining(leader):
            return False
        return self._have_all_caught_up()

    def _is_joining(self, leader: Replica) -> bool:
        """Whether a replica still has to join, or to update its entry."""
        voters = leader.machine.core.voters
        if leader.machine.kraft_version == 0:
            return False
        for replica in self.world.replicas.values():
            known = voters.voter(replica.number)
            is_voter = known is not None and known.key == replica.key
            if not is_voter and self.setting.has_auto_join:
                return True
            if is_voter and known != replica.machine.core.identity.voter:
                return True
        return False

    def _have_all_caught_up(self) -> bool:
        leader = self.world.leader
        if leader is None:
            return False
        epoch = leader.machine.epoch
        mark = leader.machine.high_watermark - 40
        return all(
            replica.machine.epoch == epoch
            and replica.machine.high_watermark >= mark
            and (replica is leader or isinstance(replica.machine.state, Follower))
            for replica in self.world.replicas.values()
        )


def _can_write(replica: Replica) -> bool:
    return replica.leads and not replica.is_paused


def add_request(replica: Replica, *, is_early: bool = False) -> AddRaftVoterRequest:
    """Ask for this replica as a voter; early is before the change is committed."""
    return AddRaftVoterRequest(
        cluster_id=CLUSTER,
        timeout_ms=2000,
        voter_id=replica.number,
        voter_directory_id=replica.disk.directory_id,
        listeners=[Listener(name=LISTENER, host=str(replica.number), port=replica.port)],
        ack_when_committed=not is_early,
    )


def remove_request(key: ReplicaKey) -> RemoveRaftVoterRequest:
    """Ask for the end of a voter."""
    return RemoveRaftVoterRequest(
        cluster_id=CLUSTER, voter_id=key.id, voter_directory_id=key.directory_id
    )


def run(
    seed: int,
    *,
    seconds: float = SECONDS,
    setting: Setting | None = None,
    keeps_lines: bool = False,
) -> Report:
    """Run one seed, and report it; without a setting, the seed draws one."""
    world = QuorumWorld(seed, keeps_lines=keeps_lines)
    drawn = Setting.draw(dice(seed, "setting")) if setting is None else setting
    story = QuorumStory(world, drawn)
    violations = []
    try:
        story.run(seconds)
    except InvariantError as error:
        violations.append(Violation(error.rule, f"{error} with {drawn}"))
    except Exception as error:  # noqa: BLE001 - a failed assertion of the machine is a finding
        trace = "".join(traceback.format_exception(error)[-3:])
        violations.append(Violation("assertion", f"{trace} with {drawn}"))
    return Report(
        seed=seed,
        digest=f"{world.digest:08x}",
        simulated_seconds=world.now_ms / 1000,
        steps=world.steps,
        setting=drawn,
        faults=story.faults,
        sent={Outcome.OK: len(world.acknowledged)},
        read_count=world.checks.applied_count,
        committed_count=len(world.checks.truth),
        violations=violations,
        news=[f"{max(world.checks.leaders, default=0)} epochs, {world.checks.sets} voter sets"],
        lines=world.lines or [],
    )
