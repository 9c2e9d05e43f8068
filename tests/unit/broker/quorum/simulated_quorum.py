"""Nodes of a quorum on simulated machines."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ottla.broker.quorum.quorum_log import LogSettings
from ottla.broker.quorum.replica_files import FirstVoters
from ottla.broker.quorum.replica_life import ReplicaWorld
from ottla.raft.settings import QuorumSettings
from ottla.raft.voters import Voter, VoterSet
from ottla.simulation.world import cold_reads
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.world import World
from tests.metadata_building import uuid_of
from tests.quorum_nodes import QuorumNode, voter

if TYPE_CHECKING:
    from ottla.model.address import Address

PORT = 9093
PATIENCE_SECONDS = 120
"""Of virtual time."""


class Quorum:
    """Nodes on machines of one world, named by their ids; observers are no voters."""

    def __init__(
        self, *ids: int, seed: int = 1, observers: Sequence[int] = (), **settings: Any
    ) -> None:
        self.world = World(seed)
        self.settings = QuorumSettings(**settings)
        self.log_settings = LogSettings()
        self.nodes: dict[int, QuorumNode] = {}
        self.own: dict[int, Voter] = {
            one: voter(one, f"n{one}", PORT, uuid_of(one)) for one in (*ids, *observers)
        }
        self.voters = VoterSet(tuple(self.own[one] for one in ids))
        self.kraft_version = 0
        self.bootstrap: tuple[Address, ...] = ()
        self.observers = set(observers)
        self.vote_version_max: int | None = None

    def machine(self, number: int) -> Machine:
        return self.world.machine(f"n{number}")

    def run(self, story: Coroutine[Any, Any, Any]) -> Any:
        async def limited() -> Any:
            return await asyncio.wait_for(story, PATIENCE_SECONDS)

        return self.world.run(limited())

    async def start(self, number: int) -> QuorumNode:
        machine = self.machine(number)
        ready: asyncio.Future[QuorumNode] = asyncio.get_running_loop().create_future()

        async def program(_machine: Machine) -> None:
            try:
                node = await self._open(number)
            except Exception as error:
                ready.set_exception(error)
                raise
            ready.set_result(node)
            await asyncio.get_running_loop().create_future()

        machine.start(program)
        self.nodes[number] = await ready
        return self.nodes[number]

    async def _open(self, number: int) -> QuorumNode:
        machine = self.machine(number)
        return await QuorumNode.start(
            ReplicaWorld(machine.disk, machine.network, machine.clock, machine.randomness),
            "/meta",
            self.own[number],
            cold_reads=cold_reads,
            threads=None,
            first=FirstVoters(self.voters, self.kraft_version),
            settings=self.settings,
            log_settings=self.log_settings,
            bootstrap=self.bootstrap,
            is_controller=number not in self.observers,
            vote_version_max=self.vote_version_max,
        )

    async def start_all(self) -> None:
        for number in self.own:
            await self.start(number)

    def kill(self, number: int) -> None:
        self.machine(number).kill()
        self.nodes.pop(number, None)

    def cut(self, number: int) -> None:
        """Cut the links of a node to all others."""
        for one in self.own:
            self.world.network.block(f"n{number}", f"n{one}")

    def mend(self, number: int) -> None:
        for one in self.own:
            self.world.network.unblock(f"n{number}", f"n{one}")

    async def elapse(self, seconds: float) -> None:
        await self.world.elapse(seconds)

    def number_of(self, node: QuorumNode) -> int:
        return next(number for number, one in self.nodes.items() if one is node)

    def others(self, node: QuorumNode) -> list[QuorumNode]:
        return [one for one in self.nodes.values() if one is not node]

    async def leader(self, *ids: int) -> QuorumNode:
        """Wait until one of these nodes leads and commits."""
        chosen = [self.nodes[one] for one in ids or self.nodes]
        waits = [asyncio.ensure_future(node.leads()) for node in chosen]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return next(one for one in chosen if one.replica.is_leader)


async def commit(node: QuorumNode, *values: bytes) -> int:
    """Propose records, and wait until they are committed."""
    offset = node.propose(*values)
    await node.committed(offset)
    return offset
