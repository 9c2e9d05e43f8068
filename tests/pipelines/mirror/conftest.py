"""Two brokers for each test."""

from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from tests.pipelines.mirror.mirroring import SETTINGS


@pytest.fixture
def source() -> Iterator[str]:
    """The address of the source cluster."""
    with Broker(SETTINGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def target() -> Iterator[str]:
    """The address of the target cluster."""
    with Broker(SETTINGS) as broker:
        yield broker.bootstrap_servers
