"""The metadata stores of three brokers over a real ZooKeeper, as over a simulated one."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
from kazoo.client import KazooClient

from ottla.broker.metadata_store.metadata_history import Batches, Snapshot
from ottla.broker.metadata_store.zookeeper.store import ZooKeeperMetadataStore
from ottla.machines.controller.settings import ControllerSettings
from ottla.metadata.image import BrokerImage
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandomness
from ottla.testing.zookeeper_server import ZooKeeperServer
from ottla.zookeeper.kazoo_session import KazooSession, connect
from tests.metadata_building import new_topic, uuid_of
from tests.simulation.stores import new_broker, news_of

TIMEOUT = 3.0
SOON_SECONDS = 60.0
Story = Callable[["Cluster"], Awaitable[None]]
chroots = count()


class Cluster:
    """Three stores in one event loop, which pull from each other directly."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self.stores: list[ZooKeeperMetadataStore] = []
        self.session_by_id: dict[int, KazooSession] = {}
        self.lost: list[int] = []
        self._running: list[asyncio.Task[None]] = []

    async def start(self, broker_id: int) -> None:
        async def begin() -> KazooSession:
            session = await connect(self.hosts, TIMEOUT)
            self.session_by_id[broker_id] = session
            return session

        store = await ZooKeeperMetadataStore.open(
            begin,
            ControllerSettings(broker_id=broker_id),
            self,
            clock=SystemClock(),
            randomness=SystemRandomness(),
            session_timeout_ms=int(TIMEOUT * 1000),
            rebalance_seconds=math.inf,
        )
        store.on_session_lost(lambda: self.lost.append(broker_id))
        self.stores.append(store)
        work = store.run(new_broker(broker_id), has_lost_tail=False)
        self._running.append(asyncio.ensure_future(work))

    async def pull(self, controller: BrokerImage, epoch: int, offset: int) -> Batches | Snapshot:
        term = self.stores[controller.broker_id].term
        if term is None:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        if (epoch, offset) == (term.epoch, term.feed.end_offset):
            await news_of(term.feed, 1)
        return term.feed.read(epoch, offset) or term.feed.snapshot()

    async def stop(self) -> None:
        for task, store in zip(self._running, self.stores, strict=True):
            assert not task.done(), task
            task.cancel()
            await asyncio.wait([task])
            await store.close()

    def controllers(self) -> list[int]:
        return [number for number, store in enumerate(self.stores) if store.term is not None]

    def is_settled(self) -> bool:
        images = [store.image for store in self.stores]
        serving = [one for one in images[0].brokers.values() if not one.is_fenced]
        epochs = [one.broker_epoch for one in sorted(serving, key=lambda one: one.broker_id)]
        return (
            len(self.controllers()) == 1
            and all(image == images[0] for image in images)
            and epochs == [store.broker_epoch for store in self.stores]
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        deadline = asyncio.get_running_loop().time() + SOON_SECONDS
        while not holds():
            assert asyncio.get_running_loop().time() < deadline, self.controllers()
            await asyncio.sleep(0.02)

    async def create(self, name: str, number: int) -> None:
        (controller,) = self.controllers()
        topic = new_topic(name, 6, 3)
        await self.stores[controller].execute(
            lambda one: one.create_topics([topic], topic_ids=[uuid_of(number)], start=0)
        )


def tell(server: ZooKeeperServer, story: Story) -> None:
    async def told() -> None:
        cluster = Cluster(f"{server.hosts}/store/{next(chroots)}")
        try:
            for broker_id in range(3):
                await cluster.start(broker_id)
            await cluster.until(cluster.is_settled)
            await story(cluster)
        finally:
            server.resume()
            await cluster.stop()

    asyncio.run(told())


def test_three_brokers_know_the_same_and_a_topic_has_its_nodes(
    zookeeper_server: ZooKeeperServer,
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t", 1)
        await cluster.until(cluster.is_settled)
        assert all(len(store.image.topics["t"].partitions) == 6 for store in cluster.stores)
        reader = KazooClient(cluster.hosts)
        await asyncio.to_thread(reader.start)
        assert sorted(reader.get_children("/brokers/ids")) == ["0", "1", "2"]
        assert len(reader.get_children("/brokers/topics/t/partitions")) == 6
        reader.stop()
        reader.close()
        assert all(store.is_session_confirmed for store in cluster.stores)

    tell(zookeeper_server, story)


def test_a_controller_whose_session_ends_steps_down_and_the_cluster_goes_on(
    zookeeper_server: ZooKeeperServer,
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t", 1)
        (controller,) = cluster.controllers()
        store = cluster.stores[controller]
        before, epoch = store.broker_epoch, store.controller_epoch
        thief = KazooClient(
            cluster.hosts, client_id=cluster.session_by_id[controller]._client.client_id
        )
        await asyncio.to_thread(thief.start)
        await asyncio.to_thread(thief.stop)
        thief.close()
        await cluster.until(lambda: cluster.lost == [controller])
        await cluster.until(lambda: cluster.is_settled() and store.broker_epoch > before)
        assert store.controller_epoch > epoch
        await cluster.create("u", 2)
        await cluster.until(cluster.is_settled)
        assert all(store.image.topics.keys() == {"t", "u"} for store in cluster.stores)

    tell(zookeeper_server, story)


def test_a_zookeeper_that_was_silent_for_a_while_finds_the_cluster_again(
    zookeeper_server: ZooKeeperServer,
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create("t", 1)
        epoch = cluster.stores[0].controller_epoch
        zookeeper_server.pause()
        with pytest.raises(ApiError, match="NOT_CONTROLLER"):
            await cluster.create("u", 2)
        await cluster.until(lambda: not any(one.is_session_confirmed for one in cluster.stores))
        zookeeper_server.resume()
        await cluster.until(lambda: cluster.stores[0].controller_epoch > epoch)
        await cluster.until(cluster.is_settled)
        assert all("t" in store.image.topics for store in cluster.stores)
        await cluster.create("v", 3)

    tell(zookeeper_server, story)
