"""Fixtures shared by several contracts."""

from collections.abc import Iterator

import pytest

from ottla.testing.zookeeper_server import ZooKeeperServer, running, why_not


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A real ZooKeeper, if Java and PySpark are available."""
    if why_not():
        pytest.skip(why_not())
    with running(tmp_path_factory.mktemp("zookeeper")) as started:
        yield started
