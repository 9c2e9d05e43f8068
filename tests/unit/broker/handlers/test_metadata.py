"""Metadata for many topics yields to other requests."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.describing.metadata_view import MetadataView
from ottla.broker.handlers.metadata import DescribedTopics, MetadataHandler
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.yield_budget import TimeSlices
from ottla.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition
from ottla.simulation.world.disk import SimulatedDisk
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
)
from tests.log_building import LogFolder
from tests.metadata_building import CLUSTER_ID, ENDPOINT, uuid_of
from tests.taking_turns import PassingClock, turns_of_others

CONTEXT = RequestContext("User:ANONYMOUS", None, "127.0.0.1", "PLAINTEXT", 9, 0)
NAMES = [f"topic-{number}" for number in range(100)]

TOPIC_ID = b"\1" * 16
NAME = TopicPartition("orders", 0)


@pytest.mark.parametrize("names", [NAMES, None])
def test_others_have_their_turns_between_topics(names: list[str] | None) -> None:
    partitions = (PartitionImage((1,), (1,), 1),)
    topics = {name: TopicImage(name, uuid_of(n), partitions) for n, name in enumerate(NAMES)}
    image = ClusterImage(CLUSTER_ID, topics=topics)
    view = MetadataView(1, lambda: image, HostedPartitions())
    creation: Any = SimpleNamespace(is_automatic=False)
    unused: Any = None
    handler = MetadataHandler(
        view, creation, unused, DescribedTopics(view), TimeSlices(PassingClock())
    )
    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    work = handler.handle(CONTEXT, MetadataRequest(topics=wanted))
    answer, turns = asyncio.run(turns_of_others(work))
    assert len(answer.topics) == 100
    assert turns >= 10


def topic(*leaders: int) -> TopicImage:
    partitions = tuple(PartitionImage((1, 2), (1, 2), leader) for leader in leaders)
    return TopicImage("orders", TOPIC_ID, partitions)


def image_with(orders: TopicImage) -> ClusterImage:
    brokers = {number: BrokerImage(number, 1, b"\0" * 16, (ENDPOINT,)) for number in (1, 2)}
    topics, topics_by_id = {"orders": orders}, {TOPIC_ID: orders}
    return ClusterImage(CLUSTER_ID, topics=topics, topics_by_id=topics_by_id, brokers=brokers)


class World:
    """A broker with a cached response for one topic of two partitions."""

    def __init__(self) -> None:
        self.published = image_with(topic(1, 2))
        self.is_sure = True
        self.partitions = HostedPartitions()
        self.view = MetadataView(
            1, lambda: self.published, self.partitions, is_sure=lambda: self.is_sure
        )
        self.described = DescribedTopics(self.view)

    def ask(self) -> list[MetadataResponsePartition]:
        image = self.view.image
        told = self.described.partitions_of(image, image.topics["orders"])
        fresh = DescribedTopics(self.view).partitions_of(image, image.topics["orders"])
        assert told == fresh
        return told


@pytest.fixture
def world() -> World:
    return World()


def test_a_repeated_request_gets_the_cached_response(world: World) -> None:
    first = world.ask()
    assert [one.leader_id for one in first] == [1, 2]
    world.published = replace(world.published, end_offset=7)
    assert world.ask() is first


def test_another_leader_is_told_at_once(world: World) -> None:
    world.ask()
    orders = topic(2, 2)
    world.published = replace(
        world.published, topics={"orders": orders}, topics_by_id={TOPIC_ID: orders}
    )
    assert [one.leader_id for one in world.ask()] == [2, 2]


def test_a_fenced_broker_leads_nothing(world: World) -> None:
    world.ask()
    brokers = dict(world.published.brokers)
    brokers[2] = replace(brokers[2], is_fenced=True)
    world.published = replace(world.published, brokers=brokers)
    assert [one.leader_id for one in world.ask()] == [1, -1]
    assert [one.offline_replicas for one in world.ask()] == [[2], [2]]


def test_a_broker_in_doubt_sends_clients_away_and_takes_them_back(world: World) -> None:
    first = world.ask()
    world.is_sure = False
    assert [one.leader_id for one in world.ask()] == [-1, 2]
    world.is_sure = True
    assert world.ask() is first


def test_a_disk_that_fails_is_told_at_once(world: World) -> None:
    log = LogFolder(SimulatedDisk()).start()
    world.partitions.add(Partition(NAME, TOPIC_ID, log, lambda _: None))
    assert world.ask()[0].error_code == ErrorCode.NONE
    log.take_offline(OSError("gone"))
    assert world.ask()[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert world.ask()[1].error_code == ErrorCode.NONE


def test_what_could_not_be_made_here_is_offline_until_it_is(world: World) -> None:
    world.partitions.offline[NAME] = "full"
    assert [one.offline_replicas for one in world.ask()] == [[1], []]
    del world.partitions.offline[NAME]
    assert [one.offline_replicas for one in world.ask()] == [[], []]


def test_topics_that_are_gone_are_forgotten(world: World) -> None:
    for number in range(5):
        topic_id = bytes([number]) * 16
        orders = replace(topic(1, 2), topic_id=topic_id)
        world.published = replace(
            world.published, topics={"orders": orders}, topics_by_id={topic_id: orders}
        )
        world.ask()
    assert world.described.kept_count == 1
