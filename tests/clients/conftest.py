"""The client libraries that run the stories, and a broker shared by the stories of one file."""

from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from tests.clients.driver import Driver
from tests.clients.drivers.aio_kafka import AioKafkaDriver
from tests.clients.drivers.kafka_python import KafkaPythonDriver
from tests.clients.drivers.kcat import KCAT, KcatDriver
from tests.clients.drivers.librdkafka import LibrdkafkaDriver

DRIVERS: list[type[Driver]] = [LibrdkafkaDriver, KafkaPythonDriver, AioKafkaDriver, KcatDriver]
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture(scope="module")
def story_servers() -> Iterator[str]:
    with Broker(SETTINGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=DRIVERS, ids=lambda kind: kind.name)
def client(request: pytest.FixtureRequest) -> type[Driver]:
    """Each client library, one after another."""
    if request.param is KcatDriver and KCAT is None:
        pytest.skip("kcat is not installed; Debian has it as a package: apt-get install kcat")
    return request.param


@pytest.fixture
def driver(client: type[Driver], story_servers: str) -> Driver:
    """Each client library, one after another, with the broker that all stories share."""
    return client(story_servers)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return request.node.name.replace("[", "-").replace("]", "")[-200:]
