"""A broker loses one of its two disks: other brokers lead its partitions, nothing else changes."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing.cluster import Cluster
from tests.clients.cli_calls import call
from tests.cluster.load import Load
from tests.cluster.modes import IN_A_QUORUM, IN_BOTH_MODES
from tests.cluster.stories import counted
from tests.cluster.watching import BROKERS, Watcher, settings_of

QUICK = {"replica.high.watermark.checkpoint.interval.ms": "200"}
"""A broker does not notice the failure of an idle disk."""
STAYS_SECONDS = 1.5
"""Within this time lost replicas are checked three times."""


def folders(cluster: Cluster, broker: int) -> list[Path]:
    data_dir = cluster.brokers[broker].data_dir
    return [data_dir, data_dir.with_name(f"{data_dir.name}-second")]


def folder_of(cluster: Cluster, broker: int, partition: str) -> Path:
    (found,) = [one for one in folders(cluster, broker) if (one / partition).exists()]
    return found


def move(cluster: Cluster, broker: int, partition: str, folder: Path) -> None:
    """Move a replica to a disk: the first disk has the metadata of a node in a quorum, too."""
    topic, _, number = partition.rpartition("-")
    where = ("--broker", str(broker), "--log-dir", str(folder), "--wait")
    call("partition", "move", f"{topic}:{number}", *where, brokers=cluster.bootstrap_servers)
    assert folder_of(cluster, broker, partition) == folder


def stays_in_sync(watcher: Watcher, topic: str, brokers: set[int]) -> None:
    """Check for a while that exactly these brokers are in sync."""
    deadline = time.monotonic() + STAYS_SECONDS
    while time.monotonic() < deadline:
        assert watcher.in_sync(topic) == brokers
        time.sleep(0.01)


@pytest.fixture(scope="module")
def running(has_zookeeper: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    cluster = Cluster(
        BROKERS,
        settings_of(zookeeper=has_zookeeper) | QUICK,
        data_dir=folder,
        zookeeper=has_zookeeper,
    )
    for number, broker in cluster.brokers.items():
        broker.settings["log.dirs"] = ",".join(map(str, folders(cluster, number)))
    with cluster:
        yield cluster


def lose(folder: Path) -> None:
    """Delete a directory in which a broker makes files meanwhile."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


@IN_BOTH_MODES
def test_others_lead_what_was_on_a_disk_that_fails(cluster: Cluster, watcher: Watcher) -> None:
    watcher.create_topic("torn", [[1, 2, 3], [1, 2, 3]])
    kept, lost = folders(cluster, 1)
    move(cluster, 1, "torn-0", lost)
    move(cluster, 1, "torn-1", kept)
    broker = cluster.brokers[1]
    with Load(cluster.bootstrap_servers, "torn", 2) as load:
        lose(lost)
        watcher.wait_until(lambda: watcher.leader("torn", 0) in {2, 3})
        stays_in_sync(watcher, "torn", {2, 3})
        load.goes_on()
        assert (watcher.leader("torn", 1), watcher.in_sync("torn", 1)) == (1, {1, 2, 3})

        broker.stop()
        lost.write_text("nothing that could be a folder")
        broker.start()
        watcher.wait_until(lambda: watcher.in_sync("torn", 1) == {1, 2, 3})
        assert watcher.in_sync("torn", 0) == {2, 3}
        assert not (folder_of(cluster, 1, "torn-1") / "torn-0").exists()

        broker.stop()
        lost.unlink()
        broker.start()
        watcher.wait_until_whole()
    counted(load)


@IN_A_QUORUM
def test_a_topic_goes_on_without_the_last_one_if_it_says_so(
    cluster: Cluster, watcher: Watcher
) -> None:
    careless = {"min_insync_replicas": "1", "unclean_leader_election_enable": "true"}
    watcher.create_topic("careless", [[1, 2]], **careless)
    _, lost = folders(cluster, 1)
    move(cluster, 1, "careless-0", lost)
    cluster.brokers[2].stop()
    watcher.wait_until(lambda: watcher.in_sync("careless") == {1})
    lose(lost)
    assert watcher.leader("careless") == 1, "nobody else is there"
    cluster.brokers[2].start()
    watcher.wait_until(lambda: watcher.leader("careless") == 2)
    stays_in_sync(watcher, "careless", {2})

    cluster.brokers[1].stop()
    lost.mkdir(exist_ok=True)
    cluster.brokers[1].start()
    watcher.wait_until_whole()
