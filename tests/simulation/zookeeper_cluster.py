"""Three production brokers around a simulated ZooKeeper, and their clients."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from ottla.broker.startup.assembly import Broker
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import ClientSettings
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.model.address import Address
from ottla.simulation.checks.checkers import check_history, lost_commits
from ottla.simulation.checks.history import History, Outcome
from ottla.simulation.stories.broker_program import PORT, BrokerProgram, complaints_of
from ottla.simulation.workloads.workload import TOPIC, Workload
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from ottla.simulation.world.zookeeper import SimulatedZooKeeper

BROKERS = ("broker-0", "broker-1", "broker-2")
SESSION_SECONDS = 2.0
SETTINGS = {
    "zookeeper.connect": "zookeeper:2181",
    "zookeeper.session.timeout.ms": str(round(SESSION_SECONDS * 1000)),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}
PATIENCE_SECONDS = 120.0


class ZooKeeperCluster:
    """The brokers by the names of their machines; each may die and restart."""

    def __init__(self, seed: int, settings: Mapping[str, str] | None = None) -> None:
        self.world = World(seed)
        self.zookeeper = SimulatedZooKeeper(self.world.loop, self.world.network)
        self.servers = [Address(name, PORT) for name in BROKERS]
        self.history = History(self.world.loop.time)
        self.workload = Workload(self.history, self.servers, seed)
        self.programs = {
            name: BrokerProgram(
                {"node.id": str(number), **SETTINGS, **(settings or {})}, self.zookeeper
            )
            for number, name in enumerate(BROKERS)
        }

    def tell(
        self,
        story: Callable[["ZooKeeperCluster"], Coroutine[Any, Any, None]],
        excused: Sequence[str] = (),
    ) -> None:
        """Start all brokers, run the story, and stop them; only excused brokers may log errors."""

        async def told() -> None:
            async with asyncio.timeout(PATIENCE_SECONDS):
                for name in BROKERS:
                    self.start(name)
                await self.until(lambda: len(self.running()) == len(BROKERS))
                await story(self)
                for name in self.running():
                    await self.stop(name)

        with complaints_of(self.world) as complaints:
            complaints.excused.update(excused)
            self.world.run(told())
        assert not complaints.errors

    # -- brokers --------------------------------------------------------------------------------

    def machine(self, name: str) -> Machine:
        return self.world.machine(name)

    def start(self, name: str) -> None:
        self.programs[name].broker = None  # the broker of the previous incarnation
        self.machine(name).start(self.programs[name])

    async def stop(self, name: str) -> None:
        self.programs[name].stop()
        await self.machine(name).ended()

    def broker(self, name: str) -> Broker:
        broker = self.programs[name].broker
        assert broker is not None, f"{name} is not up"
        return broker

    def running(self) -> list[str]:
        """Return the brokers that accept clients."""
        return [
            name
            for name, program in self.programs.items()
            if program.broker is not None and self.machine(name).is_running
        ]

    def image(self, name: str) -> ClusterImage:
        return self.broker(name).metadata.store.image

    def controller(self) -> str | None:
        """Return the broker that considers itself the controller."""
        return next(
            (name for name in self.running() if self.broker(name).metadata.controller.is_here()),
            None,
        )

    def partitions(self, name: str, topic: str = TOPIC) -> Sequence[PartitionImage]:
        """Return a topic's partitions in a broker's image."""
        found = self.image(name).topics.get(topic)
        return () if found is None else found.partitions

    def is_whole(self) -> bool:
        """Return whether all brokers run and agree on the leaders, and all replicas are in sync."""
        if len(self.running()) < len(BROKERS):
            return False
        known = [self.partitions(name) for name in BROKERS]
        return (
            bool(known[0])
            and all(one == known[0] for one in known)
            and all(len(one.isr) == len(BROKERS) and one.leader >= 0 for one in known[0])
        )

    def cut_off(self, name: str, *others: str) -> None:
        """Block all messages between a broker and others."""
        for other in others:
            self.world.network.block(name, other)
            self.world.network.block(other, name)

    def reconnect(self, name: str, *others: str) -> None:
        for other in others:
            self.world.network.unblock(name, other)
            self.world.network.unblock(other, name)

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self.world.elapse(0.05)

    # -- clients --------------------------------------------------------------------------------

    def view(self, machine: Machine) -> ClusterView:
        settings = ClientSettings(tuple(self.servers), request_timeout_ms=2_000, timeout_ms=60_000)
        return ClusterView(settings, machine.network.connect)

    async def create_topic(self) -> None:
        """Create the topic of the workload, and wait until every broker has its replicas."""
        await self.machine("setup").start(self.workload.create_topic)
        await self.until(self.is_whole)

    async def work_through(self, trouble: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run clients that write, read and commit during some fault; check their histories."""
        clients = self.workload.programs(writers=2)
        await self.create_topic()
        for name, program in clients.items():
            self.machine(name).start(program)
        await self.world.elapse(1)
        await trouble()
        await self.until(self.is_whole)
        self.workload.is_over = True
        for name in clients:
            await self.machine(name).ended()
        committed = await self.machine("last-reader").start(self.workload.read_to_the_end)
        violations = check_history(self.history)
        violations += lost_commits(self.history.commits, committed)
        assert not violations, f"seed {self.world.seed}: {violations}"
        assert any(one.outcome is Outcome.OK for one in self.history.commits), "no commit went well"
