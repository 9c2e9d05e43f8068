"""Scripted simulations: a file names the faults of a cluster, their times and their targets.

    brokers = 3

    [[step]]
    at = 1.0                  seconds after the beginning; without it, at once
    do = "kill"               one of `ACTS`
    target = "leader"         a role at that moment, a given name, or a machine
    name = "old leader"       its name in later steps

    [expect]
    acknowledged = 50         so many values at least
    leader_epochs = 2         so many leaders at least, one after the other

Clients write, read and commit all the time. In the end all faults stop, and all checks of a cluster
run are made.
"""

import posixpath
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.broker.coordinators.transaction_state_topic import partition_of_transaction
from ottla.machines.transactions.transaction import PREPARED, State
from ottla.metadata.image import PartitionImage
from ottla.model.identifiers import FIRST_OFFSET
from ottla.model.topic_names import TRANSACTION_STATE_TOPIC
from ottla.replication.partition import Partition
from ottla.simulation.checks.checkers import Violation
from ottla.simulation.checks.history import Outcome
from ottla.simulation.stories.cluster_story import BROKERS, ClusterStory, Setting
from ottla.simulation.stories.report import Report
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.zookeeper import MACHINE as ZOOKEEPER

WAIT_SECONDS_MAX: Final = 60.0
LOOK_SECONDS: Final = 0.001
END_SECONDS: Final = 2.0
"""How long clients go on after the last step."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happens."""

    do: str
    at: float = 0.0
    target: str = ""
    to: str = ""
    """The other end of a connection, if the step needs one."""
    name: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """The content of a file."""

    title: str
    steps: tuple[Step, ...]
    seed: int = 1
    brokers: int = BROKERS
    transactional_ids: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    acknowledged: int = 1
    leader_epochs: int = 1


def parse(text: str) -> Scenario:
    """Parse a file; ValueError names the fault."""
    found: dict[str, Any] = tomllib.loads(text)
    expected = found.pop("expect", {})
    try:
        steps = tuple(Step(**one) for one in found.pop("step"))
        scenario = Scenario(steps=steps, **found, **expected)
    except (TypeError, KeyError) as error:
        raise ValueError(f"not a scenario: {error}") from error
    for step in steps:
        if step.do not in ACTS and step.do not in CONDITIONS:
            raise ValueError(f"{step.do!r} is none of {sorted([*ACTS, *CONDITIONS])}")
    return scenario


def run(scenario: Scenario, seed: int | None = None, *, keeps_lines: bool = False) -> Report:
    """Tell a story, and check everything."""
    setting = Setting(
        brokers=scenario.brokers,
        partitions=1,
        transactional_ids=scenario.transactional_ids,
        has_operator=False,
        settings=tuple(scenario.settings.items()),
    )
    story = ClusterStory(scenario.seed if seed is None else seed, setting, keeps_lines=keeps_lines)
    teller = _Teller(story, scenario)
    report = story.run(teller.tell)
    report.violations.extend(teller.disappointments(report))
    return report


class _Teller:
    def __init__(self, story: ClusterStory, scenario: Scenario) -> None:
        self.story = story
        self._scenario = scenario
        self.delay_by_way: dict[tuple[str, str], float] = {}
        """The former delays of slowed connections."""
        self._names: dict[str, str] = {}
        self._late: list[str] = []
        self._epochs = 0

    async def tell(self) -> None:
        """Let one step after the other happen, and then let everything heal."""
        world = self.story.world
        began = world.loop.time()
        for step in self._scenario.steps:
            await world.elapse(max(0.0, began + step.at - world.loop.time()))
            self._call(step)
            if step.do in CONDITIONS:
                await self._wait(step)
            else:
                world.trace.note(world.loop.time(), step.do, self.machine(step.target).name)
                ACTS[step.do](self, step)
        await world.elapse(END_SECONDS)
        self._epochs = self.partition().leader_epoch + 1
        self._heal()

    def disappointments(self, report: Report) -> list[Violation]:
        """Return the unmet expectations."""
        acknowledged = report.sent.get(Outcome.OK, 0)
        wanted = self._scenario
        told = list(self._late)
        if acknowledged < wanted.acknowledged:
            told.append(f"{acknowledged} values are acknowledged, not {wanted.acknowledged}")
        if self._epochs < wanted.leader_epochs:
            told.append(f"{self._epochs} leaders, not {wanted.leader_epochs}")
        return [Violation("expectation", one) for one in told]

    # -- roles ----------------------------------------------------------------------------------

    def partition(self) -> PartitionImage:
        """Return the clients' partition, from the committed metadata."""
        return self.story.truth.topics[self.story.workload.partitions[0].topic].partitions[0]

    def machine(self, target: str) -> Machine:
        """Return the machine of a role, of a given name, or of its own."""
        return self.story.world.machine(self._resolve(target))

    def coordinator(self) -> int:
        """Return the coordinator of the first transactional id, from the committed metadata."""
        topic = self.story.truth.topics[TRANSACTION_STATE_TOPIC]
        index = partition_of_transaction(self.story.transactions.ids[0], len(topic.partitions))
        return topic.partitions[index].leader

    def transaction(self) -> State:
        """Return the durable state of the first transactional id."""
        found = self.story.transaction_rules.transactions.get(self.story.transactions.ids[0])
        return State.EMPTY if found is None else found.state

    def replica(self, target: str) -> Partition | None:
        """Return a machine's replica of the clients' partition, if the machine is up."""
        broker = self.story.broker(self.machine(target).name)
        return None if broker is None else broker.partitions.find(self.story.workload.partitions[0])

    def _resolve(self, target: str) -> str:
        state, names = self.partition(), self.story.names
        followers = [one for one in state.replicas if one != state.leader]
        followers.sort(key=lambda one: names[one] not in self.story.controllers())
        if target == "leader":
            return names[state.leader]
        if target in {"follower", "other follower"}:
            return names[followers[target != "follower"]]
        if target == "controller":
            return self.story.controllers()[0]
        if target == "coordinator":
            return names[self.coordinator()]
        return self._names.get(target, target)

    def _call(self, step: Step) -> None:
        if step.name:
            self._names[step.name] = self._resolve(step.target)

    def way(self, step: Step) -> tuple[str, str]:
        """Return source and target of a connection."""
        return self._resolve(step.target), self._resolve(step.to)

    # -- waiting --------------------------------------------------------------------------------

    async def _wait(self, step: Step) -> None:
        world = self.story.world
        until = world.loop.time() + WAIT_SECONDS_MAX
        while not CONDITIONS[step.do](self, step):
            if world.loop.time() > until:
                self._late.append(f"{step.do} {step.target}: not within {WAIT_SECONDS_MAX} s")
                return
            await world.elapse(LOOK_SECONDS)

    # -- the end --------------------------------------------------------------------------------

    def _heal(self) -> None:
        world, ends = self.story.world, [*self.story.world.machines, ZOOKEEPER]
        for way in [(one, other) for one in ends for other in ends if one != other]:
            if world.network.link(*way).is_blocked:
                world.network.unblock(*way)
        for way, delay_seconds in self.delay_by_way.items():
            world.network.link(*way).delay_seconds = delay_seconds
        for name in self.story.names:
            machine = world.machine(name)
            machine.disk.faults.heal()
            if not machine.is_running:
                self.story.start(machine)
            elif machine.process is not None and machine.process.is_paused:
                machine.resume()

    def excuse(self, machine: Machine) -> None:
        """Let a machine complain."""
        assert self.story.complaints is not None
        self.story.complaints.excused.add(machine.name)


def _cut_power(teller: _Teller, step: Step) -> None:
    teller.machine(step.target).cut_power("lose_all")


def _break_directory(teller: _Teller, step: Step) -> None:
    machine = teller.machine(step.target)
    broker = teller.story.broker(machine.name)
    assert broker is not None, f"{machine.name} is not up"
    log = broker.partitions.get(teller.story.workload.partitions[0]).log
    teller.excuse(machine)
    machine.disk.faults.fail_on(OperationKind.WRITE, under=posixpath.dirname(log.directory))


def _rot(teller: _Teller, step: Step) -> None:
    """Flip a bit in a record of the first segment, which is closed: nothing tells the broker."""
    found = teller.replica(step.target)
    assert found is not None, f"{step.target} is not up"
    segment = next(iter(found.log.segments))
    teller.excuse(teller.machine(step.target))
    teller.machine(step.target).disk.flip_bit(segment.path, segment.size_bytes - 1, 0)


def _slow(teller: _Teller, step: Step) -> None:
    way = teller.way(step)
    link = teller.story.world.network.link(*way)
    teller.delay_by_way.setdefault(way, link.delay_seconds)
    link.delay_seconds = step.seconds


def _hold(teller: _Teller, step: Step) -> None:
    network = teller.story.world.network
    for connected in network.connections(teller.machine(step.target).name):
        network.hold(connected, step.seconds)


def _jump(teller: _Teller, step: Step) -> None:
    teller.machine(step.target).clock.skew_ms += round(step.seconds * 1000)


def _is_open(teller: _Teller, _: Step) -> bool:
    """Tell whether the first transaction is open, and there is something of it."""
    found = teller.replica("leader")
    is_begun = found and found.last_stable_offset < found.high_watermark
    return bool(is_begun) and teller.transaction() is State.ONGOING


def _is_coordinated_by_another(teller: _Teller, step: Step) -> bool:
    coordinator = teller.coordinator()
    return coordinator >= 0 and teller.story.names[coordinator] != teller.machine(step.target).name


def _is_rolled(teller: _Teller, step: Step) -> bool:
    found = teller.replica(step.target)
    return found is not None and len(found.log.segments) > 1


def _is_damaged(teller: _Teller, step: Step) -> bool:
    """Tell whether a replica is known to have lost something."""
    found = teller.replica(step.target)
    return found is not None and bool(found.log.segments.damaged_from(FIRST_OFFSET))


def _is_proposed(teller: _Teller, step: Step) -> bool:
    """Return whether a leader waits for the response to an ISR expansion."""
    found = teller.replica("leader")
    return bool(found and found.in_sync and _id(teller, step) in (found.in_sync.proposed or ()))


def _is_outrun(teller: _Teller, step: Step) -> bool:
    """Return whether a replica lacks committed records."""
    leader, outrun = teller.replica("leader"), teller.replica(step.target)
    assert leader is not None
    assert outrun is not None
    return leader.high_watermark > outrun.log.end_offset


def _id(teller: _Teller, step: Step) -> int:
    return teller.story.names.index(teller.machine(step.target).name)


ACTS: Final[dict[str, Callable[[_Teller, Step], None]]] = {
    "note": lambda _teller, _step: None,
    "kill": lambda teller, step: teller.machine(step.target).kill(),
    "cut power": _cut_power,
    "start": lambda teller, step: teller.story.start(teller.machine(step.target)),
    "pause": lambda teller, step: teller.machine(step.target).pause(),
    "resume": lambda teller, step: teller.machine(step.target).resume(),
    "block": lambda teller, step: teller.story.world.network.block(*teller.way(step)),
    "unblock": lambda teller, step: teller.story.world.network.unblock(*teller.way(step)),
    "slow": _slow,
    "hold": _hold,
    "expire": lambda teller, step: teller.story.zookeeper.expire_last_of(
        teller.machine(step.target).name
    ),
    "break directory": _break_directory,
    "rot": _rot,
    "jump": _jump,
}
CONDITIONS: Final[dict[str, Callable[[_Teller, Step], bool]]] = {
    "until whole": lambda teller, _: teller.story.is_whole(),
    "until led": lambda teller, _: teller.partition().leader >= 0,
    "until leaderless": lambda teller, _: teller.partition().leader < 0,
    "until out of sync": lambda teller, step: _id(teller, step) not in teller.partition().isr,
    "until rolled": _is_rolled,
    "until damaged": _is_damaged,
    "until repaired": lambda teller, step: (
        not _is_damaged(teller, step) and _id(teller, step) in teller.partition().isr
    ),
    "until proposed": _is_proposed,
    "until outrun": _is_outrun,
    "until open": _is_open,
    "until ending": lambda teller, _: teller.transaction() in PREPARED,
    "until coordinated by another": _is_coordinated_by_another,
    "until not led by": lambda teller, step: (
        teller.partition().leader >= 0
        and teller.machine("leader").name != teller.machine(step.target).name
    ),
    "until decided by another": lambda teller, step: any(
        one != teller.machine(step.target).name for one in teller.story.controllers()
    ),
}
