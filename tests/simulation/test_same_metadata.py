"""One trace of decisions gives the same metadata in every store (M11)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.machines.controller.features import FeatureUpdate
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.difference import records_between
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import NO_LEADER, MetadataRecord
from ottla.metadata.replay import replay
from ottla.model.api_error import ApiError
from ottla.model.identifiers import Offset
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.randomness import dice
from ottla.wire.messages import incremental_alter_configs as configs
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.create_partitions import CreatePartitionsTopic
from ottla.wire.messages.delete_topics import DeleteTopicState
from ottla.wire.messages.elect_leaders import ElectLeadersRequest
from tests.metadata_building import CLUSTER_ID, new_topic, open_store, uuid_of
from tests.replica_twin import ReplicaTwin, open_quorum_store
from tests.simulation.stores import Stores, in_sync_request, new_broker

STEPS = 80
Decide = Callable[[Controller], Decision[MetadataRecord, Any]]


class Triplets:
    """A cluster over ZooKeeper, an embedded store, and an active controller of a quorum."""

    def __init__(self, seed: int) -> None:
        self.dice = dice(seed, "triplets")
        self.stores = Stores(seed, 4)
        self.embedded = open_store(SimulatedDisk())
        self.replica = ReplicaTwin()
        self.quorum = open_quorum_store(
            self.replica,
            self.stores.world.machine("quorum").clock,
            bootstrap=lambda: records_between(ClusterImage(CLUSTER_ID), self.embedded.image),
        )
        self.number = 0
        self.steps: list[str] = []

    async def story(self) -> None:
        running = asyncio.ensure_future(self.quorum.run())
        self.replica.commits_at_once = True
        self.replica.lead(1)
        self.stores.start_all()
        await self.stores.until_settled()
        for broker_id in self.stores.ids:
            await self._register(broker_id, has_lost_tail=False)
        acts = [
            self.create, self.create, self.delete, self.grow, self.configure, self.configure,
            self.alter, self.alter, self.reassign, self.elect, self.allocate, self.stop, self.start,
            self.prefer,
        ]  # fmt: skip
        for _ in range(STEPS):
            act = self.dice.choice(acts)
            self.steps.append(act.__name__)
            await act()
            await self.stores.until_settled()
            assert seen(self.cluster) == seen(self.embedded.image), self.steps[-3:]
            assert seen(self.quorum.image) == seen(self.embedded.image), self.steps[-3:]
        running.cancel()
        await asyncio.wait([running])

    @property
    def cluster(self) -> ClusterImage:
        return self.stores.store_by_id[self.controller].image

    @property
    def controller(self) -> int:
        (controller,) = self.stores.controllers()
        return controller

    async def every(self, decide: Callable[[ClusterImage], Decide]) -> None:
        """Execute a decision in every store, each with its own broker epochs."""
        outcomes = []
        for image, execute in (
            (self.cluster, lambda one: self.stores.execute(self.controller, one)),
            (self.embedded.image, self.embedded.execute),
            (self.quorum.image, self.quorum.execute),
        ):
            try:
                outcomes.append(await execute(decide(image)))
            except ApiError as error:
                outcomes.append(error.code)
        assert outcomes[0] == outcomes[1] == outcomes[2], self.steps[-1]

    async def others(self, decide: Decide) -> None:
        """Execute a decision that the cluster over ZooKeeper comes to by itself."""
        await self.embedded.execute(decide)
        await self.quorum.execute(decide)

    # -- the events -----------------------------------------------------------------------------

    async def create(self) -> None:
        self.number += 1
        topic_id, start = uuid_of(self.number), self.dice.randrange(4)
        settings = {"min_insync_replicas": "2"} if self.dice.random() < 0.5 else {}
        count, factor = self.dice.randrange(1, 5), self.dice.randrange(1, 4)
        topic = new_topic(f"t{self.number}", count, factor, **settings)
        await self.every(
            lambda _: lambda one: one.create_topics([topic], topic_ids=[topic_id], start=start)
        )

    async def delete(self) -> None:
        if self.dice.random() < 0.3:
            wanted = [DeleteTopicState(name=name) for name in self._some_topic()]
            await self.every(lambda _: lambda one: one.delete_topics(wanted))

    async def grow(self) -> None:
        for name in self._some_topic():
            count = len(self.cluster.topics[name].partitions) + self.dice.randrange(3)
            wanted = [CreatePartitionsTopic(name=name, count=count)]
            await self.every(lambda _: lambda one: one.create_partitions(wanted, start=1))

    async def configure(self) -> None:
        (kind, name), setting, values = self.dice.choice(
            [
                *[((2, topic), "retention.ms", ["1", "2"]) for topic in self._some_topic()],
                *[((2, topic), "min.insync.replicas", ["1", "2"]) for topic in self._some_topic()],
                ((4, ""), "message.max.bytes", ["1000", "2000"]),
                ((4, "1"), "log.cleaner.threads", ["1", "2"]),
                ((32, "a/group: ü."), "consumer.session.timeout.ms", ["45001", "45002"]),
                ((32, ".."), "consumer.session.timeout.ms", ["45001", "45002"]),
            ]
        )
        value = self.dice.choice([*values, None])
        change = configs.AlterableConfig(
            name=setting, value=value, config_operation=1 if value is None else 0
        )
        wanted = [
            configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
        ]

        def decide(one: Controller) -> Decision[MetadataRecord, Any]:
            decision = one.incremental_alter_configs(wanted)
            return Decision(decision.records, repr(decision.response))

        await self.every(lambda _: decide)

    async def alter(self) -> None:
        for name in self._some_topic():
            partition = self.cluster.topics[name].partitions[0]
            others = [one for one in partition.replicas if self.dice.random() < 0.7]
            if partition.leader != NO_LEADER:
                in_sync = [partition.leader, *others]
                await self.every(
                    lambda image: (
                        lambda one: one.alter_partition(in_sync_request(image, name, 0, in_sync))
                    )
                )

    async def reassign(self) -> None:
        for name in self._some_topic():
            replicas = self.dice.choice([None, self.dice.sample(self.stores.ids, 2)])
            wanted = ReassignablePartition(partition_index=0, replicas=replicas)
            request = AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=name, partitions=[wanted])]
            )
            await self.every(lambda _: lambda one: one.reassign_partitions(request))

    async def elect(self) -> None:
        request = ElectLeadersRequest(election_type=self.dice.randrange(2), topic_partitions=None)

        def decide(one: Controller) -> Decision[MetadataRecord, Any]:
            decision = one.elect_leaders(request)
            return Decision(decision.records, sorted(map(repr, decision.response)))

        await self.every(lambda _: decide)

    async def prefer(self) -> None:
        await self.every(lambda _: lambda one: one.prefer_leaders())
        level, upgrade_type = self.dice.randrange(3), self.dice.choice([1, 2])
        update = FeatureUpdate("transaction.version", level, upgrade_type)
        await self.every(lambda _: lambda one: one.update_features([update]))

    async def allocate(self) -> None:
        broker_id = self.controller
        await self.every(
            lambda image: (
                lambda one: one.allocate_producer_ids(
                    broker_id, image.brokers[broker_id].broker_epoch
                )
            )
        )

    async def stop(self) -> None:
        """Kill a broker, also the controller, unless few are left."""
        running = [one for one in self.stores.ids if self.stores.machine(one).is_running]
        if len(running) > 2:
            broker_id = self.dice.choice(running)
            self.stores.kill(broker_id)
            await self.others(lambda one: one.fence_broker(broker_id))

    async def start(self) -> None:
        stopped = [one for one in self.stores.ids if not self.stores.machine(one).is_running]
        if stopped:
            broker_id, has_lost_tail = self.dice.choice(stopped), self.dice.random() < 0.5
            self.stores.start(broker_id, has_lost_tail=has_lost_tail)
            await self._register(broker_id, has_lost_tail=has_lost_tail)

    async def _register(self, broker_id: int, *, has_lost_tail: bool) -> None:
        broker = replace(new_broker(broker_id), is_fenced=True)
        if has_lost_tail:
            await self.others(lambda one: one.forget_tail(broker_id))
        await self.others(lambda one: one.register_broker(broker))
        await self.others(lambda one: one.unfence_broker(broker_id))

    def _some_topic(self) -> list[str]:
        names = sorted(self.cluster.topics)
        return [self.dice.choice(names)] if names else []


def seen(image: ClusterImage) -> object:
    """Return all fields but offsets and broker epochs, which differ between stores.

    ZooKeeper forgets the addresses and levels of a broker that is away.
    """
    unlike = {"broker_epoch": 0, "endpoints": (), "incarnation_id": b"", "levels_by_feature": {}}
    brokers = {one.broker_id: replace(one, **unlike) for one in image.brokers.values()}
    return replace(image, cluster_id="", end_offset=0, brokers=brokers)


@pytest.mark.parametrize("seed", [0, 1, 2, 15, 33, 53])
def test_one_trace_gives_the_same_metadata_in_every_store(seed: int) -> None:
    triplets = Triplets(seed)
    triplets.stores.run(triplets.story)
    triplets.stores.rules.check()
    assert triplets.embedded.image.topics
    replayed = replay(ClusterImage(CLUSTER_ID), triplets.replica.data(), Offset(0))
    assert seen(replayed) == seen(triplets.quorum.image), "the log says the same"
