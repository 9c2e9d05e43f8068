"""Moves take as long as their throttle demands, and do not affect other traffic."""

import asyncio
from collections.abc import Mapping

import pytest

from ottla.clients.admin.admin_configs import ConfigResource
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.model.identifiers import TopicPartition
from ottla.simulation.world.machine import Machine
from tests.simulation.client_making import producer_on, send_all
from tests.simulation.zookeeper_cluster import BROKERS, ZooKeeperCluster

MOVING, CALM = "moving", "calm"
VALUE = bytes(10_000)
VALUES = 200
RATE = 100_000
SIZE_BYTES = VALUES * len(VALUE)
BEATS = 20
BEAT_SECONDS = 0.1


class Mover:
    """Fills a topic on two brokers, and adds a replica on the third."""

    def __init__(self, cluster: ZooKeeperCluster) -> None:
        self.cluster = cluster

    async def prepare(self, machine: Machine) -> None:
        async with self.cluster.view(machine) as view:
            topics = AsyncAdmin.over(view).topics
            await topics.create([MOVING], partitions=1, replication_factor=2)
            await topics.create([CALM], partitions=1, replication_factor=3)
            producer = producer_on(machine, view)
            for _ in range(VALUES):
                await send_all(producer, MOVING, [VALUE])

    @property
    def replicas(self) -> tuple[int, ...]:
        (state,) = self.cluster.partitions(BROKERS[0], MOVING)
        return state.replicas

    @property
    def leader(self) -> int:
        (state,) = self.cluster.partitions(BROKERS[0], MOVING)
        return state.leader

    @property
    def newcomer(self) -> int:
        return next(one for one in range(len(BROKERS)) if one not in self.replicas)

    def is_moved(self) -> bool:
        (state,) = self.cluster.partitions(BROKERS[0], MOVING)
        return len(state.isr) == len(BROKERS)

    async def set(self, resource: ConfigResource, settings: Mapping[str, str]) -> None:
        async def program(machine: Machine) -> None:
            async with self.cluster.view(machine) as view:
                await AsyncAdmin.over(view).configs.alter({resource: settings})

        await self.cluster.machine("setter").start(program)

    async def move(self) -> float:
        """Move the replica; return how long that took."""
        plan = {TopicPartition(MOVING, 0): (*self.replicas, self.newcomer)}

        async def program(machine: Machine) -> None:
            async with self.cluster.view(machine) as view:
                await AsyncAdmin.over(view).partitions.reassign(plan)

        began = self.cluster.world.loop.time()
        await self.cluster.machine("mover").start(program)
        await self.cluster.until(self.is_moved)
        return self.cluster.world.loop.time() - began

    async def latencies(self, machine: Machine) -> list[float]:
        """Write to the other topic at intervals; return the duration of each write."""
        loop = self.cluster.world.loop
        taken = []
        async with self.cluster.view(machine) as view:
            producer = producer_on(machine, view)
            for _ in range(BEATS):
                began = loop.time()
                await send_all(producer, CALM, [b"beat"])
                taken.append(loop.time() - began)
                await self.cluster.world.elapse(BEAT_SECONDS)
        return taken[1:]  # the first fetch finds the leader


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_move_takes_its_time_and_writes_elsewhere_do_not(side: str) -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        mover = Mover(cluster)
        await cluster.machine("setup").start(mover.prepare)
        broker_id = mover.leader if side == "leader" else mover.newcomer
        rate = {f"{side}.replication.throttled.rate": str(RATE)}
        await mover.set(ConfigResource.broker(broker_id), rate)
        replicas = {f"{side}.replication.throttled.replicas": f"0:{broker_id}"}
        await mover.set(ConfigResource.topic(MOVING), replicas)
        before = await cluster.machine("calm").start(mover.latencies)
        moving = asyncio.ensure_future(mover.move())
        await cluster.world.elapse(1)
        during = await cluster.machine("calm").start(mover.latencies)
        assert not moving.done()
        expected = SIZE_BYTES / RATE
        assert 0.6 * expected < await moving < 1.5 * expected
        assert max(during) < 2 * max(before) + 0.01

    ZooKeeperCluster(seed=1, settings={"replica.fetch.max.bytes": "50000"}).tell(story)


def test_a_move_without_a_throttle_takes_no_time_to_speak_of() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        mover = Mover(cluster)
        await cluster.machine("setup").start(mover.prepare)
        assert await mover.move() < 0.3 * SIZE_BYTES / RATE

    ZooKeeperCluster(seed=1).tell(story)


def test_a_throttle_for_every_replica_leaves_those_in_sync_alone() -> None:
    async def story(cluster: ZooKeeperCluster) -> None:
        mover = Mover(cluster)
        await cluster.machine("setup").start(mover.prepare)
        before = await cluster.machine("calm").start(mover.latencies)
        slow = {f"{side}.replication.throttled.rate": "1" for side in ("leader", "follower")}
        await mover.set(ConfigResource.every_broker(), slow)
        every = {f"{side}.replication.throttled.replicas": "*" for side in ("leader", "follower")}
        await mover.set(ConfigResource.topic(CALM), every)
        during = await cluster.machine("calm").start(mover.latencies)
        assert max(during) < 2 * max(before) + 0.01

    ZooKeeperCluster(seed=1).tell(story)
