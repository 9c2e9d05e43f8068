"""One Spark for all tests of a process, and a broker that the tests of one file share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ottla.pipelines.sessions import end_session, spark_session
from ottla.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.two.phase.commit.enable": "true",
}


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """Spark on two cores, which tries each task four times."""
    session = spark_session("tests", master="local[2,4]", is_quick=True)
    yield session
    end_session(session)


@pytest.fixture(scope="module")
def broker_servers() -> Iterator[str]:
    """The address of a broker in this process."""
    with Broker(SETTINGS) as broker:
        yield broker.bootstrap_servers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # PySpark leaves sockets to its JVM for the garbage collector.
    for item in items:
        if "pipelines" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
