"""Several brokers' metadata stores in one world, over a simulated ZooKeeper, and their invariants.

The brokers consist only of their stores. They pull metadata from each other by messages that take
time, get lost on blocked links, and are answered only by running processes.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ottla.broker.metadata_store.metadata_history import Batches, MetadataFeed, Snapshot
from ottla.broker.metadata_store.zookeeper.store import ZooKeeperMetadataStore
from ottla.machines.controller.features import CLAIMED_LEVELS
from ottla.machines.controller.machine import Controller
from ottla.machines.controller.settings import ControllerSettings
from ottla.machines.decision import Decision
from ottla.metadata.image import BrokerImage, ClusterImage, Endpoint
from ottla.metadata.records import MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.simulation.checks.metadata_invariants import MetadataInvariants
from ottla.simulation.world.machine import Machine
from ottla.simulation.world.process import current_process
from ottla.simulation.world.world import World
from ottla.simulation.world.zookeeper import SimulatedZooKeeper
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    BrokerState,
)
from tests.metadata_building import uuid_of

TIMEOUT_SECONDS = 6.0
PATIENCE_SECONDS = 2.0
LONG_POLL_SECONDS = 0.5
T = TypeVar("T")


class Stores:
    """The world, its ZooKeeper, and the store of each broker that runs."""

    def __init__(self, seed: int, count: int, **settings: Any) -> None:
        self.world = World(seed)
        self.zookeeper = SimulatedZooKeeper(self.world.loop, self.world.network)
        self.ids = list(range(count))
        self.store_by_id: dict[int, ZooKeeperMetadataStore] = {}
        self.settings = settings
        self.rules = Rules(self)
        self.rebalance_seconds = math.inf

    def run(self, story: Callable[[], Awaitable[T]]) -> T:
        async def told() -> T:
            return await story()

        return self.world.run(told())

    # -- brokers --------------------------------------------------------------------------------

    def machine(self, broker_id: int) -> Machine:
        return self.world.machine(f"b{broker_id}")

    def start(self, broker_id: int, *, has_lost_tail: bool = False) -> None:
        async def program(machine: Machine) -> None:
            store = await ZooKeeperMetadataStore.open(
                self._connect,
                ControllerSettings(broker_id=broker_id, **self.settings),
                _Source(self),
                clock=machine.clock,
                randomness=machine.randomness,
                session_timeout_ms=int(TIMEOUT_SECONDS * 1000),
                rebalance_seconds=self.rebalance_seconds,
            )
            self.store_by_id[broker_id] = store
            self.rules.follow(broker_id, store)
            await store.run(new_broker(broker_id), has_lost_tail=has_lost_tail)

        task = self.machine(broker_id).start(program)
        task.add_done_callback(self.rules.on_end)

    def start_all(self) -> None:
        for broker_id in self.ids:
            self.start(broker_id)

    def kill(self, broker_id: int) -> None:
        self.store_by_id.pop(broker_id, None)
        self.machine(broker_id).kill()

    def cut_power(self, broker_id: int) -> None:
        self.store_by_id.pop(broker_id, None)
        self.machine(broker_id).cut_power()

    async def _connect(self) -> Any:
        return self.zookeeper.connect(TIMEOUT_SECONDS)

    # -- requests of clients --------------------------------------------------------------------

    def controllers(self) -> list[int]:
        """Return the brokers that consider themselves the controller."""
        return [one for one, store in self.store_by_id.items() if store.term is not None]

    async def execute(
        self, broker_id: int, decide: Callable[[Controller], Decision[MetadataRecord, T]]
    ) -> T:
        """Execute a decision in a broker's own process; TimeoutError if it does not respond."""
        process = self.machine(broker_id).process
        assert process is not None
        loop = self.world.loop
        store = self.store_by_id[broker_id]
        task = process.context.run(loop.create_task, store.execute(decide))
        await asyncio.wait([task], timeout=2 * TIMEOUT_SECONDS)
        if not task.done():
            raise TimeoutError
        return task.result()

    async def until(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        """Wait for a condition, which must hold soon."""
        for _ in range(int(seconds * 10)):
            if holds():
                return
            await self.world.elapse(0.1)
        raise AssertionError(f"not within {seconds} s: {self.describe()}")

    async def until_settled(self, seconds: float = 60) -> None:
        """Wait until there is one controller, and all running brokers have the same image."""
        await self.until(self.is_settled, seconds)

    def is_settled(self) -> bool:
        running = [one for one in self.ids if self.machine(one).is_running]
        stores = [self.store_by_id[one] for one in running if one in self.store_by_id]
        if len(stores) < len(running) or len(self.controllers()) != 1:
            return False
        images = [store.image for store in stores]
        serving = [one.broker_id for one in images[0].brokers.values() if not one.is_fenced]
        return all(image == images[0] for image in images) and sorted(serving) == running

    def describe(self) -> str:
        return ", ".join(
            f"b{one}: epoch {store.controller_epoch}, at {store.image.end_offset}, "
            f"term {store.term and store.term.epoch}"
            for one, store in self.store_by_id.items()
        )


def new_broker(broker_id: int) -> BrokerImage:
    endpoint = Endpoint("PLAINTEXT", f"b{broker_id}", 9092, 0)
    levels = CLAIMED_LEVELS
    incarnation_id = uuid_of(100 + broker_id)
    return BrokerImage(broker_id, -1, incarnation_id, (endpoint,), levels_by_feature=levels)


def in_sync_request(
    image: ClusterImage, topic: str, number: int, in_sync: Sequence[int]
) -> AlterPartitionRequest:
    """Return a partition leader's request for this ISR."""
    partition = image.topics[topic].partitions[number]
    members = [
        BrokerState(broker_id=one, broker_epoch=image.brokers[one].broker_epoch)
        for one in partition.replicas
        if one in in_sync
    ]
    leader = image.brokers[partition.leader]
    wanted = AlterPartitionRequestPartition(
        partition_index=number,
        leader_epoch=partition.leader_epoch,
        new_isr_with_epochs=members,
        partition_epoch=partition.partition_epoch,
    )
    topics = [
        AlterPartitionRequestTopic(topic_id=image.topics[topic].topic_id, partitions=[wanted])
    ]
    return AlterPartitionRequest(
        broker_id=leader.broker_id, broker_epoch=leader.broker_epoch, topics=topics
    )


async def news_of(feed: MetadataFeed, seconds: float) -> None:
    """Wait for the next decision, or until the timeout."""
    is_news = asyncio.Event()
    feed.on_news(is_news.set)
    with suppress(TimeoutError):
        await asyncio.wait_for(is_news.wait(), seconds)


class _Source:
    """Pulls from another store: a request, a wait at the other store, a response."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def pull(self, controller: BrokerImage, epoch: int, offset: int) -> Batches | Snapshot:
        world, process = self._stores.world, current_process()
        asked = world.machine(f"b{controller.broker_id}").process
        there = world.network.link(process.name, f"b{controller.broker_id}")
        answered: asyncio.Future[Batches | Snapshot] = world.loop.create_future()
        if asked is not None and not there.is_blocked:
            answering = _Answering(self._stores, controller.broker_id, process, answered)
            begin = partial(answering.begin, epoch, offset)
            world.loop.call_later(there.draw_delay(), begin, context=asked.context)
        await asyncio.wait([answered], timeout=PATIENCE_SECONDS)
        if not answered.done():
            raise TimeoutError(f"b{controller.broker_id} does not answer")
        return answered.result()


@dataclass
class _Answering:
    """A pull, on the controller's side."""

    stores: Stores
    broker_id: int
    asker: Any
    answered: "asyncio.Future[Batches | Snapshot]"

    def begin(self, epoch: int, offset: int) -> None:
        self.stores.world.loop.create_task(self.answer(epoch, offset))

    async def answer(self, epoch: int, offset: int) -> None:
        store = self.stores.store_by_id.get(self.broker_id)
        term = None if store is None else store.term
        if term is None:
            self.send(None)
            return
        if (epoch, offset) == (term.epoch, term.feed.end_offset):
            await news_of(term.feed, LONG_POLL_SECONDS)
        found = term.feed.read(epoch, offset) or term.feed.snapshot()
        self.send(None if term.is_over else found)

    def send(self, found: Batches | Snapshot | None) -> None:
        network = self.stores.world.network
        back = network.link(f"b{self.broker_id}", self.asker.name)
        if not back.is_blocked:
            self.stores.world.loop.call_later(
                back.draw_delay(), self.arrive, found, context=self.asker.context
            )

    def arrive(self, found: Batches | Snapshot | None) -> None:
        if self.answered.done():
            return
        if found is None:
            self.answered.set_exception(ApiError(ErrorCode.NOT_CONTROLLER, "not here"))
        else:
            self.answered.set_result(found)


@dataclass
class Acknowledged:
    """A topic in a response to a client, and the metadata's end offset at that time."""

    offset: int
    is_there: bool


class Rules(MetadataInvariants):
    """The invariants at every moment (M9, M10), and that no acknowledged change is lost."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores.zookeeper.tree, lambda one: stores.machine(one).process)
        self.acknowledged: dict[str, Acknowledged] = {}

    def follow(self, broker_id: int, store: ZooKeeperMetadataStore) -> None:
        super().follow(broker_id, store)
        store.subscribe(lambda image, _: self._look_for_told(broker_id, image))

    def on_end(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self.broken.append(f"a store ended: {task.exception()!r}")

    def check(self) -> None:
        assert not self.broken, self.broken[:3]

    def _look_for_told(self, broker_id: int, image: ClusterImage) -> None:
        for name, told in self.acknowledged.items():
            if image.end_offset >= told.offset and (name in image.topics) != told.is_there:
                self.broken.append(f"b{broker_id}: {name} was told, and is not so any more")
