"""Security requests: Ottla gives the error codes that Kafka without security gives."""

from collections.abc import Iterator

import pytest

from ottla.broker.requests.response_error_codes import error_finder
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.schema import Message
from tests.clients.raw_requests import ask
from tests.clients.security_requests import AS_KAFKA
from tests.interop.kafka_node import kafka_node


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_node(tmp_path_factory.mktemp("kafka")) as node:
        yield node.start().bootstrap_server


@pytest.fixture(scope="module")
def ottla() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize(("key", "version", "request_"), AS_KAFKA)
def test_the_error_codes_are_those_of_kafka(
    kafka: str, ottla: str, key: ApiKey, version: int, request_: Message
) -> None:
    find = error_finder(key)
    codes = [sorted(find(ask(servers, key, version, request_))) for servers in (kafka, ottla)]
    assert codes[0] == codes[1]
