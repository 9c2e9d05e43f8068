"""A full log dir: its replicas leave the ISR and stop fetching, at a limited rate of change."""

import asyncio
import errno
from collections.abc import Iterable
from dataclasses import replace

import pytest

from ottla.broker.controller.controller_client import ReplicaName
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.metadata_applier import PartitionRoles
from ottla.broker.replication.full_log_dirs import (
    LOOK_MS,
    RELAPSE_MS,
    WAIT_MS_MAX,
    WAIT_MS_MIN,
    FullLogDirs,
)
from ottla.broker.replication.replica_fetchers import Hold
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import FULL_DIRECTORY
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.replication.partition import Partition
from ottla.simulation.world.disk import SimulatedDisk
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.storage.log_dirs.log_dirs import PROBE_BYTES, PROBE_FILE, LogDirs
from tests.log_building import batch
from tests.metadata_building import InlineExecutor

NODE = 1
TOPIC_ID = b"sixteen bytes id"
NAMES = [TopicPartition("orders", number) for number in range(3)]
ALL = PartitionImage(replicas=(NODE, 2, 3), isr=(NODE, 2, 3), leader=NODE)


class World:
    """Two log dirs on one disk, partitions in both, and a controller that records its requests."""

    def __init__(self, *states: PartitionImage, min_isr: int = 1) -> None:
        self.now = 0
        self.disk = SimulatedDisk()
        self.left: list[int] = []
        self.held: set[TopicPartition] = set()
        self.is_away = False
        self.partitions = HostedPartitions()
        config = TopicConfig(min_insync_replicas=min_isr)
        self.dirs = LogDirs(self.disk, ["/a", "/b"])
        self.dirs.open(lambda _: config, now_ms=0)
        roles = PartitionRoles(NODE, self, lambda _: None)
        for name, folder in zip(NAMES, ("/a", "/b", "/a"), strict=True):
            (chosen,) = [one for one in self.dirs.dirs if one.path == folder]
            log = chosen.create(name, TOPIC_ID, config, 0)
            self.partitions.add(roles.new(name, TOPIC_ID, log))
        topic = TopicImage("orders", TOPIC_ID, states or (ALL, ALL, ALL))
        self.image = replace(ClusterImage("cluster"), topics={"orders": topic})
        self.folders = FullLogDirs(
            NODE,
            lambda: self.image,
            self.partitions,
            self.dirs,
            self,
            InlineExecutor(),
            self.leave_isr,
            self,
        )

    async def leave_isr(self, lost: Iterable[ReplicaName], directory_id: bytes) -> None:
        assert directory_id == FULL_DIRECTORY
        assert self.held >= {NAMES[number] for _, number in lost}
        if self.is_away:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "nobody answers")
        self.left = [number for _, number in lost]

    def hold(self, partition: Partition, hold: Hold) -> None:
        assert hold is Hold.FULL_DISK
        self.held.add(partition.name)

    def release(self, partition: Partition, hold: Hold) -> None:
        assert hold is Hold.FULL_DISK
        self.held.discard(partition.name)

    def now_ms(self) -> int:
        return self.now

    monotonic_ms = now_ms

    def monotonic_ns(self) -> int:
        return self.now * 1_000_000

    def look(self) -> list[int]:
        """Check once; return the reported partitions."""
        self.left = []
        asyncio.run(self.folders.look())
        self.now += LOOK_MS
        return sorted(self.left)

    def fill(self, folder: str = "/a") -> None:
        """Make writes to the log dir fail with ENOSPC, and let one of its logs hit the error."""
        self.disk.faults.fail_on(OperationKind.WRITE, folder, errno.ENOSPC)
        (name, *_) = next(one for one in self.dirs.dirs if one.path == folder).hosted
        with pytest.raises(ApiError):
            self.partitions.get(name).log.append_as_leader(batch(), 0, 0)

    def full_for(self) -> int:
        """Return how long the log dir still counts as full after it has room again."""
        began = self.now
        self.disk.faults.heal()
        while self.look():
            pass
        return self.now - began


def test_all_of_a_full_folder_leave_and_nothing_of_another() -> None:
    world = World()
    assert world.look() == []
    world.fill()
    assert world.look() == [0, 2]
    assert world.look() == [0, 2], "it is told until the metadata shows it"
    assert world.held == {NAMES[0], NAMES[2]}


def test_a_replica_that_cannot_leave_stays_and_follows() -> None:
    smallest = replace(ALL, isr=(NODE, 2))
    out = replace(ALL, isr=(2, 3), leader=2)
    world = World(smallest, ALL, out, min_isr=2)
    world.fill()
    assert world.look() == []
    assert world.held == {NAMES[2]}
    alone = PartitionImage(replicas=(NODE,), isr=(NODE,), leader=NODE)
    world = World(alone, ALL, replace(ALL, isr=(NODE,)))
    world.fill()
    assert world.look() == []
    assert world.held == set()


def test_it_takes_part_again_when_there_is_room_and_not_before() -> None:
    world = World()
    world.fill()
    for _ in range(20):
        assert world.look() == [0, 2]
    world.disk.faults.heal()
    assert world.look() == []
    assert world.held == set()
    assert all(one.log.has_room for one in world.partitions)
    assert PROBE_FILE not in world.disk.list_directory("/a")


def test_a_few_free_bytes_are_no_room() -> None:
    world = World()
    world.fill()
    assert world.look() == [0, 2]
    world.disk.faults.heal()
    world.disk.capacity_bytes = PROBE_BYTES
    world.now += WAIT_MS_MIN
    assert world.look() == [0, 2]
    world.disk.capacity_bytes = None
    assert world.look() == []


def test_a_controller_that_does_not_answer_is_told_again() -> None:
    world = World()
    world.fill()
    world.is_away = True
    assert world.look() == []
    world.is_away = False
    assert world.look() == [0, 2]


def test_a_folder_that_is_full_again_and_again_waits_longer_and_longer() -> None:
    world = World()
    waits = []
    for _ in range(10):
        world.fill()
        waits.append(world.full_for())
    assert waits[0] <= WAIT_MS_MIN + LOOK_MS
    assert waits == sorted(waits)
    assert WAIT_MS_MAX <= waits[-1] <= WAIT_MS_MAX + LOOK_MS
    world.now += RELAPSE_MS + 1
    world.fill()
    assert world.full_for() == waits[0]


def test_a_full_folder_whose_disk_fails_is_left_to_those_who_deal_with_that() -> None:
    world = World()
    world.fill()
    assert world.look() == [0, 2]
    world.disk.faults.heal()
    world.disk.faults.fail_on(under="/a")
    world.now += WAIT_MS_MIN
    world.look()
    assert not world.dirs.dirs[0].is_online
    assert world.look() == []
