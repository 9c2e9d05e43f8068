"""A cluster around a simulated ZooKeeper that moves to a quorum of controllers, and back."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ottla.broker.metadata_store.migration.operating import roll_back
from ottla.broker.metadata_store.zookeeper.migration_nodes import (
    MIGRATION,
    MigrationPhase,
    migration_data,
    read_migration,
)
from ottla.broker.metadata_store.zookeeper.znodes import (
    CLUSTER_ID,
    CONTROLLER,
    read_cluster_id,
    read_controller,
)
from ottla.broker.quorum.formatting import format_metadata_dir
from ottla.broker.startup.quorum.controller_node import ControllerNode
from ottla.environment.disk import Disk
from ottla.environment.zookeeper import Write
from ottla.metadata.image import ClusterImage
from ottla.model.identifiers import BrokerId
from ottla.model.settings.broker_config import BrokerConfig
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.simulation.stories.broker_program import DATA, BrokerProgram, environment_of
from ottla.simulation.world.machine import Machine
from tests.metadata_building import uuid_of
from tests.replica_twin import LEVELS
from tests.simulation.zookeeper_cluster import BROKERS, SETTINGS, ZooKeeperCluster

CONTROLLERS = {"controller-7": 7, "controller-8": 8, "controller-9": 9}
PORT = 9093
SERVERS = ",".join(f"{name}:{PORT}" for name in CONTROLLERS)
OF_CONTROLLERS = {
    "process.roles": "controller",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": SERVERS,
    "log.dirs": DATA,
    "ottla.admin.listener": "",
}
MIGRATING = {
    "zookeeper.metadata.migration.enable": "true",
    **{name: value for name, value in SETTINGS.items() if name.startswith("zookeeper.")},
}
OF_BROKERS = {
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": SERVERS,
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
}
OTHERS = {name: value for name, value in SETTINGS.items() if not name.startswith("zookeeper.")}


class MigratingCluster(ZooKeeperCluster):
    """Brokers in one mode or the other, and three controllers."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.nodes: dict[str, ControllerNode] = {}
        self.ends: dict[str, str] = {}
        """Why controllers have ended by themselves."""
        self._stopping: dict[str, asyncio.Event] = {}

    def tell(
        self,
        story: Callable[[Any], Coroutine[Any, Any, None]],
        excused: Sequence[str] = (),
    ) -> None:
        async def told(cluster: ZooKeeperCluster) -> None:
            await story(cluster)
            for name in cluster.running():
                await cluster.stop(name)
            for name in list(self.nodes):
                await self.stop_controller(name)

        super().tell(told, excused)

    # -- controllers ----------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        return read_cluster_id(self.zookeeper.tree.get(CLUSTER_ID).data)

    def format(self, cluster_id: str | None = None) -> None:
        voters = VoterSet(tuple(_voter(name) for name in CONTROLLERS))
        for name, node_id in CONTROLLERS.items():
            disk = self.machine(name).disk
            format_metadata_dir(
                disk,
                [DATA],
                DATA,
                cluster_id=cluster_id or self.cluster_id,
                node_id=BrokerId(node_id),
                directory_ids={DATA: uuid_of(1000 + node_id)},
                records=LEVELS,
                voters=voters,
                now_ms=0,
            )

    def wipe_controllers(self) -> None:
        """Delete their directories."""
        for name in CONTROLLERS:
            _remove(self.machine(name).disk, DATA)

    def launch(self, name: str, settings: dict[str, str] | None = None) -> None:
        stopping = self._stopping[name] = asyncio.Event()
        migrating = MIGRATING if settings is None else settings

        async def program(machine: Machine) -> None:
            config = BrokerConfig.parse(
                {
                    **OF_CONTROLLERS,
                    **OTHERS,
                    **migrating,
                    "node.id": str(CONTROLLERS[name]),
                    "listeners": f"CONTROLLER://{name}:{PORT}",
                }
            )
            node = await ControllerNode.start(config, environment_of(machine, self.zookeeper))
            self.nodes[name] = node
            await node.serve_until(stopping)
            await node.stop()

        task = self.machine(name).start(program)
        task.add_done_callback(lambda done: self._on_end(name, done))

    def _on_end(self, name: str, task: "asyncio.Task[None]") -> None:
        self.nodes.pop(name, None)
        if not task.cancelled() and task.exception() is not None:
            self.ends[name] = str(task.exception())

    async def stop_controller(self, name: str) -> None:
        self._stopping[name].set()
        await self.machine(name).ended()

    def kill_controller(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.machine(name).kill()

    def active(self) -> str | None:
        return next((name for name, one in self.nodes.items() if one.node.store.is_active), None)

    async def start_controllers(self) -> None:
        """Format and start them, and wait until both kinds of metadata are written."""
        self.format()
        for name in CONTROLLERS:
            self.launch(name)
        await self.until(self.is_dual)

    def is_dual(self) -> bool:
        return self.phase() is MigrationPhase.DUAL and self.active() is not None

    def phase(self) -> MigrationPhase | None:
        stat = self.zookeeper.tree.exists(MIGRATION)
        return None if stat is None else read_migration(self.zookeeper.tree.get(MIGRATION).data)

    def quorum_image(self) -> ClusterImage:
        name = self.active()
        assert name is not None
        return self.nodes[name].node.store.image

    def holder(self) -> str:
        """Return the controller that has the office in ZooKeeper."""
        node_id = read_controller(self.zookeeper.tree.get(CONTROLLER).data)
        return next(name for name, one in CONTROLLERS.items() if one == node_id)

    async def roll_back(self) -> None:
        """Give the office back to the brokers, as the operator's command does."""

        async def program(_machine: Machine) -> None:
            session = self.zookeeper.connect(2)
            await roll_back(session)
            await session.close()

        await self.machine("operator").start(program)

    async def set_phase(self, phase: MigrationPhase) -> None:
        """Ask for a phase, as the operator's command does."""

        async def program(_machine: Machine) -> None:
            session = self.zookeeper.connect(2)
            node = await session.get(MIGRATION)
            await session.commit([Write(MIGRATION, migration_data(phase), node.stat.version)])
            await session.close()

        await self.machine("operator").start(program)

    # -- brokers --------------------------------------------------------------------------------

    def set_mode(self, name: str, *, in_quorum: bool) -> None:
        """Give a broker the settings of its next incarnation."""
        settings = {**OF_BROKERS, **OTHERS} if in_quorum else dict(SETTINGS)
        self.programs[name] = BrokerProgram(
            {"node.id": str(BROKERS.index(name)), **settings}, self.zookeeper
        )

    async def roll(self, name: str, *, in_quorum: bool, is_killed: bool = False) -> None:
        """Restart a broker in another mode, and wait until all replicas are in sync again."""
        if is_killed:
            self.machine(name).kill()
        else:
            await self.stop(name)
        self.set_mode(name, in_quorum=in_quorum)
        self.start(name)
        await self.until(self.is_whole)

    async def roll_all(self, *, in_quorum: bool) -> None:
        for name in BROKERS:
            await self.roll(name, in_quorum=in_quorum)


def _remove(disk: Disk, path: str) -> None:
    if not disk.is_directory(path):
        disk.remove(path)
        return
    for name in disk.list_directory(path):
        _remove(disk, f"{path}/{name}")
    disk.remove_directory(path)


def _voter(name: str) -> Voter:
    node_id = CONTROLLERS[name]
    return Voter(
        ReplicaKey(node_id, uuid_of(1000 + node_id)), (Endpoint("CONTROLLER", name, PORT),)
    )
