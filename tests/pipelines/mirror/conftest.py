"""Two brokers for each test."""

from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from tests.pipelines.mirror.mirroring import SETTINGS


@pytest.fixture
def source() -> Iterator[str]:
    """Where the cluster is that is copied from."""
    with Broker(SETTINGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def target() -> Iterator[str]:
    """Where the cluster is that is copied to."""
    with Broker(SETTINGS) as broker:
        yield broker.bootstrap_servers
