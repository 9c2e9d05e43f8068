"""A quorum under faults: drawn from a seed, run, healed, and judged.

    python -m tests.simulation.quorum_story --seeds 0:1000

Faults: processes die or lose power, also in the middle of a step; pauses; links and nodes that are
cut off in one or both directions; lost and late messages; lost disks. Meanwhile voters are added,
removed and updated, join by themselves, take snapshots every few records, and some voters do not
know PreVote. Then all faults end, and the quorum must be well again (Q12).
"""

import sys
import traceback
from argparse import ArgumentParser
from dataclasses import dataclass, field
from random import Random

from ottla.raft.states import Follower, Leader
from ottla.raft.voters import ReplicaKey
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from tests.simulation.quorum_checks import Broken
from tests.simulation.quorum_world import CLUSTER, PORT, QuorumWorld, Replica

FAULTS = (
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
CHANGES = ("add", "remove", "update")
FAULTS_MS = 12_000
HEALED_MS = 30_000
"""The limit for an end of all elections and changes after the last fault."""
LOST_MS = 5_000
"""The time until no replica waits for a message that was lost."""
QUIET_MS = 4_000
"""The time that a leader must last when all is well."""


@dataclass(frozen=True)
class Setting:
    """The parameters of a run; a mutant's test can fix parts of it."""

    voters: int = 3
    observers: int = 1
    faults: tuple[str, ...] = FAULTS
    changes: tuple[str, ...] = CHANGES
    fault_pause_ms: int = 700
    snapshot_every: int = 0
    auto_join: bool = False
    old_voters: int = 0
    crash_share: float = 0.0
    write_pause_ms: int = 100
    sync_ms: int = 5
    duration_ms: int = FAULTS_MS

    @classmethod
    def draw(cls, dice: Random) -> "Setting":
        return cls(
            voters=dice.choice((1, 2, 3, 3, 3, 4, 5)),
            observers=dice.choice((0, 1, 1, 2)),
            faults=tuple(one for one in FAULTS if dice.random() < 0.6),
            changes=tuple(one for one in CHANGES if dice.random() < 0.6),
            fault_pause_ms=dice.choice((300, 700, 1500)),
            snapshot_every=dice.choice((0, 5, 20)),
            auto_join=dice.random() < 0.4,
            old_voters=dice.choice((0, 0, 0, 1, 2)),
            crash_share=dice.choice((0.0, 0.0, 0.002, 0.01)),
            write_pause_ms=dice.choice((60, 150, 400)),
            sync_ms=dice.choice((2, 5, 50, 300)),
        )


@dataclass
class Report:
    """The end of a run."""

    seed: int
    setting: Setting
    rule: str = ""
    detail: str = ""
    epochs: int = 0
    committed: int = 0
    voter_sets: int = 0
    acknowledged: int = 0
    steps: int = 0
    lines: list[str] = field(default_factory=list)


class QuorumStory:
    """One run."""

    def __init__(self, world: QuorumWorld, setting: Setting) -> None:
        self.world = world
        self.setting = setting
        self.dice = Random(f"story {world.seed}")
        self.is_over = False
        self.number = 0

    def run(self) -> None:
        world, setting = self.world, self.setting
        world.snapshot_every, world.crash_share = setting.snapshot_every, setting.crash_share
        world.sync_ms = setting.sync_ms
        world.speaks_bytes = world.seed % 16 == 0
        world.form(setting.voters, setting.observers, has_auto_join=setting.auto_join)
        for replica in list(world.replicas.values())[: setting.old_voters]:
            replica.has_pre_vote = False
        world.start()
        self._write()
        self._fault()
        self._change()
        world.run(setting.duration_ms)
        self.is_over = True
        self._heal()
        self._settle()

    # -- work -------------------------------------------------------------------------------------

    def _write(self) -> None:
        if leaders := [one for one in self.world.replicas.values() if _can_write(one)]:
            self.number += 1
            self.dice.choice(leaders).propose(f"{self.number}")
        self.world.after(self.setting.write_pause_ms, self._write)

    def _fault(self) -> None:
        if self.is_over or not self.setting.faults:
            return
        name = self.dice.choice(self.setting.faults)
        self.world.note(f"fault: {name}")
        getattr(self, f"_do_{name}")(self.dice.choice(list(self.world.replicas.values())))
        self.world.after(self._some(self.setting.fault_pause_ms), self._fault)

    def _some(self, mean_ms: int) -> int:
        return int(self.dice.expovariate(1 / mean_ms)) + 1

    def _change(self) -> None:
        if self.is_over or not self.setting.changes:
            return
        name = self.dice.choice(self.setting.changes)
        replica = self.dice.choice(list(self.world.replicas.values()))
        getattr(self, f"_do_{name}")(replica)
        self.world.after(self._some(1000), self._change)

    # -- faults -----------------------------------------------------------------------------------

    def _do_kill(self, replica: Replica) -> None:
        if replica.is_up:
            replica.kill()
            self.world.after(self._some(1000), replica.start_if_down)

    def _do_power(self, replica: Replica) -> None:
        everywhere = self.dice.random() < 0.2
        for one in self.world.replicas.values() if everywhere else [replica]:
            if one.is_up:
                one.kill(has_power=False)
                self.world.after(self._some(1000), one.start_if_down)
        self.world.checks.check_durability(self.world.replicas)

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

    def _do_split(self, replica: Replica) -> None:
        part = {one for one in self.world.replicas if self.dice.random() < 0.5}
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
            link = {(replica.number, self.dice.choice(others))}
            self.world.network.cut |= link
            self.world.after(self._some(3000), lambda: self._join(link))

    def _do_loss(self, replica: Replica) -> None:
        self.world.network.loss_share = self.dice.choice((0.02, 0.2))
        self.world.after(self._some(1000), self._stop_loss)

    def _stop_loss(self) -> None:
        self.world.network.loss_share = 0.0

    def _do_late(self, replica: Replica) -> None:
        self.world.network.late_share = self.dice.choice((0.05, 0.3))
        self.world.after(self._some(1500), self._stop_late)

    def _stop_late(self) -> None:
        self.world.network.late_share = 0.0

    def _do_wipe(self, replica: Replica) -> None:
        """Lose a disk, if the others keep all that is committed."""
        world = self.world
        voters = world.checks.committed_voters
        newest = [world.checks.voters_on(one.disk) for one in world.replicas.values()]
        if any(one and one.keys != voters.keys for one in newest) or len(voters) < 3:
            return  # A change is going on: fewer disks may be needed for the next set's majority.
        others = [key for key in voters.keys if key != replica.key]
        for key in others:
            other = world.replicas[key.id]
            is_same = other.key == key
            # Also batches that only the lost disk has acknowledged: a commit may follow.
            needed = [*world.checks.truth[-1:], *replica.disk.entries[-1:]]
            has_all = all(other.disk.has(entry) for entry in needed)
            if not (is_same and has_all and other.is_up):
                return
        if replica.is_up:
            replica.kill()
        world.wipe(replica)
        world.checks.check_durability(world.replicas)
        world.after(self._some(500), replica.start_if_down)

    # -- changes of the voters --------------------------------------------------------------------

    def _do_add(self, replica: Replica) -> None:
        if (leader := self._somebody_who_leads()) is not None:
            self.world.ask(leader, add_request(replica, is_early=self.dice.random() < 0.5))

    def _do_remove(self, replica: Replica) -> None:
        leader = self._somebody_who_leads()
        if leader is None or leader.is_paused:
            return
        keys = leader.machine.core.voters.keys
        lost = [key for key in keys if self.world.replicas[key.id].key != key]
        if lost:
            # To remove another voter would leave a majority of lost disks.
            self.world.ask(leader, remove_request(lost[0]))
        elif len(keys) > 2 or self.dice.random() < 0.2:
            self.world.ask(leader, remove_request(self.dice.choice(keys)))

    def _do_update(self, replica: Replica) -> None:
        if replica.is_up:
            replica.kill()
            replica.port = PORT + self.dice.randint(0, 5)
            self.world.after(self._some(300), replica.start_if_down)

    def _somebody_who_leads(self) -> Replica | None:
        leaders = [one for one in self.world.replicas.values() if one.leads]
        return self.dice.choice(leaders) if leaders else None

    # -- the end ----------------------------------------------------------------------------------

    def _heal(self) -> None:
        world = self.world
        world.note("all faults end")
        world.crash_share = 0.0
        world.network.cut, world.network.loss_share, world.network.late_share = set(), 0.0, 0.0
        for replica in world.replicas.values():
            replica.resume()
            replica.start_if_down()
        world.checks.check_durability(world.replicas)

    def _settle(self) -> None:
        world = self.world
        if not world.run(world.now_ms + HEALED_MS, until=self._is_well):
            raise Broken("Q12", f"not well after the last fault: {list(world.replicas.values())}")
        # A Fetch that was lost before the end of the faults lets its follower time out now.
        world.run(world.now_ms + LOST_MS)
        if not world.run(world.now_ms + HEALED_MS, until=self._is_well):
            raise Broken("Q12", f"not well for long: {list(world.replicas.values())}")
        before = (world.leader, world.leader and world.leader.machine.epoch)
        count = len(world.acknowledged)
        world.run(world.now_ms + QUIET_MS)
        if (world.leader, world.leader and world.leader.machine.epoch) != before:
            raise Broken("Q12", f"{before} was replaced by {world.leader} without a reason")
        if len(world.acknowledged) == count:
            raise Broken("Q12", "nothing is committed although all is well")
        if not world.run(world.now_ms + 1000, until=self._have_all_caught_up):
            raise Broken("Q12", "a replica does not follow the leader")
        world.checks.check_durability(world.replicas)

    def _is_well(self) -> bool:
        leader = self.world.leader
        if leader is None:
            return False
        state = leader.machine.state
        assert isinstance(state, Leader)
        core = leader.machine.core
        is_stable = state.high_watermark is not None and state.change is None
        if not is_stable or core.history.voters_offset >= state.high_watermark:
            return False
        if core.voters != self.world.checks.committed_voters:
            return False
        return not self._is_joining(leader) and self._have_all_caught_up()

    def _is_joining(self, leader: Replica) -> bool:
        """Whether a replica still has to join, or to update its entry."""
        voters = leader.machine.core.voters
        for replica in self.world.replicas.values():
            known = voters.match(replica.key)
            if known is None and self.setting.auto_join:
                return True
            if known is not None and known != replica.machine.core.identity.voter:
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
    return AddRaftVoterRequest(
        cluster_id=CLUSTER,
        timeout_ms=2000,
        voter_id=replica.number,
        voter_directory_id=replica.disk.directory_id,
        listeners=[Listener(name="CONTROLLER", host=str(replica.number), port=replica.port)],
        ack_when_committed=not is_early,
    )


def remove_request(key: ReplicaKey) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(
        cluster_id=CLUSTER, voter_id=key.id, voter_directory_id=key.directory_id
    )


def run(seed: int, setting: Setting | None = None, *, keeps_trace: bool = False) -> Report:
    """Run one seed, and return its report; `rule` is empty if no invariant was broken."""
    world = QuorumWorld(seed, keeps_trace=keeps_trace)
    drawn = Setting.draw(Random(f"setting {seed}")) if setting is None else setting
    report = Report(seed, drawn)
    try:
        QuorumStory(world, drawn).run()
    except Broken as broken:
        report.rule, report.detail = broken.rule, str(broken)
    except Exception as error:  # noqa: BLE001 - a failed assertion of the machine is a finding
        report.rule = "assertion"
        report.detail = "".join(traceback.format_exception(error)[-3:])
    report.epochs = max(world.checks.leaders, default=0)
    report.committed, report.steps = world.checks.truth_end, world.steps
    report.voter_sets, report.acknowledged = world.checks.sets, len(world.acknowledged)
    report.lines = world.lines or []
    return report


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:1000", help="first:end")
    parser.add_argument("--trace", action="store_true", help="print every action")
    options = parser.parse_args()
    first, end = (int(one) for one in options.seeds.split(":"))
    failed = committed = sets = steps = 0
    for seed in range(first, end):
        report = run(seed, keeps_trace=options.trace)
        committed, sets = committed + report.committed, sets + report.voter_sets
        steps += report.steps
        for line in report.lines:
            print(line)
        if report.rule:
            failed += 1
            print(f"seed {seed}: {report.detail}\n  {report.setting}", flush=True)
    print(
        f"{end - first} runs, {steps} steps, {committed} committed offsets, {sets} voter sets,"
        f" {failed} violations"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
