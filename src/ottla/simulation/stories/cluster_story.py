"""A simulated cluster: brokers around a ZooKeeper, clients, an operator, and faults.

The seed determines the number of clients, the faults, and whether brokers flush before they
acknowledge. After every step the invariants of all replicas (`replica_invariants`) and of all
metadata (`metadata_invariants`) are checked. In the end all faults stop, every replica must be in
sync again, and the histories of the clients are checked (`checkers`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random  # noqa: TID251 - only the type: the stream is given
from typing import Final

from ottla.broker.metadata_store.zookeeper.store import ZooKeeperMetadataStore
from ottla.broker.startup.assembly import Broker
from ottla.broker.startup.broker_service import OpenService, no_service
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition
from ottla.simulation.checks.checkers import Violation, check_history, lost_commits
from ottla.simulation.checks.history import History, Operation, Outcome
from ottla.simulation.checks.metadata_invariants import (
    MIN_ISR,
    ExpectedMetadata,
    MetadataInvariants,
)
from ottla.simulation.checks.replica_invariants import InvariantError, ReplicaInvariants
from ottla.simulation.checks.transaction_invariants import TransactionInvariants
from ottla.simulation.faults.cluster_nemesis import (
    ClusterNemesis,
    Kind,
    Moments,
    Surroundings,
    Trouble,
)
from ottla.simulation.faults.nemesis import Fault, Nemesis
from ottla.simulation.stories.broker_program import PORT, BrokerProgram, Complaints, complaints_of
from ottla.simulation.stories.report import Report, report_of
from ottla.simulation.workloads.copy_workload import COPIES
from ottla.simulation.workloads.group_workload import GroupWorkload
from ottla.simulation.workloads.operator_workload import OperatorWorkload
from ottla.simulation.workloads.transaction_workload import TransactionWorkload
from ottla.simulation.workloads.workload import TOPIC, Pace, Workload
from ottla.simulation.world.machine import Machine, Program
from ottla.simulation.world.process import Process, current_process
from ottla.simulation.world.randomness import dice
from ottla.simulation.world.world import World
from ottla.simulation.world.zookeeper import SimulatedZooKeeper

BROKERS: Final = 3
SECONDS: Final = 30.0
SETTLED_SECONDS_MAX: Final = 120.0
"""The limit for recovery after the last fault."""
LOOK_SECONDS: Final = 0.1
FOLDERS: Final = ("/data-0", "/data-1")
SETTINGS: Final = {
    "zookeeper.connect": "zookeeper:2181",
    "zookeeper.session.timeout.ms": "2000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "log.dirs": ",".join(FOLDERS),
    "log.cleaner.enable": "false",
    "replica.lag.time.max.ms": "2000",
    "replica.socket.timeout.ms": "2000",
}
"""Short intervals, so that much happens; no compaction, which would change compared logs."""
FLUSHED: Final = {"log.flush.interval.messages": "1"}
TRANSACTIONAL: Final = {
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.message.timestamp.after.max.ms": str(24 * 60 * 60_000),
}
"""No retention by time, so that the final logs can be compared."""
RESTLESS: Final = {"log.roll.ms": "1000", "log.flush.offset.checkpoint.interval.ms": "500"}
KINDS: Final[tuple[Kind, ...]] = (*Fault, *Trouble)


@dataclass(frozen=True, slots=True)
class Setting:
    """The parameters of a run."""

    brokers: int = BROKERS
    partitions: int = 2
    writers: int = 2
    transactional_ids: int = 0
    """The number of transactional clients; if there are any, the others read committed records."""
    members: int = 1
    has_operator: bool = True
    pace_seconds: float = 1.0
    """How long it is quiet between faults, and half of how long they last; on average."""
    kinds: tuple[Kind, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    aimed: float = 0.5
    """How many of the faults wait for a moment at which they do most harm."""
    is_eager: bool = False
    """Whether consumers never wait for more than there is, and copiers never rest."""

    @classmethod
    def draw(cls, stream: Random, brokers: int = BROKERS) -> "Setting":
        """Draw one: some faults in each, so that each has a face of its own."""
        settings = {
            **(FLUSHED if stream.random() < 0.3 else {}),
            **(RESTLESS if stream.random() < 0.5 else {}),
        }
        return cls(
            brokers=brokers,
            partitions=stream.randint(1, 3),
            writers=stream.randint(1, 3),
            transactional_ids=stream.choice([0, 0, 1, 2]),
            members=stream.randint(0, 2),
            has_operator=stream.random() < 0.5,
            pace_seconds=stream.choice([0.5, 1.0, 2.0]),
            kinds=tuple(kind for kind in KINDS if stream.random() < 0.4),
            settings=tuple(settings.items()),
            aimed=stream.choice([0.0, 0.5, 0.9]),
            is_eager=stream.random() < 0.3,
        )


def run(
    seed: int,
    *,
    seconds: float = SECONDS,
    brokers: int = BROKERS,
    setting: Setting | None = None,
    keeps_lines: bool = False,
) -> Report:
    """Run it, with faults for so many simulated seconds, and check everything."""
    drawn = setting or Setting.draw(dice(seed, "setting"), brokers)
    story = ClusterStory(seed, drawn, keeps_lines=keeps_lines)
    return story.run(lambda: story.nemesis.run(seconds))


class ClusterStory:
    """One cluster from its beginning to its end; `run` it once."""

    def __init__(self, seed: int, setting: Setting, *, keeps_lines: bool = False) -> None:
        self.setting = setting
        self.world = World(seed, keeps_lines=keeps_lines)
        self.zookeeper = SimulatedZooKeeper(self.world.loop, self.world.network)
        self.truth = ExpectedMetadata(self.zookeeper.tree)
        self.names = [f"broker-{number}" for number in range(setting.brokers)]
        self.rules = ReplicaInvariants(
            self.world, self.truth, {name: number for number, name in enumerate(self.names)}
        )
        self.metadata_rules = MetadataInvariants(
            self.zookeeper.tree, self._process_of, int(SETTINGS[MIN_ISR])
        )
        self.history: History = WatchedHistory(self.world, self.rules)
        servers = [Address(name, PORT) for name in self.names]
        has_transactions = setting.transactional_ids > 0
        self.workload = Workload(
            self.history,
            servers,
            seed,
            partitions=setting.partitions,
            pace=Pace(is_eager=setting.is_eager),
            topics=[TOPIC, COPIES] if has_transactions else [TOPIC],
            is_committed_only=has_transactions,
        )
        self.transaction_rules = TransactionInvariants(
            self.names, self.rules.running, self._is_late, self.world.loop.time
        )
        self.moments = Moments()
        self.rules.watchers += [self.transaction_rules.look_at, self.moments.look_at]
        self.transactions = TransactionWorkload(
            self.workload,
            setting.transactional_ids,
            self.transaction_rules.decisions,
            self.world.loop.time,
        )
        self.group = GroupWorkload(self.workload, dice(seed, "group"), self.world.loop.time)
        self.operator = OperatorWorkload(self.workload, seed, setting.brokers)
        self.programs = {name: self._program(number) for number, name in enumerate(self.names)}
        self.clients = self._clients()
        self.complaints: Complaints | None = None
        self.nemesis = self._nemesis()

    def run(self, disturb: Callable[[], Awaitable[None]]) -> Report:
        """Run the clients through a disturbance, and report the violations."""
        with complaints_of(self.world) as complaints:
            self.complaints = complaints
            try:
                violations = self.world.run(self._tell(disturb))
            except InvariantError as error:
                rule, _, detail = str(error).partition(" ")
                violations = [Violation(rule, detail)]
        violations += self.metadata_rules.violations()
        return report_of(
            self.world,
            self.history,
            setting=self.setting,
            faults=self.nemesis.counts,
            violations=[*violations, *complaints.violations()],
        )

    # -- brokers --------------------------------------------------------------------------------

    def start(self, machine: Machine) -> None:
        """Let the broker of a machine begin its next life."""
        machine.start(self.programs[machine.name])

    def broker(self, name: str) -> Broker | None:
        """Return the broker of a machine, if it is up."""
        return self.rules.running(name)

    def controllers(self) -> list[str]:
        """Return the machines of brokers that consider themselves the controller."""
        found = [(name, self.broker(name)) for name in self.names]
        return [name for name, one in found if one and one.metadata.controller.is_here()]

    def leaders(self) -> list[str]:
        """Return the machines of the leaders of the clients' partitions."""
        topic = self.truth.topics.get(self.workload.partitions[0].topic)
        ids = [] if topic is None else [one.leader for one in topic.partitions if one.leader >= 0]
        return [self.names[one] for one in dict.fromkeys(ids)]

    def is_whole(self) -> bool:
        """Return whether every broker is up, registered with this incarnation, and in sync."""
        if not all(map(self._is_known, range(len(self.names)))):
            return False
        return all(
            one.leader >= 0
            and set(one.isr) == set(one.replicas)
            and not one.adding_replicas
            and not one.removing_replicas
            for topic in self.truth.topics.values()
            for one in topic.partitions
        )

    def is_spare(self, name: str) -> bool:
        """Return whether a machine may lose its tail: others can lead with theirs intact.

        False for a broker that is not registered with this incarnation.
        """
        broker_id = self.names.index(name)
        known = {one for one in range(len(self.names)) if self._is_known(one)}
        others = [
            {*one.isr, *one.eligible_leader_replicas} - {broker_id}
            for topic in self.truth.topics.values()
            for one in topic.partitions
            if broker_id in one.replicas
        ]
        return all(one and one <= known for one in others)

    def _is_late(self, partition: Partition) -> bool:
        """Return whether a later epoch has begun than the epoch that a replica knows."""
        topic = self.truth.topics.get(partition.name.topic)
        state = None if topic is None else topic.partition(partition.name.partition)
        return state is None or state.leader_epoch > partition.leader_epoch

    def _is_known(self, broker_id: int) -> bool:
        """Return whether a broker is up, and registered with this incarnation."""
        broker = self.broker(self.names[broker_id])
        epoch = self.truth.broker_epoch(broker_id)
        return broker is not None and broker.metadata.broker_epoch == epoch

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        while not holds():
            await self.world.elapse(LOOK_SECONDS)

    # -- the story ------------------------------------------------------------------------------

    async def _tell(self, disturb: Callable[[], Awaitable[None]]) -> list[Violation]:
        doing = "setting up"
        try:
            async with asyncio.timeout(SETTLED_SECONDS_MAX):
                await self._set_up()
            await disturb()
            async with asyncio.timeout(SETTLED_SECONDS_MAX):
                doing = "coming back into sync"
                await self.until(self.is_whole)
                doing = "ending"
                return await self._end()
        except TimeoutError:
            return [Violation("L1 stuck", f"{doing} takes longer than {SETTLED_SECONDS_MAX} s")]
        except ApiError as error:
            return [Violation("L1 stuck", f"{doing} is not possible: {error!r}")]

    async def _set_up(self) -> None:
        for name in self.names:
            self.start(self.world.machine(name))
        await self._prepare()
        await self.until(self.is_whole)
        for name, program in self.clients.items():
            self.world.machine(name).start(program)

    async def _prepare(self) -> None:
        """Create the topic of the clients."""
        await self.world.machine("setup").start(self.workload.create_topic)

    async def _end(self) -> list[Violation]:
        self.workload.is_over = True
        for name in self.clients:
            await self.world.machine(name).ended()
        ledgers = await self._end_transactions() if self.setting.transactional_ids else {}
        committed = await self.world.machine("last-reader").start(self.workload.read_to_the_end)
        await self._stop_brokers()
        return [
            *check_history(self.history),
            *lost_commits(self.history.commits, {**committed, **ledgers}),
            *check_history(self.transactions.uncommitted, is_read_to_the_end=False),
            *self.group.violations(),
            *[Violation("R13 lost", one) for one in self.workload.surprises],
            *(self.transactions.copies.uncopied() if self.setting.transactional_ids else []),
            *self.operator.missing(self.truth.topics),
        ]

    async def _stop_brokers(self) -> None:
        await self.until(self.is_whole)
        for name in self.names:
            self.programs[name].stop()
        for name in self.names:
            await self.world.machine(name).ended()

    async def _end_transactions(self) -> dict[tuple[str, TopicPartition], int]:
        """Wait until none is open, and have all copied; return where their groups are."""
        if Trouble.CLOCK in self.setting.kinds:
            # The age of transactions is told by clocks on walls, and theirs have been set.
            await self.world.machine("successor").start(self.transactions.fence_all)
        await self.until(self.transaction_rules.is_all_ended)
        last: dict[tuple[str, TopicPartition], int]
        last = await self.world.machine("last-copier").start(self.transactions.finish)
        return last

    # -- participants ---------------------------------------------------------------------------

    def _process_of(self, broker_id: int) -> Process | None:
        return self.world.machine(self.names[broker_id]).process

    def _program(self, number: int) -> BrokerProgram:
        def on_start(broker: Broker) -> None:
            self.rules.follow(current_process(), broker)
            store = broker.metadata.store
            assert isinstance(store, ZooKeeperMetadataStore)
            self.metadata_rules.follow(number, store)

        settings = {
            **SETTINGS,
            **(TRANSACTIONAL if self.setting.transactional_ids else {}),
            **dict(self.setting.settings),
            "node.id": str(number),
        }
        return BrokerProgram(settings, self.zookeeper, on_start, self._service_on)

    def _service_on(self, _: Machine) -> OpenService:
        """Return the service of a machine's broker; a story may have one."""
        return no_service

    def _clients(self) -> dict[str, Program]:
        members = [f"member-{number}" for number in range(self.setting.members)]
        return {
            **self.workload.programs(self.setting.writers),
            **self.transactions.programs(),
            **dict.fromkeys(members, self.group.belong),
            **({"operator": self.operator.operate} if self.setting.has_operator else {}),
        }

    def _nemesis(self) -> ClusterNemesis:
        world, seed = self.world, self.world.seed
        single = Nemesis(
            world,
            dice(seed, "nemesis"),
            self.programs,
            self.clients,
            lambda name: self.programs[name].stop(),
            (),
            fault_seconds=2 * self.setting.pace_seconds,
        )
        return ClusterNemesis(
            single,
            dice(seed, "cluster nemesis"),
            Surroundings(
                self.zookeeper,
                FOLDERS,
                self.moments,
                self.is_spare,
                self._important,
                self.start,
                self._excuse,
            ),
            {name: world.machine(name) for name in self.names},
            {name: world.machine(name) for name in self.clients},
            self.setting.kinds,
            pace_seconds=self.setting.pace_seconds,
            aimed=self.setting.aimed,
        )

    def _important(self) -> Sequence[str]:
        return [*self.controllers(), *self.leaders()]

    def _excuse(self, machine: str) -> None:
        assert self.complaints is not None
        self.complaints.excused.add(machine)


class WatchedHistory(History):
    """A history that checks every acknowledgement at once: the record must be committed."""

    def __init__(self, world: World, rules: ReplicaInvariants) -> None:
        super().__init__(world.loop.time)
        self._rules = rules

    def end(self, operation: Operation, outcome: Outcome) -> None:
        """Record the outcome."""
        super().end(operation, outcome)
        if outcome is Outcome.OK:
            for sent in operation.sent:
                if sent.offset is not None:
                    self._rules.acknowledged(sent.partition, sent.offset)
