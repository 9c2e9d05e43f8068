"""The story of three replicating brokers: clients write and read while brokers fail and restart."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ottla.broker.startup.assembly import THREADS, Broker
from ottla.broker.startup.broker_service import NoService
from ottla.broker.startup.embedded_mode import Embedded
from ottla.broker.startup.observability import Operations
from ottla.concurrency.notifier import Notifier
from ottla.model.address import Address
from ottla.model.settings.broker_config import BrokerConfig
from ottla.simulation.checks.checkers import Violation, check_history, lost_commits
from ottla.simulation.checks.history import History
from ottla.simulation.checks.replica_invariants import ReplicaInvariants
from ottla.simulation.faults.nemesis import Fault, Nemesis
from ottla.simulation.stories.broker_program import DEFAULTS, PORT, complaints_of, environment_of
from ottla.simulation.stories.cluster_story import WatchedHistory
from ottla.simulation.workloads.workload import Workload
from ottla.simulation.world.machine import Machine, Program
from ottla.simulation.world.process import current_process
from ottla.simulation.world.randomness import dice
from ottla.simulation.world.world import World
from ottla.storage.log_dirs.log_dirs import LogDirs
from tests.simulation.sky import Sky, SkyStore, SkyTruth

BROKERS = {"b0": 0, "b1": 1, "b2": 2}
SETTINGS = {
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.backoff.ms": "100",
    "replica.socket.timeout.ms": "1000",
    "replica.fetch.wait.max.ms": "200",
    "offsets.topic.num.partitions": "2",
}
RACKS: dict[str, str] = {}
FLUSHED = {"log.flush.interval.messages": "1"}
"""With these, no acknowledged record can be lost in a power cut."""


def faults_of(seed: int, *, is_flushed: bool) -> list[Fault]:
    """Draw the faults of a run: a subset in each, so that runs differ."""
    stream = dice(seed, "faults")
    possible = [one for one in Fault if one is not Fault.POWER or is_flushed]
    return [one for one in possible if stream.random() < 0.6] or possible


HEALING_SECONDS = 60.0
"""The maximum time until the cluster has recovered."""


class InTheSky(Embedded):
    """Metadata on which every broker can decide directly."""

    is_alone = False


class ReplicaProgram:
    """A broker as a program of its machine, with the sky as its metadata store."""

    def __init__(
        self, name: str, sky: Sky, rules: ReplicaInvariants, settings: dict[str, str]
    ) -> None:
        self._broker_id = BROKERS[name]
        self._settings = settings
        self._sky = sky
        self._rules = rules
        self._stopping: asyncio.Event | None = None

    async def __call__(self, machine: Machine) -> None:
        stopping = self._stopping = asyncio.Event()
        listeners = f"PLAINTEXT://{machine.name}:{PORT}"
        given = {"listeners": listeners, "node.id": str(self._broker_id)}
        if machine.name in RACKS:
            given["broker.rack"] = RACKS[machine.name]
        config = BrokerConfig.parse({**DEFAULTS, **SETTINGS, **self._settings, **given})
        environment = environment_of(machine)
        operations = await Operations.open(config, machine.clock, environment.cold_reads)
        log_dirs = LogDirs(machine.disk, config.log_dirs)
        with log_dirs.lock() as locks:
            store = SkyStore(self._sky, self._broker_id, machine)
            broker = Broker(
                config,
                environment,
                ThreadPoolExecutor(THREADS),
                InTheSky(self._broker_id, store, store.identity.directory_ids, machine.clock),
                Notifier(machine.clock),
                operations,
                log_dirs,
                NoService(),
            )
            broker.folder_locks.enter_context(locks.pop_all())
        self._rules.follow(current_process(), broker)
        await self._open(broker)
        following = asyncio.get_running_loop().create_task(store.follow())
        await stopping.wait()
        following.cancel()
        await broker.stop()

    async def _open(self, broker: Broker) -> None:
        await broker._open()

    def stop(self) -> None:
        assert self._stopping is not None
        self._stopping.set()


class Report:
    """The result of a run."""

    def __init__(self, violations: Sequence[Violation], history: History, world: World) -> None:
        self.violations = list(violations)
        self.sent = Counter(one.outcome for one in history.operations for _ in one.sent)
        self.read_count = sum(len(one.read) for one in history.operations)
        self.digest = world.trace.digest()
        self.steps = world.loop.steps
        self.seconds = world.loop.time()
        self.lines = world.trace.lines


class Story:
    """Three brokers, their clients, and the nemesis."""

    def __init__(self, seed: int, *, is_flushed: bool, min_isr: int, keeps_lines: bool) -> None:
        self.seed = seed
        self.world = World(seed, keeps_lines=keeps_lines)
        self.sky = Sky(self.world, len(BROKERS), min_isr)
        self.rules = ReplicaInvariants(self.world, SkyTruth(self.sky), BROKERS)
        self.history = WatchedHistory(self.world, self.rules)
        servers = [Address(name, PORT) for name in BROKERS]
        self.workload = Workload(self.history, servers, seed, partitions=2)
        settings = {"min.insync.replicas": str(min_isr), **(FLUSHED if is_flushed else {})}
        self.programs = {
            name: ReplicaProgram(name, self.sky, self.rules, settings) for name in BROKERS
        }
        self.clients: dict[str, Program] = {
            "writer-0": self.workload.write,
            "writer-1": self.workload.write,
            "reader": self.workload.read,
            "committer": self.workload.commit,
        }

    async def tell(self, disturb: "Disturb") -> list[Violation]:
        world, workload = self.world, self.workload
        caring = asyncio.get_running_loop().create_task(self.sky.look_after_brokers())
        for name, program in self.programs.items():
            world.machine(name).start(program)
        await world.machine("setup").start(workload.create_topic)
        for name, client in self.clients.items():
            world.machine(name).start(client)
        await disturb(self)
        workload.is_over = True
        async with asyncio.timeout(HEALING_SECONDS):
            for name in self.clients:
                await world.machine(name).ended()
            committed = await world.machine("last-reader").start(workload.read_to_the_end)
        caring.cancel()
        return [*check_history(self.history), *lost_commits(self.history.commits, committed)]


Disturb = Callable[[Story], Coroutine[Any, Any, None]]


def by_chance(seconds: float, *, is_flushed: bool, pace_seconds: float = 1.0) -> Disturb:
    """Inject faults for a while, all drawn from the seed."""

    async def disturb(story: Story) -> None:
        nemesis = Nemesis(
            story.world,
            dice(story.seed, "nemesis"),
            story.programs,
            story.clients,
            lambda name: story.programs[name].stop(),
            faults_of(story.seed, is_flushed=is_flushed),
            pause_seconds=pace_seconds,
            fault_seconds=pace_seconds,
        )
        await nemesis.run(seconds)

    return disturb


def run(
    seed: int,
    disturb: Disturb | None = None,
    *,
    seconds: float = 15.0,
    is_flushed: bool = False,
    min_isr: int = 2,
    keeps_lines: bool = False,
) -> Report:
    """Run it, with random faults by default; InvariantError if an invariant is violated."""
    story = Story(seed, is_flushed=is_flushed, min_isr=min_isr, keeps_lines=keeps_lines)
    with complaints_of(story.world) as complaints:
        telling = story.tell(disturb or by_chance(seconds, is_flushed=is_flushed))
        violations = story.world.run(telling)
    return Report([*violations, *complaints.violations()], story.history, story.world)
