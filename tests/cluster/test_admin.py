"""The admin client with a cluster: moves, elections, and brokers that die during its requests."""

from collections.abc import Iterator

import pytest

from ottla import (
    Admin,
    ApiError,
    ElectionType,
    ErrorCode,
    ItemsFailedError,
    OffsetSpec,
    TopicPartition,
)
from ottla.testing.cluster import Cluster
from tests.cluster.watching import Watcher


@pytest.fixture
def admin(cluster: Cluster, watcher: Watcher) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield admin


def create_through_a_failure(admin: Admin, topic: str) -> None:
    """Create a topic; after a lost response, the retry finds the topic of the first attempt."""
    try:
        admin.topics.create(topic, replication_factor=2)
    except ItemsFailedError as error:
        assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert len(admin.topics.describe(topic)[topic].partitions) == 1


def test_a_moved_partition_is_led_by_its_preferred_replica(admin: Admin, watcher: Watcher) -> None:
    name = TopicPartition("moving", 0)
    admin.topics.create("moving", assignments={0: [1, 2]})
    watcher.wait_until(lambda: watcher.in_sync("moving") == {1, 2})
    admin.partitions.reassign({name: [3, 1]})
    watcher.wait_until(lambda: name not in admin.partitions.reassignments([name]))
    watcher.wait_until(lambda: watcher.in_sync("moving") == {1, 3})
    try:
        admin.partitions.elect(ElectionType.PREFERRED, [name])
    except ItemsFailedError as error:
        assert error.code is ErrorCode.ELECTION_NOT_NEEDED  # the move has done so
    (found,) = admin.partitions.describe("moving")
    assert (found.leader, found.replicas) == (3, (3, 1))
    folders = admin.cluster.log_dirs()
    assert sorted(folders) == [1, 2, 3]
    (folder,) = folders[3]
    assert name in folder.size_by_partition


def test_the_dead_broker_takes_no_answers_of_the_others_with_it(
    admin: Admin, cluster: Cluster, watcher: Watcher
) -> None:
    names = [TopicPartition("lonely", number) for number in range(3)]
    admin.topics.create(
        "lonely", assignments={0: [1], 1: [2], 2: [3]}, configs={"min.insync.replicas": "1"}
    )
    assert len(admin.offsets.ends(names)) == 3
    dead = next(one for one in (1, 2, 3) if one != watcher.controller())
    cluster.brokers[dead].kill()
    assert set(admin.cluster.log_dirs()) == {1, 2, 3} - {dead}  # at once: it is still listed
    watcher.wait_until(lambda: watcher.leader("lonely", dead - 1) == -1)
    hasty = {"bootstrap.servers": cluster.bootstrap_servers, "default.api.timeout.ms": 2_000}
    with Admin(hasty) as impatient, pytest.raises(ItemsFailedError) as failure:
        impatient.offsets.delete_before(dict.fromkeys(names, 0))
    assert set(failure.value.done) == {name for name in names if name.partition != dead - 1}
    assert failure.value.code is ErrorCode.LEADER_NOT_AVAILABLE
    with pytest.raises(ItemsFailedError) as failure:
        admin.offsets.find(dict.fromkeys(names, OffsetSpec.LATEST), timeout_ms=500)
    assert set(failure.value.failed) == {TopicPartition("lonely", dead - 1)}
    described = admin.cluster.describe(include_fenced=True).brokers
    assert {row.broker_id for row in described if not row.is_fenced} == {1, 2, 3} - {dead}
    with pytest.raises(ApiError):
        admin.cluster.quorum()  # this cluster keeps its metadata in ZooKeeper


def test_another_controller_and_another_coordinator_are_found(
    admin: Admin, cluster: Cluster, watcher: Watcher
) -> None:
    admin.topics.create("before", replication_factor=3)
    admin.groups.commit("readers", {TopicPartition("before", 0): 0})
    for dead in (watcher.controller(), watcher.coordinator("readers")):
        if cluster.brokers[dead].is_running:
            cluster.brokers[dead].kill()
            create_through_a_failure(admin, f"after-{dead}")
            admin.groups.commit("readers", {TopicPartition("before", 0): dead})
            assert admin.groups.committed("readers")[TopicPartition("before", 0)].offset == dead
            cluster.brokers[dead].start()
            watcher.wait_until_whole()
    assert "readers" in {row.group_id for row in admin.groups.list()}
    assert admin.transactions.fence("nobody")["nobody"].epoch == 0
