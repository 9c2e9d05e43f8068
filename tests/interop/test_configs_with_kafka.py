"""DescribeConfigs and IncrementalAlterConfigs: Ottla's responses equal Kafka's."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.model.settings.topic_config import TOPIC_SETTINGS
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from tests.clients.raw_requests import Change, alter, ask
from tests.interop.kafka_node import kafka_node

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
SECONDS_MAX = 30
Described = dict[str, DescribeConfigsResourceResult]


def describe(servers: str, kind: int, name: str) -> Described:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=False
    )
    (result,) = ask(servers, ApiKey.DESCRIBE_CONFIGS, 4, request).results
    assert result.error_code == 0, result.error_message
    return {one.name: one for one in result.configs}


def create(servers: str, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for made in admin.create_topics(list(topics)).values():
        made.result(SECONDS_MAX)


def told(entry: DescribeConfigsResourceResult) -> tuple[Any, ...]:
    synonyms = [(one.name, one.value, one.source) for one in entry.synonyms]
    about = entry.value, entry.config_source, entry.is_sensitive, entry.read_only
    return *about, entry.config_type, synonyms


def eventually(servers: str, name: str, is_so: Callable[[Described], bool]) -> Described:
    """Describe a broker until it has applied a change, which Kafka publishes asynchronously."""
    for _ in range(5_000):
        found = describe(servers, BROKER, name)
        if is_so(found):
            return found
    raise AssertionError("the broker has not heard of it")


# -- units of time --------------------------------------------------------------------------------

UNITS: tuple[Mapping[str, str], ...] = (
    {},
    {
        "log.retention.hours": "24",
        "log.roll.hours": "168",
        "log.roll.jitter.hours": "1",
        "log.flush.scheduler.interval.ms": "700",
    },
    {"log.retention.minutes": "70", "log.retention.hours": "24"},
    {
        "log.retention.ms": "7000000",
        "log.roll.ms": "5000",
        "log.roll.jitter.ms": "1000",
        "log.flush.interval.ms": "500",
    },
    {
        "log.retention.ms": "7000000",
        "log.retention.minutes": "70",
        "log.retention.hours": "24",
        "log.roll.ms": "5000",
        "log.roll.hours": "24",
        "log.roll.jitter.ms": "1000",
        "log.roll.jitter.hours": "1",
        "log.flush.interval.ms": "500",
        "log.flush.scheduler.interval.ms": "700",
    },
)


def topics(servers: str) -> dict[str, Any]:
    """Describe a topic without settings and one with some of its own."""
    own = {"retention.ms": "8000000", "segment.ms": "6000", "cleanup.policy": "compact,delete"}
    new = [NewTopic("plain", 1, 1), NewTopic("own", 1, 1, config=own)]
    create(servers, *new)
    # Kafka stores min.insync.replicas for all brokers when it is formatted (KIP-966).
    names = TOPIC_SETTINGS.keys() - {"min.insync.replicas"}
    return {
        f"{one.topic} {name}": told(entry)
        for one in new
        for name, entry in describe(servers, TOPIC, one.topic).items()
        if name in names
    }


@pytest.mark.parametrize("static", UNITS)
def test_topic_settings_have_the_sources_and_synonyms_of_kafka(
    tmp_path: Path, static: Mapping[str, str]
) -> None:
    with kafka_node(tmp_path / "kafka", settings=static, without="log.retention.ms") as node:
        of_kafka = topics(node.start().bootstrap_server)
    with Broker(static) as broker:
        of_ottla = topics(broker.bootstrap_servers)
    assert len(of_kafka) > 50
    assert of_ottla == of_kafka


# -- settings that nothing declares ---------------------------------------------------------------


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_node(tmp_path_factory.mktemp("kafka")) as node:
        yield node.start().bootstrap_server


@pytest.fixture(scope="module")
def ottla() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def test_settings_that_nothing_declares_are_described_as_by_kafka(kafka: str, ottla: str) -> None:
    names = ("my.plugin.password", "super.users", "listener.name.plaintext.mine", "all.password")

    def story(servers: str) -> list[Any]:
        for name in names[:3]:
            assert alter(servers, BROKER, "1", (SET, name, "hush")).error_code == 0
        assert alter(servers, BROKER, "", (SET, "all.password", "hush")).error_code == 0
        found = eventually(servers, "1", lambda found: found.keys() >= set(names))
        everywhere = describe(servers, BROKER, "")
        return [*(told(found[name]) for name in names), told(everywhere["all.password"])]

    assert story(ottla) == story(kafka)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("1", (APPEND, "my.list", "a")),
        ("1", (SUBTRACT, "my.list", "a")),
        ("1", (DELETE, "never.set", None)),
        ("1", (SET, "my.plugin.password", None)),
        ("1", (SET, "", "x")),
        ("", (SET, "no such name!", "x")),
        ("1", (SET, "authorizer.class.name", "x")),
        ("1", (SET, "auto.create.topics.enable", "false")),
        ("", (SET, "listener.name.plaintext.ssl.keystore.location", "x")),
    ],
)
def test_changes_give_the_error_codes_of_kafka(
    kafka: str, ottla: str, name: str, change: Change
) -> None:
    codes = [alter(servers, BROKER, name, change).error_code for servers in (kafka, ottla)]
    assert codes[0] == codes[1]


def test_undeclared_settings_of_topics_are_refused_as_by_kafka(kafka: str, ottla: str) -> None:
    codes = []
    for servers in (kafka, ottla):
        create(servers, NewTopic("strict", 1, 1))
        codes.append(alter(servers, TOPIC, "strict", (SET, "my.setting", "x")).error_code)
    assert codes[0] == codes[1] != 0
