"""A broker loses one of its two disks: other brokers lead its partitions, nothing else changes."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing.cluster import Cluster
from tests.clients.cli_calls import call
from tests.cluster.load import Load
from tests.cluster.stories import counted
from tests.cluster.watching import BROKERS, SETTINGS, Watcher

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


def stays_in_sync(watcher: Watcher, topic: str, brokers: set[int]) -> None:
    """Check for a while that exactly these brokers are in sync."""
    deadline = time.monotonic() + STAYS_SECONDS
    while time.monotonic() < deadline:
        assert watcher.in_sync(topic) == brokers
        time.sleep(0.01)


@pytest.fixture(scope="module")
def running(needs_zookeeper: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(
        BROKERS, SETTINGS | QUICK, data_dir=tmp_path_factory.mktemp("cluster"), zookeeper=True
    )
    for number, broker in cluster.brokers.items():
        broker.settings["log.dirs"] = ",".join(map(str, folders(cluster, number)))
    with cluster:
        yield cluster


def test_others_lead_what_was_on_a_disk_that_fails(cluster: Cluster, watcher: Watcher) -> None:
    watcher.create_topic("torn", [[1, 2, 3], [1, 2, 3]])
    lost = folder_of(cluster, 1, "torn-0")
    (kept,) = set(folders(cluster, 1)) - {lost}
    # A broker that learns of one partition at a time may put both on one disk.
    to_kept = ("torn:1", "--broker", "1", "--log-dir", str(kept), "--wait")
    call("partition", "move", *to_kept, brokers=cluster.bootstrap_servers)
    assert folder_of(cluster, 1, "torn-1") == kept
    broker = cluster.brokers[1]
    with Load(cluster.bootstrap_servers, "torn", 2) as load:
        shutil.rmtree(lost)
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


def test_a_topic_goes_on_without_the_last_one_if_it_says_so(
    cluster: Cluster, watcher: Watcher
) -> None:
    careless = {"min_insync_replicas": "1", "unclean_leader_election_enable": "true"}
    watcher.create_topic("careless", [[1, 2]], **careless)
    cluster.brokers[2].stop()
    watcher.wait_until(lambda: watcher.in_sync("careless") == {1})
    lost = folder_of(cluster, 1, "careless-0")
    shutil.rmtree(lost)
    assert watcher.leader("careless") == 1, "nobody else is there"
    cluster.brokers[2].start()
    watcher.wait_until(lambda: watcher.leader("careless") == 2)
    stays_in_sync(watcher, "careless", {2})

    cluster.brokers[1].stop()
    lost.mkdir(exist_ok=True)
    cluster.brokers[1].start()
    watcher.wait_until_whole()
