"""The handling of a damaged replica by one broker."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from ottla.broker.controller.controller_client import ReplicaName
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.maintenance.log_scrubber import DamageCounts
from ottla.broker.replication.damaged_replicas import (
    ATTEMPTS_MAX,
    GIVE_UP_MS,
    LACKING_MS,
    LEAVE_MS_MAX,
    RETRY_MS,
    DamagedReplicas,
)
from ottla.broker.replication.replica_fetchers import Hold
from ottla.broker.replication.replica_repair import LackingError
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import DAMAGED_DIRECTORY, NO_LEADER
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.in_sync import Assignment
from ottla.replication.partition import Partition
from ottla.storage.files.damage import Damage
from ottla.storage.log.log import PartitionLog
from ottla.storage.recovery.repair import RepairError
from tests.log_building import fill, new_log
from tests.metadata_building import FixedClock

ME, OTHER, THIRD = 1, 2, 3
TOPIC_ID = b"sixteen bytes id"
NAME = TopicPartition("events", 0)


class World:
    """A partition with damage at offset 1; records the calls of controller, fetcher and repair."""

    def __init__(self, leader: int = ME, isr: tuple[int, ...] = (ME, OTHER, THIRD)) -> None:
        self.clock = FixedClock()
        self.log = new_log()
        fill(self.log, 10)
        self.partition = Partition(NAME, TOPIC_ID, self.log, lambda _: None)
        self.partitions = HostedPartitions()
        self.partitions.add(self.partition)
        self.counts = DamageCounts()
        self.left: list[bytes] = []
        self.held = False
        self.repairs = 0
        self.outcome: Callable[[PartitionLog], None] = mended
        self.replicas = DamagedReplicas(
            ME,
            lambda: self.image,
            self.partitions,
            self.leave,
            self,
            self.repair,
            self.clock,
            self.counts,
        )
        self.decide(leader, isr)
        self.damage(1)

    def damage(self, number: int) -> None:
        segment = next(iter(self.log.segments))
        size = segment.size_bytes // 3
        found = Damage(number * size, (number + 1) * size, number, number + 1)
        self.log.segments.fence_off(segment, found)

    def decide(self, leader: int, isr: tuple[int, ...]) -> None:
        state = PartitionImage(replicas=(ME, OTHER, THIRD), isr=isr, leader=leader)
        topic = TopicImage("events", TOPIC_ID, (state,))
        self.image = replace(ClusterImage("cluster"), topics={"events": topic})
        epoch = self.partition.leader_epoch + 1
        if leader == ME:
            self.partition.lead(epoch, Assignment(ME, (ME, OTHER, THIRD), isr, epoch))
        else:
            self.partition.follow(leader, epoch)

    def hold(self, _partition: Partition, hold: Hold) -> None:
        assert hold is Hold.DAMAGE
        self.held = True

    def release(self, _partition: Partition, hold: Hold) -> None:
        assert hold is Hold.DAMAGE
        self.held = False

    async def leave(self, replicas: Iterable[ReplicaName], directory_id: bytes) -> None:
        assert directory_id == DAMAGED_DIRECTORY
        assert self.held, "the leader would take it for in sync again"
        self.left += [topic_id for topic_id, _ in replicas]

    async def repair(self, partition: Partition) -> None:
        assert partition.in_sync is None
        self.repairs += 1
        self.outcome(self.log)

    def look(self, wait_ms: int = 0) -> None:
        self.clock.time_ms += wait_ms

        async def within() -> None:
            await self.replicas.look()
            for _ in range(5):
                await asyncio.sleep(0)

        asyncio.run(within())

    @property
    def code(self) -> ErrorCode:
        with pytest.raises(ApiError) as raised:
            self.log.read(1, 10, 1)
        return raised.value.code


def mended(log: PartitionLog) -> None:
    for segment in log.segments:
        segment.damage = ()


def fails(error: Exception) -> Callable[[PartitionLog], None]:
    def fail(_log: PartitionLog) -> None:
        raise error

    return fail


def test_a_leader_gives_way_and_is_repaired_when_another_leads() -> None:
    world = World()
    world.look()
    assert world.left == [TOPIC_ID]
    assert (world.held, world.repairs, world.counts.ranges) == (True, 0, 1)
    assert world.code is ErrorCode.KAFKA_STORAGE_ERROR, "a client is to ask for another leader"
    world.decide(OTHER, (OTHER, THIRD))
    world.look()
    assert (world.held, world.repairs, world.counts.repaired_ranges) == (False, 1, 1)
    world.look()
    assert (world.left, world.counts.ranges) == ([TOPIC_ID], 0)


def test_the_log_has_one_line_at_the_find_and_one_at_the_repair(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(leader=OTHER)
    with caplog.at_level(logging.INFO):
        world.look()
        world.look()
        world.decide(OTHER, (OTHER, THIRD))
        world.look()
        world.look()
    assert caplog.messages == [
        "events-0: offsets 1 to 2 are damaged on this broker",
        "events-0: offsets 1 to 2 are whole again, from broker 2",
    ]


def test_a_follower_leaves_before_it_is_repaired() -> None:
    world = World(leader=OTHER)
    world.look()
    assert (world.left, world.held, world.repairs) == ([TOPIC_ID], True, 0)
    world.decide(OTHER, (OTHER, THIRD))
    world.look()
    assert (world.held, world.repairs) == (False, 1)


def test_the_only_one_in_sync_stays_and_tells_readers() -> None:
    world = World(isr=(ME,))
    world.look()
    assert (world.left, world.held, world.repairs) == ([], False, 0)
    assert world.code is ErrorCode.CORRUPT_MESSAGE
    world.decide(ME, (ME, OTHER))
    world.look()
    assert world.left == [TOPIC_ID]


def test_without_a_leader_nothing_is_done() -> None:
    world = World(leader=NO_LEADER, isr=(OTHER,))
    world.look()
    assert (world.left, world.held, world.repairs) == ([], False, 0)


def test_readers_are_told_if_no_other_leader_comes_in_time() -> None:
    world = World()
    world.look()
    world.look(LEAVE_MS_MAX + 1)
    assert world.code is ErrorCode.CORRUPT_MESSAGE
    assert world.left == [TOPIC_ID] * 2


def test_a_leader_that_lacks_the_same_is_followed_until_another_is_in_sync() -> None:
    world = World(leader=OTHER, isr=(OTHER,))
    world.outcome = fails(LackingError("CORRUPT_MESSAGE"))
    world.look()
    assert (world.held, world.repairs) == (False, 1)
    world.decide(OTHER, (OTHER, ME))
    world.look(RETRY_MS)
    assert (world.left, world.held, world.repairs) == ([], False, 1)
    world.decide(OTHER, (OTHER, ME, THIRD))
    world.look()
    assert (world.left, world.held) == ([TOPIC_ID], True)


def test_it_is_tried_again_after_an_hour_if_nothing_changes() -> None:
    world = World(leader=OTHER, isr=(OTHER,))
    world.outcome = fails(LackingError("CORRUPT_MESSAGE"))
    world.look()
    world.look(LACKING_MS - 1)
    assert world.repairs == 1
    world.look(1)
    assert world.repairs == 2


@pytest.mark.parametrize("error", [RepairError("x"), OSError("gone"), ValueError("a bug")])
def test_a_repair_that_fails_is_tried_some_times_and_then_the_replica_follows(
    error: Exception,
) -> None:
    world = World(leader=OTHER, isr=(OTHER,))
    world.outcome = fails(error)
    world.look()
    world.look()
    assert (world.repairs, world.held) == (1, True)
    for _ in range(ATTEMPTS_MAX - 1):
        world.look(RETRY_MS)
    assert (world.repairs, world.held) == (ATTEMPTS_MAX, False)
    world.look(GIVE_UP_MS - 1)
    assert world.repairs == ATTEMPTS_MAX
    world.outcome = mended
    world.look(1)
    assert (world.repairs, world.counts.repaired_ranges) == (ATTEMPTS_MAX + 1, 1)


def test_one_whose_repair_has_failed_follows_but_does_not_lead() -> None:
    world = World(leader=OTHER, isr=(OTHER,))
    world.outcome = fails(OSError("gone"))
    for _ in range(ATTEMPTS_MAX):
        world.look(RETRY_MS)
    world.decide(OTHER, (OTHER, ME))
    world.look()
    assert (world.left, world.held) == ([], False)
    world.decide(ME, (OTHER, ME))
    world.look()
    assert (world.left, world.held) == ([TOPIC_ID], True)


def test_more_damage_begins_it_all_again() -> None:
    world = World(leader=OTHER, isr=(OTHER,))
    world.outcome = fails(LackingError("CORRUPT_MESSAGE"))
    world.look()
    world.damage(0)
    world.look()
    assert (world.repairs, world.counts.ranges) == (2, 2)


def test_damage_that_retention_takes_is_forgotten() -> None:
    world = World()
    world.look()
    world.log.advance_log_start(2)
    world.look()
    assert (world.held, world.counts.ranges) == (False, 0)
