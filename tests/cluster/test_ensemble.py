"""Three ZooKeeper servers: losing one has no effect, and the cluster survives a pause of all."""

import time
from collections.abc import Iterator

import pytest

from ottla.testing.cluster import Cluster
from tests.cluster.load import say
from tests.cluster.stories import ASSIGNMENT, told
from tests.cluster.watching import BROKERS, SETTINGS, Watcher

SESSION_SECONDS = 6


@pytest.fixture(scope="module")
def running(needs_zookeeper: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("ensemble")
    settings = {**SETTINGS, "zookeeper.session.timeout.ms": str(1000 * SESSION_SECONDS)}
    with Cluster(
        BROKERS, settings, data_dir=folder, zookeeper_servers=3, zookeeper=True
    ) as cluster:
        yield cluster


def test_a_zookeeper_server_that_is_killed_is_not_missed(
    cluster: Cluster, watcher: Watcher
) -> None:
    name = "killed-zookeeper"
    with told(name, cluster, watcher) as story:
        before = watcher.leader_epochs(name, len(ASSIGNMENT))
        for server in cluster.zookeeper_servers.values():
            server.kill()
            story.load.goes_on()
            server.start()
            story.load.goes_on()
    assert watcher.leader_epochs(name, len(ASSIGNMENT)) == before
    assert story.load.longest_silence() < SESSION_SECONDS


def test_brokers_go_on_when_the_whole_ensemble_was_away_for_longer_than_a_session(
    cluster: Cluster, watcher: Watcher
) -> None:
    with told("paused-ensemble", cluster, watcher) as story:
        servers = cluster.zookeeper_servers.values()
        for server in servers:
            server.pause()
        time.sleep(SESSION_SECONDS + 1)
        for server in servers:
            server.resume()
        say(f"all partitions take writes {story.load.goes_on():.2f} s after ZooKeeper is back")
        watcher.wait_until_whole()
        story.load.goes_on()
