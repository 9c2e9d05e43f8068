"""OffsetCommit: large commits are decided in parts, and stay in the order in which they came."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ottla.broker.coordinators.consumer_offsets_topic import ConsumerOffsetsTopic
from ottla.broker.coordinators.coordinator_log import CoordinatorLog
from ottla.broker.coordinators.coordinator_runtime import CoordinatorWorld
from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.handlers.offset_commit import PARTITIONS_AT_ONCE, OffsetCommitHandler
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.log_flusher import LogFlusher
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.notifier import Notifier
from ottla.concurrency.yield_budget import TimeSlices
from ottla.machines.groups.group_memory import GroupMemory
from ottla.machines.groups.machine import GroupMachine
from ottla.machines.groups.settings import GroupSettings
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.topic_names import CONSUMER_OFFSETS_TOPIC
from ottla.replication.in_sync import Assignment
from ottla.replication.partition import Partition
from ottla.wire.coordinator_records.codec import CONSUMER_OFFSETS, RecordCodec
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.records.compression.codecs import Compression
from tests.log_building import new_log
from tests.metadata_building import (
    InlineExecutor,
    add_topics,
    controller_of,
    new_topic,
    one_broker,
)
from tests.taking_turns import PassingClock, turns_of_others

GROUP = "readers"
COUNT = 8 * PARTITIONS_AT_ONCE
CONTEXT = RequestContext("", "client", "10.0.0.1", "", 8, 0)


class Commits:
    """A handler over one loaded partition of `__consumer_offsets`; the only replica is here."""

    def __init__(self) -> None:
        clock = PassingClock()  # each reading takes a millisecond
        notifier = Notifier(clock)
        name = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
        self.partition = Partition(name, bytes(16), new_log(segment_bytes=1 << 24), notifier.notify)
        self.partition.lead(1, Assignment(0, (0,), (0,), 0), 0)
        partitions = HostedPartitions()
        partitions.add(self.partition)
        controller = controller_of(one_broker())
        add_topics(controller, new_topic(CONSUMER_OFFSETS_TOPIC), new_topic("large", COUNT))
        store: Any = SimpleNamespace(image=controller.image)
        threads = InlineExecutor()
        self.coordinator = GroupCoordinator(
            CoordinatorWorld(
                partitions,
                SimpleNamespace(store=store),  # type: ignore[arg-type]
                notifier,
                clock,
                LogFlusher(threads, clock),
                lambda: True,
            ),
            GroupSettings(),
            ConsumerOffsetsTopic(1, 1 << 20),
            CoordinatorLog(RecordCodec(CONSUMER_OFFSETS), clock, threads, Compression.NONE),
            GroupMemory(128 << 20),
        )
        self.coordinator.open_if_there()
        self.handler = OffsetCommitHandler(self.coordinator, store, TimeSlices(clock))

    @classmethod
    async def ready(cls) -> "Commits":
        commits = cls()
        await until(lambda: bool(commits.coordinator.machines))
        return commits

    @property
    def machine(self) -> GroupMachine:
        (machine,) = self.coordinator.machines
        return machine

    async def handle(self, offset: int, *partitions: int) -> OffsetCommitResponse:
        topic = OffsetCommitRequestTopic(
            name="large",
            partitions=[
                OffsetCommitRequestPartition(partition_index=one, committed_offset=offset)
                for one in partitions
            ],
        )
        request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
        return await self.handler.handle(CONTEXT, request)

    def begin(self, offset: int, *partitions: int) -> "asyncio.Task[OffsetCommitResponse]":
        return asyncio.get_running_loop().create_task(self.handle(offset, *partitions))

    def offset(self, partition: int) -> int | None:
        found = self.machine.committed(GROUP, "large", partition)
        return None if found is None else found.offset


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not come to that")


def codes(response: OffsetCommitResponse) -> list[int]:
    (topic,) = response.topics
    return [one.error_code for one in topic.partitions]


def test_a_large_commit_leaves_time_to_others_and_has_one_answer_for_each_partition() -> None:
    async def story() -> None:
        commits = await Commits.ready()
        response, turns = await turns_of_others(commits.handle(7, *range(COUNT + 1)))
        assert turns > 1
        assert codes(response) == [0] * COUNT + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert all(commits.offset(one) == 7 for one in range(COUNT))

    asyncio.run(story())


def test_a_later_commit_of_the_group_is_not_overtaken_by_a_large_one() -> None:
    async def story() -> None:
        commits = await Commits.ready()
        large = commits.begin(7, *range(COUNT))
        await until(lambda: commits.offset(0) == 7)
        assert not large.done()
        small = commits.begin(8, COUNT - 1)
        assert codes(await small) == [0]
        assert codes(await large) == [0] * COUNT
        assert (commits.offset(COUNT - 2), commits.offset(COUNT - 1)) == (7, 8)

    asyncio.run(story())


def test_a_coordinator_that_goes_between_two_parts_refuses_all_of_them() -> None:
    async def story() -> None:
        commits = await Commits.ready()
        large = commits.begin(7, *range(COUNT))
        await until(lambda: commits.offset(0) == 7)
        commits.partition.follow(1, 1)
        commits.coordinator.open_if_there()
        assert codes(await large) == [ErrorCode.NOT_COORDINATOR] * COUNT

    asyncio.run(story())
