"""The registry in the process of a broker: its port, its address for others, start and stop."""

import asyncio
import json
import logging
import socket
import subprocess
import sys
import time
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from ottla import Admin
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.listeners import REGISTRY_ENDPOINT, HttpListener, Listener
from ottla.model.settings.node_settings import ProcessRole
from ottla.registry.server import RegistryServer, advertised_endpoint, open_registry
from ottla.testing import Broker

LISTENER = "ottla.schema.registry.listener"
SECONDS_MAX = 240
SCHEMA = {"schema": '{"type":"record","name":"Letter","fields":[]}'}
CONTENT = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


def ask(url: str, path: str, body: object = None) -> Any:
    """Return the value of a response to GET, or to POST with a body."""
    address = urlsplit(url)
    assert address.hostname
    connection = HTTPConnection(address.hostname, address.port, timeout=SECONDS_MAX)
    try:
        text = None if body is None else json.dumps(body)
        connection.request("GET" if text is None else "POST", path, text, CONTENT)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def registered(url: str, subject: str = "letters-value") -> int:
    return int(ask(url, f"/subjects/{subject}/versions", SCHEMA)["id"])


def is_refused(url: str) -> bool:
    try:
        ask(url, "/subjects")
    except ConnectionError:
        return True
    return False


def test_a_broker_for_tests_has_a_registry_when_it_is_asked_for() -> None:
    with Broker() as broker:
        url = broker.registry_url
        assert registered(url) == 1
        assert ask(url, "/schemas/ids/1") == SCHEMA
        assert broker.registry_url == url
    assert is_refused(url)


def test_schemas_and_the_port_outlive_a_restart() -> None:
    with Broker() as broker:
        url = broker.registry_url
        registered(url)
        broker.restart()
        assert broker.registry_url == url
        assert ask(url, "/subjects") == ["letters-value"]


def test_a_broker_without_schemas_has_no_topic_for_them() -> None:
    with Broker() as broker:
        assert ask(broker.registry_url, "/subjects") == []
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert admin.topics.list() == ()


def test_a_deleted_topic_leaves_an_empty_registry_that_can_be_written_to() -> None:
    with Broker() as broker:
        url = broker.registry_url
        registered(url, "first")
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.topics.delete("_schemas")
        deadline = time.monotonic() + SECONDS_MAX
        while ask(url, "/subjects"):
            assert time.monotonic() < deadline, "the old schemas are still there"
        assert registered(url, "second") == 1
        assert ask(url, "/subjects") == ["second"]


def test_a_configured_port_that_is_taken_ends_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = Broker({LISTENER: f"127.0.0.1:{taken.getsockname()[1]}"})
        with pytest.raises(OSError, match=f"{LISTENER} must be another place, or empty"):
            broker.start()


def test_a_default_port_that_is_taken_leaves_the_broker_without_a_registry(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = HttpListener("127.0.0.1", taken.getsockname()[1])
        config = replace(BrokerConfig(), ottla_schema_registry_listener=place)
        with caplog.at_level(logging.WARNING):
            service = asyncio.run(open_registry(config, "my-host"))
    assert service.advertised is None
    (message,) = caplog.messages
    assert message.startswith(f"No schema registry: cannot listen on SCHEMA_REGISTRY://{place}")
    assert message.endswith(f"({LISTENER} names another place)")


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param({"zookeeper_connect": "127.0.0.1:2181"}, id="zookeeper"),
        pytest.param({"process_roles": frozenset({ProcessRole.BROKER})}, id="quorum"),
    ],
)
def test_in_a_cluster_a_broker_takes_a_free_port_if_the_default_one_is_taken(
    cluster: dict[str, Any],
) -> None:
    async def ports(taken: int) -> tuple[int, int]:
        place = HttpListener("127.0.0.1", taken)
        config = replace(BrokerConfig(), ottla_schema_registry_listener=place, **cluster)
        service = await open_registry(config, "my-host")
        assert isinstance(service, RegistryServer)
        await service.close()
        assert service.advertised is not None
        return service.port, service.advertised.port

    with socket.create_server(("127.0.0.1", 0)) as blocked:
        taken = blocked.getsockname()[1]
        port, advertised = asyncio.run(ports(taken))
    assert port == advertised != taken


@pytest.mark.parametrize("package", ["jsonschema_rs", "msgspec", "google.protobuf"])
def test_without_the_packages_a_broker_runs_and_logs_how_to_install_them(package: str) -> None:
    program = (
        "import sys, logging\n"
        f"sys.modules[{package!r}] = None\n"
        "logging.basicConfig(level=logging.WARNING)\n"
        "from ottla.testing import Broker\n"
        f"with Broker({{{LISTENER!r}: '127.0.0.1:0'}}) as broker:\n"
        "    print(broker.registry_url)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    install = "pip install 'ottla[schemas]'"
    assert f"the package {package} is not installed: {install}" in done.stderr.splitlines()[0]
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: the schema registry needs {package}: {install}"
    )


def test_kafka_clients_do_not_see_the_registered_address() -> None:
    with Broker({LISTENER: "127.0.0.1:0"}) as broker:
        assert ask(broker.registry_url, "/subjects") == []
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            (described,) = admin.cluster.describe().brokers
        assert (described.host, described.port) == ("127.0.0.1", broker.port)


@pytest.mark.parametrize(
    ("settings", "advertised"),
    [
        ({LISTENER: "127.0.0.1:8081"}, Listener(REGISTRY_ENDPOINT, "127.0.0.1", 40001)),
        ({LISTENER: ":8081"}, Listener(REGISTRY_ENDPOINT, "my-host", 40001)),
        ({LISTENER: "10.0.0.7:0"}, Listener(REGISTRY_ENDPOINT, "10.0.0.7", 40001)),
        ({LISTENER: "127.0.0.1:8081", "listeners": "PLAINTEXT://:9092"}, None),
        (
            {LISTENER: "localhost:8081", "listeners": "PLAINTEXT://127.0.0.2:9092"},
            Listener(REGISTRY_ENDPOINT, "localhost", 40001),
        ),
    ],
)
def test_an_address_that_other_brokers_cannot_reach_is_not_registered(
    settings: dict[str, str], advertised: Listener | None
) -> None:
    assert advertised_endpoint(BrokerConfig.parse(settings), "my-host", 40001) == advertised
