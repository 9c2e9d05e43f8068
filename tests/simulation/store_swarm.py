"""A swarm of faults and clients over several metadata stores: equal seeds, equal swarms."""

import asyncio
from collections.abc import Callable
from random import Random

from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.records import NO_LEADER, MetadataRecord
from ottla.model.api_error import ApiError
from ottla.simulation.world.randomness import dice
from ottla.simulation.world.zookeeper import MACHINE
from ottla.wire.messages import incremental_alter_configs as configs
from ottla.wire.messages.create_partitions import CreatePartitionsTopic
from ottla.wire.messages.delete_topics import DeleteTopicState
from tests.metadata_building import new_topic, uuid_of
from tests.simulation.stores import Acknowledged, Stores, in_sync_request

FAULT_SECONDS = 60.0
HEALING_SECONDS = 60.0
Decide = Callable[[Controller], Decision[MetadataRecord, object]]


class Swarm:
    """One run: faults for a while, then healing."""

    def __init__(self, seed: int) -> None:
        self.dice = dice(seed, "swarm")
        self.stores = Stores(seed, self.dice.choice([3, 3, 5]), default_replication_factor=3)
        self.stores.rebalance_seconds = self.dice.choice([7.0, 1e9])
        self.told = 0
        self.refused = 0
        self.faults = 0
        self._is_over = False
        self._number = 0
        self._doomed: dict[str, None] = {}
        self._config_told = 0

    def run(self) -> None:
        """Raise AssertionError for a violated invariant."""
        self.stores.run(self._story)
        self.stores.rules.check()

    async def _story(self) -> None:
        stores = self.stores
        stores.start_all()
        weights = [self.dice.random() for _ in range(5)]
        loop = stores.world.loop
        clients = [loop.create_task(self._client()) for _ in range(3)]
        nemeses = [loop.create_task(self._nemesis(weights)) for _ in range(2)]
        await stores.world.elapse(FAULT_SECONDS)
        self._is_over = True
        await asyncio.gather(*nemeses, *clients)
        stores.rules.check()
        await stores.until_settled(HEALING_SECONDS)
        self._look_at_the_end()

    def _look_at_the_end(self) -> None:
        image = self.stores.store_by_id[self.stores.controllers()[0]].image
        for name, told in self.stores.rules.acknowledged.items():
            assert (name in image.topics) == told.is_there, name
        for topic in image.topics.values():
            for partition in topic.partitions:
                # No replica lost its tail unless it reports so, and all of them run.
                is_led = partition.leader != NO_LEADER
                assert is_led or not partition.eligible_leader_replicas, (topic.name, partition)
        assert int(image.broker_settings(0).get("message.max.bytes", 0)) >= self._config_told

    # -- faults ---------------------------------------------------------------------------------

    async def _nemesis(self, weights: list[float]) -> None:
        faults = [
            self._kill,
            self._pause,
            self._cut_power,
            self._block_zookeeper,
            self._block_peers,
        ]
        while not self._is_over:
            await self.stores.world.elapse(self.dice.expovariate(0.4))
            (fault,) = self.dice.choices(faults, weights)
            victim = self._victim()
            if self.stores.machine(victim).is_running and not self._is_paused(victim):
                self.faults += 1
                await fault(victim, self.dice.choice([0.05, 1, 3, 6, 9, 15]) * self.dice.random())

    def _victim(self) -> int:
        """Draw a broker, mostly the controller: its faults find the most bugs."""
        controllers = self.stores.controllers()
        is_chased = controllers and self.dice.random() < 0.6
        return self.dice.choice(controllers if is_chased else self.stores.ids)

    def _is_paused(self, broker_id: int) -> bool:
        process = self.stores.machine(broker_id).process
        return process is not None and process.is_paused

    async def _kill(self, victim: int, seconds: float) -> None:
        self.stores.kill(victim)
        await self.stores.world.elapse(seconds)
        self.stores.start(victim)

    async def _cut_power(self, victim: int, seconds: float) -> None:
        self.stores.cut_power(victim)
        await self.stores.world.elapse(seconds)
        self.stores.start(victim, has_lost_tail=self.dice.random() < 0.3)

    async def _pause(self, victim: int, seconds: float) -> None:
        self.stores.machine(victim).pause()
        await self.stores.world.elapse(seconds)
        self.stores.machine(victim).resume()

    async def _block_zookeeper(self, victim: int, seconds: float) -> None:
        ways = [(f"b{victim}", MACHINE), (MACHINE, f"b{victim}")]
        await self._block(self.dice.choice([ways, ways[:1], ways[1:]]), seconds)

    async def _block_peers(self, victim: int, seconds: float) -> None:
        peers = [f"b{one}" for one in self.stores.ids if one != victim]
        there = [(f"b{victim}", one) for one in peers]
        back = [(one, f"b{victim}") for one in peers]
        await self._block(self.dice.choice([there + back, there, back]), seconds)

    async def _block(self, ways: list[tuple[str, str]], seconds: float) -> None:
        for way in ways:
            self.stores.world.network.block(*way)
        await self.stores.world.elapse(seconds)
        for way in ways:
            self.stores.world.network.unblock(*way)

    # -- clients --------------------------------------------------------------------------------

    async def _client(self) -> None:
        acts = [self._create, self._create, self._delete, self._grow, self._alter, self._configure]
        while not self._is_over:
            await self.stores.world.elapse(self.dice.expovariate(4))
            controllers = self.stores.controllers()
            if controllers:
                try:
                    await self.dice.choice(acts)(self.dice.choice(controllers), self.dice)
                    self.told += 1
                except (ApiError, TimeoutError, KeyError):
                    self.refused += 1

    async def _create(self, controller: int, stream: Random) -> None:
        self._number += 1
        topic_id = uuid_of(self._number)
        topics = self.stores.store_by_id[controller].image.topics.values()
        # One at a time is too large for a single commit: a controller can die in the middle.
        is_large = stream.random() < 0.1 and all(len(one.partitions) < 100 for one in topics)
        count = 300 if is_large else stream.choice([1, 3])
        topic = new_topic(f"t{self._number}", count, 3, retention_ms="9")
        results = await self.stores.execute(
            controller, lambda one: one.create_topics([topic], topic_ids=[topic_id], start=0)
        )
        if not results[0].error_code:
            self._acknowledge(controller, topic.name, is_there=True)

    async def _delete(self, controller: int, stream: Random) -> None:
        names = sorted(self.stores.store_by_id[controller].image.topics)
        if names:
            name = stream.choice(names)
            self.stores.rules.acknowledged.pop(name, None)
            self._doomed[name] = None
            wanted = [DeleteTopicState(name=name)]
            results = await self.stores.execute(controller, lambda one: one.delete_topics(wanted))
            if not results[0].error_code:
                self._acknowledge(controller, name, is_there=False)

    def _acknowledge(self, controller: int, name: str, *, is_there: bool) -> None:
        """Record a response to a client, unless another client has begun to delete the topic."""
        store = self.stores.store_by_id.get(controller)
        if store is not None and not (is_there and name in self._doomed):
            offset = store.image.end_offset
            self.stores.rules.acknowledged[name] = Acknowledged(offset, is_there)

    async def _grow(self, controller: int, stream: Random) -> None:
        topics = list(self.stores.store_by_id[controller].image.topics.values())
        if topics:
            topic = stream.choice(topics)
            wanted = [CreatePartitionsTopic(name=topic.name, count=len(topic.partitions) + 1)]
            await self.stores.execute(
                controller, lambda one: one.create_partitions(wanted, start=0)
            )

    async def _alter(self, controller: int, stream: Random) -> None:
        image = self.stores.store_by_id[controller].image
        led = [topic for topic in image.topics.values() if topic.partitions[0].leader != NO_LEADER]
        if led:
            topic = stream.choice(led)
            leader = topic.partitions[0].leader
            in_sync = [leader, *stream.sample(self.stores.ids, 2)]
            request = in_sync_request(image, topic.name, 0, in_sync)
            await self.stores.execute(controller, lambda one: one.alter_partition(request))

    async def _configure(self, controller: int, _: Random) -> None:
        self._number += 1
        value = 1_000_000 + self._number
        setting = configs.AlterableConfig(name="message.max.bytes", value=str(value))
        wanted = [
            configs.AlterConfigsResource(resource_type=4, resource_name="", configs=[setting])
        ]
        outcomes = await self.stores.execute(
            controller, lambda one: one.incremental_alter_configs(wanted)
        )
        assert outcomes[0].error is None, outcomes
        self._config_told = max(self._config_told, value)
