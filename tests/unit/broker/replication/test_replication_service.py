"""Unusable replicas are reported to the controller while the cluster still counts on them."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest

from ottla.broker.controller.controller_client import ReplicaName
from ottla.broker.hosting.hosted_partitions import HostedPartitions
from ottla.broker.hosting.metadata_applier import PartitionRoles
from ottla.broker.replication.replication_service import OfflineReplicas
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import LOST_DIRECTORY, NO_LEADER
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.replication.partition import Partition
from ottla.runtime.clock import SystemClock
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.log_dirs.log_dirs import LogDirs

NODE = 1
TOPIC_ID = b"sixteen bytes id"
IN_SYNC = PartitionImage(replicas=(NODE, 2), isr=(NODE, 2), leader=NODE)
NAMES = [TopicPartition("orders", number) for number in range(3)]


def image_of(*partitions: PartitionImage) -> ClusterImage:
    topic = TopicImage("orders", TOPIC_ID, partitions)
    return replace(ClusterImage("cluster"), topics={"orders": topic})


class Told:
    """A controller that records reports or is unavailable; also records unfollowed partitions."""

    def __init__(self) -> None:
        self.lost: list[list[int]] = []
        self.unfollowed: list[TopicPartition] = []
        self.is_away = False

    def unfollow(self, partition: Partition) -> None:
        assert not self.lost, "the leader may have heard of it, and have been asked for more"
        self.unfollowed.append(partition.name)

    async def leave_isr(self, lost: Iterable[ReplicaName], directory_id: bytes) -> None:
        assert directory_id == LOST_DIRECTORY
        if self.is_away:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "nobody answers")
        assert {topic_id for topic_id, _ in lost} == {TOPIC_ID}
        self.lost.append([number for _, number in lost])


@pytest.fixture
def partitions() -> HostedPartitions:
    """Return three partitions: one with a failed disk, one never opened, and a good one."""
    dirs = LogDirs(SimulatedDisk(), ["/a"])
    dirs.open(lambda _: TopicConfig(), now_ms=0)
    roles = PartitionRoles(NODE, SystemClock(), lambda _: None)
    partitions = HostedPartitions()
    for name in (NAMES[0], NAMES[2]):
        log = dirs.create(name, TOPIC_ID, TopicConfig(), now_ms=0)
        partitions.add(roles.new(name, TOPIC_ID, log))
    partitions.get(NAMES[0]).log.take_offline(OSError("gone"))
    partitions.offline[NAMES[1]] = "a log folder is offline"
    return partitions


def told(
    partitions: HostedPartitions, *states: PartitionImage, controller: Told
) -> list[list[int]]:
    image = image_of(*states)
    replicas = OfflineReplicas(
        NODE, lambda: image, partitions, controller.leave_isr, controller.unfollow
    )
    asyncio.run(replicas.tell())
    return controller.lost


def test_what_failed_and_what_was_never_opened_is_told_and_nothing_else(
    partitions: HostedPartitions,
) -> None:
    controller = Told()
    assert [sorted(one) for one in told(partitions, *[IN_SYNC] * 3, controller=controller)] == [
        [0, 1]
    ]
    assert controller.unfollowed == [NAMES[0]]


def test_offline_replicas_that_no_partition_counts_on_are_not_reported(
    partitions: HostedPartitions,
) -> None:
    alone = PartitionImage(replicas=(NODE,), isr=(NODE,), leader=NODE)
    gone = replace(IN_SYNC, isr=(2,), leader=2)
    unled = replace(IN_SYNC, isr=(NODE,), leader=NO_LEADER)
    assert told(partitions, alone, gone, IN_SYNC, controller=Told()) == []
    assert told(partitions, unled, gone, IN_SYNC, controller=Told()) == []
    assert told(partitions, controller=Told()) == [], "the topic has fewer partitions"
    last = replace(IN_SYNC, isr=(NODE,))
    assert told(partitions, last, gone, IN_SYNC, controller=Told()) == [[0]]
    waiting = replace(last, leader=NO_LEADER, eligible_leader_replicas=(2,))
    assert told(partitions, waiting, gone, IN_SYNC, controller=Told()) == [[0]]


def test_a_controller_that_does_not_answer_is_told_again(partitions: HostedPartitions) -> None:
    controller = Told()
    controller.is_away = True
    assert told(partitions, *[IN_SYNC] * 3, controller=controller) == []
    controller.is_away = False
    assert len(told(partitions, *[IN_SYNC] * 3, controller=controller)) == 1
