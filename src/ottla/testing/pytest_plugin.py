"""Fixtures for users' tests: a broker or a cluster, and a fresh topic for each test.

Installed by the entry point `pytest11`. The broker is imported when a test first uses a fixture.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from uuid import uuid1

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker import Broker
    from ottla.testing.cluster import Cluster

SETTINGS: Final = "ottla_broker_settings"
CLUSTER_SETTINGS: Final = "ottla_cluster_settings"
_NAME_CHARACTERS_MAX: Final = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for a project's broker settings."""
    for name, fixture in ((SETTINGS, "ottla_broker"), (CLUSTER_SETTINGS, "ottla_cluster")):
        parser.addini(
            name,
            f"settings of the fixture {fixture}, one name=value on each line, by Kafka's names",
            type="linelist",
            default=[],
        )


@pytest.fixture(scope="session")
def ottla_broker(pytestconfig: pytest.Config) -> Iterator["Broker"]:
    """Run a broker on a free port for the session, with the project's settings."""
    from ottla.testing.broker import Broker  # noqa: PLC0415

    with Broker(broker_settings(pytestconfig.getini(SETTINGS))) as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla_cluster(pytestconfig: pytest.Config) -> Iterator["Cluster"]:
    """Run three brokers, which are also controllers, in processes of their own, for the session.

    A test that kills a broker must start it again.
    """
    from ottla.testing.cluster import Cluster  # noqa: PLC0415

    given = broker_settings(pytestconfig.getini(CLUSTER_SETTINGS), CLUSTER_SETTINGS)
    with Cluster(3, given) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ottla_bootstrap_servers(ottla_broker: "Broker") -> str:
    """Return the bootstrap address for Kafka clients."""
    return ottla_broker.bootstrap_servers


@pytest.fixture(scope="session")
def ottla_registry_url(ottla_broker: "Broker") -> str:
    """Return the URL of the broker's schema registry, for schema registry clients."""
    return ottla_broker.registry_url


@pytest.fixture
def ottla_topic(request: pytest.FixtureRequest, ottla_broker: "Broker") -> str:
    """Return an unused topic name; the first use creates the topic."""
    assert ottla_broker.port
    test = re.sub(r"[^A-Za-z0-9._-]", "-", request.node.name)[:_NAME_CHARACTERS_MAX]
    return f"{test}-{uuid1().hex[:16]}"


def broker_settings(lines: list[str], name_of_setting: str = SETTINGS) -> dict[str, str]:
    """Read the setting: one name=value on each line. UsageError for anything else."""
    settings = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{name_of_setting} has {line!r}: it must be name=value")
        settings[name.strip()] = value.strip()
    return settings
