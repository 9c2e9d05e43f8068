"""A cluster for all stories of a file; it is intact at the start of each."""

from collections.abc import Iterator

import pytest

from ottla.testing.cluster import Cluster
from tests.cluster.watching import BROKERS, Watcher, settings_of


@pytest.fixture(scope="module")
def has_zookeeper(request: pytest.FixtureRequest) -> bool:
    """Whether the metadata of the cluster is in ZooKeeper; see `modes.py`."""
    chosen: bool = getattr(request, "param", True)
    if chosen:
        request.getfixturevalue("needs_zookeeper")
    return chosen


@pytest.fixture(scope="module")
def running(has_zookeeper: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(
        BROKERS, settings_of(zookeeper=has_zookeeper), data_dir=folder, zookeeper=has_zookeeper
    ) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """A cluster with all brokers running, after any failure in an earlier story."""
    mend(running)
    return running


@pytest.fixture
def watcher(cluster: Cluster) -> Iterator[Watcher]:
    watcher = Watcher(cluster)
    watcher.wait_until_whole()
    yield watcher
    watcher.close()
    mend(cluster)


def mend(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        if not broker.is_running:
            broker.start()
        elif broker.is_paused:
            broker.resume()
