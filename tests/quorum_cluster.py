"""Whole nodes of a quorum, as `ottla start` runs them, on simulated machines."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ottla.broker.metadata_store.quorum.store import QuorumMetadataStore
from ottla.broker.quorum.formatting import format_metadata_dir
from ottla.broker.requests.request_context import RequestContext
from ottla.broker.startup.assembly import Broker
from ottla.broker.startup.quorum.controller_node import ControllerNode
from ottla.broker.startup.quorum.quorum_mode import InQuorum
from ottla.broker.startup.quorum.quorum_node import QuorumNode
from ottla.metadata.image import ClusterImage
from ottla.model.identifiers import BrokerId
from ottla.model.settings.broker_config import BrokerConfig
from ottla.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from ottla.simulation.stories.broker_program import environment_of
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.metadata_building import CLUSTER_ID, uuid_of
from tests.replica_twin import LEVELS

DATA = "/data"
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
CONTROLLER = "CONTROLLER"
Story = Callable[["QuorumCluster"], Awaitable[None]]


class QuorumCluster:
    """Nodes by their ids, with their roles; each on the machine n<id>."""

    def __init__(self, roles_by_node: Mapping[int, str], seed: int = 1, **settings: str) -> None:
        self.world = World(seed)
        self.roles_by_node = roles_by_node
        self.settings = {name.replace("_", "."): text for name, text in settings.items()}
        self.running: dict[int, Broker | ControllerNode] = {}
        self.failures: list[str] = []
        self._stopping: dict[int, asyncio.Event] = {}
        self.controllers = [one for one, roles in roles_by_node.items() if "controller" in roles]
        self.brokers = [one for one, roles in roles_by_node.items() if "broker" in roles]

    def run(self, story: Story) -> None:
        async def told() -> None:
            await story(self)
            for node_id in list(self.running):
                await self.stop(node_id)
            assert not self.failures, self.failures

        self.world.run(told())

    # -- nodes ----------------------------------------------------------------------------------

    def machine(self, node_id: int) -> Machine:
        return self.world.machine(f"n{node_id}")

    def format(self, *node_ids: int, cluster_id: str = CLUSTER_ID, has_voters: bool = True) -> None:
        voters = VoterSet(tuple(_voter(one) for one in self.controllers))
        for node_id in node_ids or self.roles_by_node:
            format_metadata_dir(
                self.machine(node_id).disk,
                [DATA],
                DATA,
                cluster_id=cluster_id,
                node_id=BrokerId(node_id),
                directory_ids={DATA: uuid_of(1000 + node_id)},
                records=LEVELS,
                voters=voters if has_voters and node_id in self.controllers else None,
                now_ms=0,
            )

    def config(self, node_id: int) -> BrokerConfig:
        roles = self.roles_by_node[node_id]
        listeners = [
            f"{name}://n{node_id}:{port}"
            for role, name, port in (
                ("broker", "PLAINTEXT", BROKER_PORT),
                ("controller", CONTROLLER, CONTROLLER_PORT),
            )
            if role in roles
        ]
        return BrokerConfig.parse(
            {
                "process.roles": roles,
                "node.id": str(node_id),
                "listeners": ",".join(listeners),
                "controller.listener.names": CONTROLLER,
                "controller.quorum.bootstrap.servers": ",".join(
                    f"n{one}:{CONTROLLER_PORT}" for one in self.controllers
                ),
                "log.dirs": DATA,
                "ottla.admin.listener": "",
                "offsets.topic.num.partitions": "3",
                **self.settings,
            }
        )

    async def open(self, node_id: int) -> Broker | ControllerNode:
        config, environment = self.config(node_id), environment_of(self.machine(node_id))
        if config.is_broker:
            return await Broker.start(config, environment)
        return await ControllerNode.start(config, environment)

    def launch(self, node_id: int) -> None:
        stopping = self._stopping[node_id] = asyncio.Event()

        async def program(_machine: Machine) -> None:
            node = await self.open(node_id)
            self.running[node_id] = node
            await node.serve_until(stopping)
            await node.stop()

        task = self.machine(node_id).start(program)
        task.add_done_callback(lambda done: self._on_end(node_id, done))

    def _on_end(self, node_id: int, task: "asyncio.Task[Any]") -> None:
        self.running.pop(node_id, None)
        if not task.cancelled() and task.exception() is not None:
            self.failures.append(f"node {node_id}: {task.exception()!r}")

    async def start(self, *node_ids: int) -> None:
        wanted = node_ids or tuple(self.roles_by_node)
        for node_id in wanted:
            self.launch(node_id)
        await self.until(lambda: all(one in self.running for one in wanted))

    async def stop(self, node_id: int) -> None:
        self._stopping[node_id].set()
        await self.machine(node_id).ended()

    def kill(self, node_id: int) -> None:
        self.running.pop(node_id, None)
        self.machine(node_id).kill()

    def cut(self, node_id: int, *others: int) -> None:
        """Cut the links between a node and others."""
        for other in others:
            self.world.network.block(f"n{node_id}", f"n{other}")

    async def update_features(
        self, levels: Mapping[str, int], *, validate_only: bool = False
    ) -> UpdateFeaturesResponse:
        """Change levels, as a client of the active controller."""
        (active,) = self.active()
        request = UpdateFeaturesRequest(
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=1)
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        )
        process = self.machine(active).process
        assert process is not None
        handle = self.node(active).routes[ApiKey.UPDATE_FEATURES].handle
        context = RequestContext("User:ANONYMOUS", None, "127.0.0.1", CONTROLLER, 2, 0)
        answering = handle(context, request)
        return await process.context.run(self.world.loop.create_task, answering)

    # -- questions ------------------------------------------------------------------------------

    def mode(self, node_id: int) -> InQuorum:
        broker = self.running[node_id]
        assert isinstance(broker, Broker)
        assert isinstance(broker.metadata, InQuorum)
        return broker.metadata

    def node(self, node_id: int) -> QuorumNode:
        running = self.running[node_id]
        return running.node if isinstance(running, ControllerNode) else self.mode(node_id).node

    def store(self, node_id: int) -> QuorumMetadataStore:
        return self.node(node_id).store

    def image(self, node_id: int) -> ClusterImage:
        return self.store(node_id).image

    def active(self) -> list[int]:
        return [one for one in self.running if self.store(one).is_active]

    async def until(self, holds: Callable[[], object], seconds: float = 60) -> None:
        """Wait for a condition, which must hold soon."""
        for _ in range(int(seconds * 100)):
            if holds():
                return
            await self.world.elapse(0.01)
        raise AssertionError(f"not within {seconds} s; {self.failures}")


def _voter(node_id: int) -> Voter:
    endpoint = Endpoint(CONTROLLER, f"n{node_id}", CONTROLLER_PORT)
    return Voter(ReplicaKey(node_id, uuid_of(1000 + node_id)), (endpoint,))
