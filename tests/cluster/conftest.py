"""A cluster for all stories of a file; it is intact at the start of each."""

from collections.abc import Iterator

import pytest

from ottla.testing.cluster import Cluster
from ottla.testing.zookeeper_server import why_not
from tests.cluster.watching import BROKERS, SETTINGS, Watcher


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why_not():
        pytest.skip(why_not())
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(BROKERS, SETTINGS, data_dir=folder) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """A cluster with all brokers running, after any failure in an earlier story."""
    mend(running)
    return running


@pytest.fixture
def watcher(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Watcher]:
    watcher = Watcher(cluster)
    watcher.wait_until_whole()
    if getattr(request.node, "execution_count", 1) > 1:
        watcher.delete_topics()  # of the first try
    yield watcher
    watcher.close()
    mend(cluster)


def mend(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        if not broker.is_running:
            broker.start()
        elif broker.is_paused:
            broker.resume()
