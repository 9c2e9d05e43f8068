"""Client metrics (KIP-714): subscriptions, pushes by hand and by librdkafka, and log levels."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig as Change,
)
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResource as ChangedResource,
)
from ottla.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from ottla.wire.messages.push_telemetry import PushTelemetryRequest
from tests.clients.raw_requests import RawConnection, alter, ask

BROKER, LOGGER, CLIENT_METRICS, GROUP = 4, 8, 16, 32
SET, DELETE, APPEND = 0, 1, 2
TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
LOGGER_NAME = "ottla.broker.describing.client_telemetry"


@pytest.fixture
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def offered(servers: str) -> set[int]:
    answer = ask(servers, ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    assert answer.error_code == 0
    return {api.api_key for api in answer.api_keys}


def subscription(connection: RawConnection, client_id: bytes = bytes(16)) -> Any:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=client_id)
    return connection.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, request)


def test_telemetry_is_offered_once_a_subscription_exists(servers: str) -> None:
    assert not TELEMETRY & offered(servers)
    assert alter(servers, CLIENT_METRICS, "all", (SET, "metrics", "*")).error_code == 0
    assert offered(servers) >= TELEMETRY
    assert alter(servers, CLIENT_METRICS, "all", (DELETE, "metrics", None)).error_code == 0
    assert not TELEMETRY & offered(servers)


def test_a_client_is_matched_by_what_it_says_of_itself(servers: str) -> None:
    match = "client_software_name=ottla-.*, client_id=raw"
    alter(servers, CLIENT_METRICS, "a", (SET, "metrics", "org.a"), (SET, "match", match))
    alter(servers, CLIENT_METRICS, "b", (SET, "metrics", "org.b"), (SET, "interval.ms", "100"))
    with RawConnection(servers) as connection:
        assert subscription(connection).requested_metrics == ["org.b"]
        hello = ApiVersionsRequest(client_software_name="ottla-test", client_software_version="1.0")
        connection.ask(ApiKey.API_VERSIONS, 3, hello)
        answer = subscription(connection)
    assert answer.requested_metrics == ["org.a", "org.b"]
    assert answer.push_interval_ms == 100
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    assert answer.delta_temporality


def test_a_push_counts_until_the_subscriptions_change(servers: str) -> None:
    alter(servers, CLIENT_METRICS, "a", (SET, "metrics", "*"))
    with RawConnection(servers) as connection:
        told = subscription(connection)
        push = PushTelemetryRequest(
            client_instance_id=told.client_instance_id,
            subscription_id=told.subscription_id,
            metrics=b"metrics",
        )
        assert connection.ask(ApiKey.PUSH_TELEMETRY, 0, push).error_code == 0
        assert connection.ask(ApiKey.PUSH_TELEMETRY, 0, push).error_code == 89  # too early
        connection.alter(CLIENT_METRICS, "a", (SET, "interval.ms", "200"))
        assert connection.ask(ApiKey.PUSH_TELEMETRY, 0, push).error_code == 117  # unknown id
        again = subscription(connection, told.client_instance_id)
        assert again.error_code == 0
        assert again.push_interval_ms == 200


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == LOGGER_NAME]


def test_librdkafka_pushes_what_is_asked_for(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    alter(servers, CLIENT_METRICS, "all", (SET, "metrics", "*"), (SET, "interval.ms", "100"))
    with caplog.at_level(logging.DEBUG, logger=LOGGER_NAME):
        producer = Producer({"bootstrap.servers": servers, "client.id": "app", "log_level": 0})
        producer.produce("pushed", b"value")
        rounds = 0
        while not (told := messages(caplog)) and (rounds := rounds + 1) < 1_000:
            producer.poll(0.02)
    assert "(app at 127.0.0.1) pushed" in told[0]


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("interval.ms", "99", "from 100 to 3600000"),
        ("match", "client_id=(", "conditions as client_id=app-.*"),
        ("match", "client_color=red", "client_software_name"),
        ("metrics", "a,a", "different prefixes"),
        ("metric", "a", "did you mean metrics?"),
    ],
)
def test_a_subscription_that_cannot_be_is_refused(
    servers: str, setting: str, value: str, words: str
) -> None:
    answer = alter(servers, CLIENT_METRICS, "a", (SET, setting, value))
    assert answer.error_code == 40
    assert words in answer.error_message


def test_resources_with_settings_are_listed(servers: str) -> None:
    alter(servers, CLIENT_METRICS, "mine", (SET, "metrics", "*"))
    alter(servers, GROUP, "readers", (SET, "consumer.session.timeout.ms", "50000"))
    key = ApiKey.LIST_CONFIG_RESOURCES
    old = ask(servers, key, 0, ListConfigResourcesRequest())
    assert [one.resource_name for one in old.config_resources] == ["mine"]
    everything = ask(servers, key, 1, ListConfigResourcesRequest())
    assert {(one.resource_type, one.resource_name) for one in everything.config_resources} == {
        (GROUP, "readers"),
        (CLIENT_METRICS, "mine"),
        (LOGGER, "1"),
        (BROKER, "1"),
    }
    groups = ask(servers, key, 1, ListConfigResourcesRequest(resource_types=[GROUP]))
    assert [one.resource_name for one in groups.config_resources] == ["readers"]
    unknown = ask(servers, key, 1, ListConfigResourcesRequest(resource_types=[GROUP, 5]))
    assert (unknown.error_code, unknown.config_resources) == (35, [])


def levels(servers: str) -> dict[str, str]:
    resource = DescribeConfigsResource(resource_type=LOGGER, resource_name="1")
    request = DescribeConfigsRequest(resources=[resource])
    (result,) = ask(servers, ApiKey.DESCRIBE_CONFIGS, 1, request).results
    assert {entry.config_source for entry in result.configs} == {6}
    return {entry.name: entry.value for entry in result.configs}


def test_log_levels_change_while_the_broker_runs(servers: str) -> None:
    name = "ottla.broker.transport.server"
    before = levels(servers)
    assert alter(servers, LOGGER, "1", (SET, name, "TRACE"), validate_only=True).error_code == 0
    assert levels(servers) == before
    assert alter(servers, LOGGER, "1", (SET, name, "TRACE")).error_code == 0
    assert logging.getLogger(name).level == 5
    assert levels(servers) == before | {name: "TRACE"}
    assert alter(servers, LOGGER, "1", (DELETE, name, None)).error_code == 0
    assert levels(servers) == before


@pytest.mark.parametrize(
    ("broker", "change", "code"),
    [
        ("1", (SET, "ottla.broker.transport.server", "LOUD"), 40),
        ("1", (SET, "ottla.nothing", "INFO"), 40),
        ("1", (APPEND, "ottla.broker.transport.server", "INFO"), 42),
        ("1", (DELETE, "root", None), 42),
        ("2", (SET, "root", "INFO"), 42),
    ],
)
def test_levels_that_cannot_be_are_refused(
    servers: str, broker: str, change: tuple[int, str, str | None], code: int
) -> None:
    before = levels(servers)
    assert alter(servers, LOGGER, broker, change).error_code == code
    assert levels(servers) == before


def test_answers_come_in_the_order_of_the_request(servers: str) -> None:
    resources = [
        ChangedResource(
            resource_type=kind,
            resource_name=name,
            configs=[Change(name=setting, config_operation=SET, value=value)],
        )
        for kind, name, setting, value in [
            (GROUP, "g", "consumer.session.timeout.ms", "50000"),
            (LOGGER, "9", "root", "INFO"),
            (BROKER, "", "message.max.bytes", "-1"),
            (CLIENT_METRICS, "m", "metrics", "*"),
        ]
    ]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=True)
    answer = ask(servers, ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, request)
    assert [(one.resource_type, one.resource_name) for one in answer.responses] == [
        (one.resource_type, one.resource_name) for one in resources
    ]
    assert [one.error_code for one in answer.responses] == [0, 42, 42, 0]


def test_levels_are_not_altered_as_a_whole(servers: str) -> None:
    resource = AlterConfigsResource(
        resource_type=LOGGER,
        resource_name="1",
        configs=[AlterableConfig(name="root", value="INFO")],
    )
    request = AlterConfigsRequest(resources=[resource])
    (answer,) = ask(servers, ApiKey.ALTER_CONFIGS, 2, request).responses
    assert answer.error_code == 42
