"""Reads from ZooKeeper: by a broker before it registers, and by a new controller."""

import asyncio
from collections.abc import Sequence

import pytest

from ottla.broker.metadata_store.zookeeper.controller_term import ControllerTerm, win
from ottla.broker.metadata_store.zookeeper.registration import make_paths, register
from ottla.broker.metadata_store.zookeeper.znode_reads import READS_AT_ONCE_MAX, load, load_topics
from ottla.broker.metadata_store.zookeeper.znodes import (
    LiveBroker,
    UnreadableZnodeError,
    topic_path,
)
from ottla.environment.zookeeper import Create, Node, NoNodeError, Watch
from ottla.machines.controller.settings import ControllerSettings
from ottla.metadata.image import ClusterImage
from ottla.metadata.replay import replay
from ottla.simulation.world.zookeeper_tree import ZooKeeperTree
from ottla.wire.messages.create_topics import CreatableTopic
from tests.metadata_building import CLUSTER_ID, FixedClock, new_broker, new_topic, uuid_of
from tests.unit.broker.metadata_store.direct_session import DirectSession

TOPICS = (new_topic("plain", 3), new_topic("set", 1, retention_ms="4096"))


async def cluster_with_topics(
    tree: ZooKeeperTree, topics: Sequence[CreatableTopic] = TOPICS
) -> ClusterImage:
    """Let a controller create some topics; return its image."""
    session = DirectSession(tree)
    await make_paths(session)
    await register(session, LiveBroker(new_broker(1, uuid_of(9)), has_lost_tail=False), 0)
    office = await win(session, 1, 0)
    assert office is not None
    settings = ControllerSettings(broker_id=1)
    term = ControllerTerm(session, office, settings, FixedClock(), CLUSTER_ID)
    await term.begin()
    ids = [uuid_of(number) for number in range(1, len(topics) + 1)]
    await term.execute(lambda one: one.create_topics(topics, topic_ids=ids, start=0))
    return term.image


def test_who_has_not_registered_knows_who_keeps_what_and_how() -> None:
    async def story() -> None:
        tree = ZooKeeperTree()
        decided = await cluster_with_topics(tree)
        found = await load_topics(DirectSession(tree), CLUSTER_ID)
        assert found.topics.keys() == decided.topics.keys() == {"plain", "set"}
        for name, topic in found.topics.items():
            known = decided.topics[name]
            assert topic.topic_id == known.topic_id
            assert [one.replicas for one in topic.partitions] == [(1,)] * len(known.partitions)
            assert found.topic_settings(name) == decided.topic_settings(name)
        assert found.topic_settings("set") == {"retention.ms": "4096"}

    asyncio.run(story())


def test_a_topic_that_is_deleted_while_one_looks_is_done_without() -> None:
    class Late(DirectSession):
        async def get(self, path: str, watch: Watch | None = None) -> Node:
            if path == topic_path("plain"):
                raise NoNodeError(path)
            return await super().get(path, watch)

    async def story() -> None:
        tree = ZooKeeperTree()
        await cluster_with_topics(tree)
        assert (await load_topics(Late(tree), CLUSTER_ID)).topics.keys() == {"set"}

    asyncio.run(story())


def test_a_controller_waits_for_the_nodes_of_many_topics_together() -> None:
    class Far(DirectSession):
        waiting = waiting_max = rounds = 0

        async def get(self, path: str, watch: Watch | None = None) -> Node:
            if not self.waiting:
                self.rounds += 1
            self.waiting += 1
            self.waiting_max = max(self.waiting, self.waiting_max)
            await asyncio.sleep(0)
            self.waiting -= 1
            return await super().get(path, watch)

    async def story() -> None:
        tree = ZooKeeperTree()
        many = [new_topic(f"t{number}", 2, retention_ms="4096") for number in range(150)]
        decided = await cluster_with_topics(tree, many)
        far = Far(tree)
        loaded = await load(far)
        assert replay(ClusterImage(CLUSTER_ID), loaded.records, 0).topics == decided.topics
        assert far.waiting_max == READS_AT_ONCE_MAX
        assert far.rounds < 15

    asyncio.run(story())


def test_a_znode_that_a_broker_cannot_read_is_reported_with_its_path() -> None:
    async def story() -> None:
        session = DirectSession(ZooKeeperTree())
        await make_paths(session)
        await session.commit([Create(topic_path("broken"), b"?")])
        with pytest.raises(UnreadableZnodeError, match="/brokers/topics/broken"):
            await load_topics(session, CLUSTER_ID)

    asyncio.run(story())
