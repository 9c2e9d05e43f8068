"""Partitions follow the metadata, even with full or failed disks, or with extra logs on them."""

import asyncio
import errno
import logging
from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.live_config import LiveConfig
from ottla.broker.hosting.metadata_applier import MetadataApplier, PartitionRoles
from ottla.broker.hosting.partition_log_dirs import PartitionLogDirs
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.broker_config import BrokerConfig
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandomness
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.log_dirs.log_dirs import LogDirs
from tests.log_building import NOW_MS, batch, refusal

NODE = 1
EMPTY = ClusterImage("cluster")
NAMES = [TopicPartition("orders", number) for number in range(4)]


def with_topic(topic_id: bytes) -> ClusterImage:
    partition = PartitionImage(replicas=(NODE,), isr=(NODE,), leader=NODE)
    topic = TopicImage("orders", topic_id, (partition,) * len(NAMES))
    return replace(EMPTY, topics={"orders": topic}, topics_by_id={topic_id: topic})


OLD_ID, NEW_ID = b"old topic's id 1", b"new topic's id 2"
CREATED = [
    TopicRecord(name="orders", topic_id=OLD_ID),
    *(PartitionRecord(topic_id=OLD_ID, partition_id=number) for number in range(len(NAMES))),
]


class Life:
    """One incarnation of a broker's partitions, on two log dirs."""

    def __init__(self, disk: SimulatedDisk, threads: ThreadPoolExecutor) -> None:
        self.dirs = LogDirs(disk, ("/a", "/b"))
        self.partitions = HostedPartitions()
        self.notified: list[Hashable] = []
        self.folders = PartitionLogDirs(self.dirs, threads, SystemClock(), SystemRandomness())
        self.follower = MetadataApplier(
            PartitionRoles(NODE, SystemClock(), self.notified.append),
            self.folders,
            self.partitions,
            LiveConfig(BrokerConfig.parse({})),
        )

    def create(self) -> None:
        asyncio.run(self.follower.prepare(with_topic(OLD_ID), CREATED))

    def delete(self) -> None:
        async def run() -> None:
            await self.follower.prepare(EMPTY, [RemoveTopicRecord(topic_id=OLD_ID)])
            await self.folders.stop()

        asyncio.run(run())

    def codes(self) -> list[ErrorCode | None]:
        """Write to every partition; return the error codes."""
        return [refusal(self.write, name) for name in NAMES]

    def write(self, name: TopicPartition) -> None:
        self.partitions.get(name).append_as_leader(batch(), NOW_MS)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as running:
        yield running


@pytest.fixture
def life(disk: SimulatedDisk, threads: ThreadPoolExecutor) -> Life:
    life = Life(disk, threads)
    asyncio.run(life.follower.open_all(EMPTY))
    return life


def test_partitions_are_there_before_the_image_is_published(life: Life) -> None:
    life.create()
    assert life.codes() == [None] * 4
    assert [len(folder.hosted) for folder in life.dirs.dirs] == [2, 2]


def test_deleted_partitions_leave_nothing_behind(life: Life, disk: SimulatedDisk) -> None:
    life.create()
    life.delete()
    assert [name for name in life.notified if isinstance(name, TopicPartition)] == NAMES
    assert life.codes() == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4
    assert not any(name.startswith("orders") for name in disk.list_directory("/a"))


def test_a_replica_refused_by_a_full_disk_is_created_once_there_is_room(
    life: Life, disk: SimulatedDisk
) -> None:
    disk.capacity_bytes = 0
    life.create()
    assert life.codes() == [ErrorCode.KAFKA_STORAGE_ERROR] * 4
    assert len(life.dirs.online) == 2
    disk.capacity_bytes = None
    asyncio.run(life.follower.retry())
    assert life.codes() == [None] * 4
    assert not life.partitions.offline


def test_a_topic_that_never_was_is_forgotten_with_its_refusals(
    life: Life, disk: SimulatedDisk
) -> None:
    disk.capacity_bytes = 0
    life.create()
    life.delete()
    assert not life.partitions.offline
    asyncio.run(life.follower.retry())


def test_a_partition_in_a_folder_that_is_offline_is_not_made_elsewhere(
    life: Life, disk: SimulatedDisk, threads: ThreadPoolExecutor
) -> None:
    life.create()
    assert life.codes() == [None] * 4
    disk.kill()
    disk.faults.fail_on(under="/a", error=errno.EIO)
    again = Life(disk, threads)
    asyncio.run(again.follower.open_all(with_topic(OLD_ID)))
    codes = again.codes()
    assert (codes.count(None), codes.count(ErrorCode.KAFKA_STORAGE_ERROR)) == (2, 2)
    with pytest.raises(ApiError, match="offline"):
        again.partitions.get(next(iter(again.partitions.offline)))
    asyncio.run(again.follower.retry())
    changed = [PartitionChangeRecord(topic_id=OLD_ID, partition_id=number) for number in range(4)]
    asyncio.run(again.follower.prepare(with_topic(OLD_ID), changed))
    assert len(again.partitions.offline) == 2
    assert len(again.dirs.dirs[1].hosted) == 2
    again.delete()
    again.create()  # the topic is new: the failed log dir cannot hold any of its logs
    assert again.codes() == [None] * 4


def test_a_log_that_a_full_disk_kept_closed_is_deleted_with_its_topic(
    life: Life,
    disk: SimulatedDisk,
    threads: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    life.create()
    assert life.codes() == [None] * 4
    disk.kill()
    disk.faults.fail_on(OperationKind.WRITE, under=f"/a/{NAMES[0]}", error=errno.ENOSPC)
    again = Life(disk, threads)
    asyncio.run(again.follower.open_all(with_topic(OLD_ID)))
    assert again.codes() == [ErrorCode.KAFKA_STORAGE_ERROR, None, None, None]
    for _ in range(3):
        asyncio.run(again.follower.retry())
    told = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(told) == len(set(told)) <= 2, "once as the disk, and once as the folder says it"
    disk.faults.heal()
    again.delete()
    names = [name for folder in ("/a", "/b") for name in disk.list_directory(folder)]
    assert not [name for name in names if name.startswith("orders")]


def test_an_undeleted_replica_is_not_taken_for_a_new_topic(
    life: Life, disk: SimulatedDisk, threads: ThreadPoolExecutor
) -> None:
    life.create()
    assert life.codes() == [None] * 4
    disk.kill()
    again = Life(disk, threads)
    asyncio.run(again.follower.open_all(with_topic(NEW_ID)))
    assert [again.partitions.get(name).log.end_offset for name in NAMES] == [0] * 4
    assert sum(name.endswith("-stray") for name in disk.list_directory("/a")) == 2


def test_logs_follow_decisions_made_while_they_were_opened(
    life: Life, disk: SimulatedDisk, threads: ThreadPoolExecutor
) -> None:
    life.create()
    assert life.codes() == [None] * 4
    disk.kill()
    again = Life(disk, threads)

    async def open_logs() -> None:
        await again.follower.open_logs(with_topic(OLD_ID))
        assert not list(again.partitions)
        await again.follower.begin_with(with_topic(NEW_ID))
        await again.folders.stop()

    asyncio.run(open_logs())
    assert [again.partitions.get(name).log.end_offset for name in NAMES] == [0] * 4
    assert again.codes() == [None] * 4
    left = {name for folder in ("/a", "/b") for name in disk.list_directory(folder)}
    assert {name for name in left if name.startswith("orders")} == set(map(str, NAMES))


def test_what_others_got_while_logs_were_opened_is_gone(
    life: Life, disk: SimulatedDisk, threads: ThreadPoolExecutor
) -> None:
    life.create()
    disk.kill()
    again = Life(disk, threads)

    async def open_logs() -> None:
        await again.follower.open_logs(with_topic(OLD_ID))
        await again.follower.begin_with(EMPTY)
        await again.folders.stop()

    asyncio.run(open_logs())
    assert again.codes() == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4
    assert not any(name.startswith("orders") for name in disk.list_directory("/a"))
    again.create()
    assert again.codes() == [None] * 4
