"""Partitions lead, follow, appear and disappear as the metadata says."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.live_config import LiveConfig
from ottla.broker.hosting.metadata_applier import MetadataApplier, PartitionRoles
from ottla.broker.hosting.partition_log_dirs import PartitionLogDirs
from ottla.broker.replication.replication_service import HighWatermarks
from ottla.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.broker_config import BrokerConfig
from ottla.replication.partition import Partition
from ottla.runtime.clock import SystemClock
from ottla.runtime.randomness import SystemRandomness
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.log_dirs.log_dirs import LogDirs
from tests.log_building import NOW_MS, batch, refusal

HERE, OTHER, THIRD = 1, 2, 3
EPOCH = 77
NAME = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
EMPTY = ClusterImage("cluster")
CREATED = [PartitionRecord(topic_id=TOPIC_ID, partition_id=0)]
CHANGED = [PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0)]


def image(leader: int, epoch: int = 0, replicas: tuple[int, ...] = (HERE, OTHER)) -> ClusterImage:
    state = PartitionImage(replicas, replicas, leader, epoch, partition_epoch=epoch)
    topic = TopicImage("orders", TOPIC_ID, (state,))
    brokers = {HERE: BrokerImage(HERE, EPOCH, bytes(16), ())}
    topics = {"orders": topic}
    return replace(EMPTY, topics=topics, topics_by_id={TOPIC_ID: topic}, brokers=brokers)


class Followed:
    """Records the followed partitions, and fetches nothing."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int] = {}

    def follow(self, partition: Partition) -> None:
        self.leaders[partition.name] = partition.leader_id

    def forget(self, partition: Partition) -> None:
        self.leaders.pop(partition.name, None)


class Life:
    """One incarnation of a broker that hosts one partition."""

    def __init__(self, disk: SimulatedDisk, threads: ThreadPoolExecutor) -> None:
        self.broker_epoch = EPOCH
        self.followed = Followed()
        self.dirs = LogDirs(disk, ("/a",))
        self.partitions = HostedPartitions()
        self.high_watermarks = HighWatermarks(self.partitions, self.dirs, threads)
        self.folders = PartitionLogDirs(self.dirs, threads, SystemClock(), SystemRandomness())
        roles = PartitionRoles(
            HERE,
            SystemClock(),
            lambda _: None,
            broker_epoch=lambda: self.broker_epoch,
            following=self.followed,
            high_watermark_of=self.high_watermarks.noted,
        )
        config = LiveConfig(BrokerConfig.parse({}))
        self.follower = MetadataApplier(roles, self.folders, self.partitions, config)

    @property
    def partition(self) -> Partition:
        return self.partitions.get(NAME)

    def see(self, next_image: ClusterImage, records: list[MetadataRecord]) -> None:
        async def publish() -> None:
            await self.follower.prepare(next_image, records)
            self.follower.on_change(next_image, records)
            await self.folders.stop()

        asyncio.run(publish())

    def write(self) -> None:
        self.partition.append_as_leader(batch(), NOW_MS)


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


def test_a_replica_that_does_not_lead_follows(life: Life) -> None:
    life.see(image(OTHER), CREATED)
    assert life.followed.leaders == {NAME: OTHER}
    assert refusal(life.write) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert life.partition.log.epochs.entries == (), "it learns epochs by following"


def test_leadership_comes_and_goes_at_the_publication(life: Life) -> None:
    life.see(image(OTHER), CREATED)
    life.see(image(HERE, 1), CHANGED)
    assert not life.followed.leaders
    life.write()
    assert life.partition.high_watermark == 0, "the other one does not have it yet"
    life.see(image(THIRD, 2, (HERE, OTHER, THIRD)), CHANGED)
    assert life.followed.leaders == {NAME: THIRD}
    assert refusal(life.write) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_partition_without_a_leader_follows_no_broker(life: Life) -> None:
    life.see(image(OTHER), CREATED)
    life.see(image(-1, 1), CHANGED)
    assert life.followed.leaders == {NAME: -1}
    assert life.partition.leader_epoch == 1


def test_what_was_heard_before_is_no_news(life: Life) -> None:
    life.see(image(HERE, 3), CREATED)
    life.see(image(OTHER, 2), CHANGED)
    life.write()
    assert not life.followed.leaders


def test_a_change_of_replicas_leaves_what_the_leader_knows(life: Life) -> None:
    life.see(image(HERE, 3), CREATED)
    known = life.partition.in_sync
    life.see(image(HERE, 3, (HERE, OTHER, THIRD)), CHANGED)
    assert life.partition.in_sync is known
    assert known is not None
    assert known.followers.keys() == {OTHER, THIRD}


def test_what_others_keep_from_now_on_goes_with_its_folder(life: Life, disk: SimulatedDisk) -> None:
    life.see(image(OTHER), CREATED)
    life.see(image(OTHER, 1, (OTHER, THIRD)), CHANGED)
    assert life.partitions.find(NAME) is None
    assert not life.followed.leaders
    assert not any(name.startswith("orders") for name in disk.list_directory("/a"))
    life.see(image(OTHER, 2), CHANGED)
    assert life.followed.leaders == {NAME: OTHER}


def test_a_topic_that_comes_back_elsewhere_leaves_nothing_here(life: Life) -> None:
    life.see(image(HERE), CREATED)
    other_id = bytes(range(1, 17))
    topic = replace(image(OTHER, 0, (OTHER, THIRD)).topics["orders"], topic_id=other_id)
    again = replace(EMPTY, topics={"orders": topic}, topics_by_id={other_id: topic})
    removed = RemoveTopicRecord(topic_id=TOPIC_ID)
    life.see(again, [removed, PartitionRecord(topic_id=other_id, partition_id=0)])
    assert life.partitions.find(NAME) is None


def test_a_broker_that_resigned_leads_nothing_until_its_next_election(life: Life) -> None:
    life.see(image(HERE, 1), CREATED)
    life.follower.resign()
    assert refusal(life.write) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    life.see(image(HERE, 1), CHANGED)
    assert refusal(life.write) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    life.see(image(HERE, 2), CHANGED)
    life.write()


def test_a_broker_does_not_go_on_leading_where_an_earlier_life_of_it_did(life: Life) -> None:
    life.broker_epoch = -1
    life.see(image(HERE, 1), CREATED)
    assert refusal(life.write) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    life.broker_epoch = EPOCH + 1
    life.follower.registered()
    assert refusal(life.write) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "the image knows another life"
    life.broker_epoch = EPOCH
    life.follower.registered()
    life.write()


def test_a_partition_without_another_replica_needs_no_registration(life: Life) -> None:
    life.broker_epoch = -1
    life.see(image(HERE, 1, (HERE,)), CREATED)
    life.write()


def test_the_high_watermark_is_restored_after_a_restart(
    life: Life, disk: SimulatedDisk, threads: ThreadPoolExecutor
) -> None:
    life.see(image(HERE, 0, (HERE,)), CREATED)
    for _ in range(3):
        life.write()
    asyncio.run(life.high_watermarks.checkpoint())
    life.write()
    assert (
        disk.open_file("/a/replication-offset-checkpoint").read_at(0, 99) == b"0\n1\norders 0 3\n"
    )
    disk.kill()
    again = Life(disk, threads)
    asyncio.run(again.follower.open_all(image(OTHER, 1)))
    assert again.partition.high_watermark == 3
    again.high_watermarks.close()
    assert again.followed.leaders == {NAME: OTHER}


def test_a_checkpoint_that_cannot_be_read_is_done_without(
    life: Life, disk: SimulatedDisk, threads: ThreadPoolExecutor
) -> None:
    life.see(image(HERE, 0, (HERE,)), CREATED)
    life.write()
    disk.create_file("/a/replication-offset-checkpoint").write_at(0, b"nonsense")
    disk.kill()
    again = Life(disk, threads)
    asyncio.run(again.follower.open_all(image(OTHER, 1)))
    assert again.partition.high_watermark == 0
    assert again.dirs.dirs[0].is_online
