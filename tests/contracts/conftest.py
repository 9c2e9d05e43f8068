"""Fixtures shared by several contracts."""

from collections.abc import Iterator

import pytest

from ottla.testing.zookeeper_server import ZooKeeperServer, running


@pytest.fixture(scope="session")
def zookeeper_server(
    needs_zookeeper: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperServer]:
    """A real ZooKeeper, if Java and PySpark are available."""
    with running(tmp_path_factory.mktemp("zookeeper")) as started:
        yield started
