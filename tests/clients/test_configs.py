"""Settings over the protocol: three clients describe and alter them, and they count at once."""

import asyncio
import logging
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioType
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
)

from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.clients.raw_requests import RawConnection, alter, ask

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient
    from kafka.admin import ConfigResource as PythonResource
    from kafka.admin import ConfigResourceType as PythonType

SECONDS_MAX = 240
TOPIC, BROKER, GROUP = (
    ConfigResource.Type.TOPIC,
    ConfigResource.Type.BROKER,
    ConfigResource.Type.GROUP,
)
SET, DELETE, APPEND, SUBTRACT = (
    AlterConfigOpType.SET,
    AlterConfigOpType.DELETE,
    AlterConfigOpType.APPEND,
    AlterConfigOpType.SUBTRACT,
)
QUICK = {"log.retention.check.interval.ms": "20"}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"log.roll.hours": "24", "log.segment.bytes": "1048576", **QUICK}) as broker:
        yield broker.bootstrap_servers


@cache
def admin_of(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def create(servers: str, name: str, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    topic = NewTopic(name, 1, 1, config=settings)
    admin_of(servers).create_topics([topic])[name].result(SECONDS_MAX)


def change_all_brokers(servers: str, *changes: tuple[int, str, str | None]) -> None:
    """Change the cluster-wide broker defaults, a resource that librdkafka cannot name."""
    answer = alter(servers, 4, "", *changes)
    assert (answer.error_code, answer.error_message) == (0, None)


def describe(servers: str, kind: Any, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    return dict(admin_of(servers).describe_configs([resource])[resource].result(SECONDS_MAX))


def change(
    servers: str, kind: Any, name: str, *changes: tuple[Any, str, str | None], **options: bool
) -> None:
    entries = [
        ConfigEntry(setting, value, incremental_operation=operation)
        for operation, setting, value in changes
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    futures = admin_of(servers).incremental_alter_configs([resource], **options)
    futures[resource].result(SECONDS_MAX)


def refusal(
    servers: str, kind: Any, name: str, *changes: tuple[Any, str, str | None]
) -> KafkaError:
    with pytest.raises(KafkaException) as raised:
        change(servers, kind, name, *changes)
    error: KafkaError = raised.value.args[0]
    return error


def produce(servers: str, topic: str, value: bytes) -> KafkaError | None:
    outcome: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 10_000_000})
    producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(SECONDS_MAX) == 0
    return outcome[0]


def eventually(is_so: Callable[[], bool]) -> None:
    """Ask the broker until the condition holds; its background work runs between the requests."""
    assert any(is_so() for _ in range(5_000)), "it never came to that"


# -- describing -----------------------------------------------------------------------------------


def test_a_topic_is_described_with_what_it_inherits(servers: str) -> None:
    create(servers, "described", retention_ms="1000", cleanup_policy="compact")
    found = describe(servers, TOPIC, "described")
    assert len(found) == 28
    assert not any(entry.is_read_only or entry.is_sensitive for entry in found.values())
    sources = {
        name: (found[name].value, ConfigSource(found[name].source).name)
        for name in ("retention.ms", "segment.ms", "segment.bytes", "flush.ms")
    }
    assert sources == {
        "retention.ms": ("1000", "DYNAMIC_TOPIC_CONFIG"),
        "segment.ms": ("86400000", "DEFAULT_CONFIG"),
        "segment.bytes": ("1048576", "STATIC_BROKER_CONFIG"),
        "flush.ms": ("9223372036854775807", "DEFAULT_CONFIG"),
    }
    assert found["flush.ms"].is_default
    assert not found["retention.ms"].is_default
    assert set(found["retention.ms"].synonyms) == {"retention.ms"}


def test_a_broker_tells_what_can_change_while_it_runs(servers: str) -> None:
    found = describe(servers, BROKER, "1")
    assert found["num.partitions"].is_read_only
    assert found["listeners"].is_read_only
    assert not found["message.max.bytes"].is_read_only
    assert found["log.roll.hours"].value == "24"
    assert ConfigSource(found["log.roll.hours"].source) is ConfigSource.STATIC_BROKER_CONFIG
    assert found["log.retention.ms"].value is None


@pytest.mark.parametrize(
    ("kind", "name", "code", "words"),
    [
        (2, "nowhere", 3, "there is no topic nowhere"),
        (2, "no topic!", 17, "no topic!"),
        (4, "7", 42, "this is broker 1"),
        (4, "one", 42, "this is broker 1"),
        (8, "", 42, "name it by its number"),
        (16, "", 42, "by name"),
        (32, "", 42, "by name"),
        (3, "x", 42, "resources of type 3 have no settings"),
    ],
)
def test_what_cannot_be_described_says_why(
    servers: str, kind: int, name: str, code: int, words: str
) -> None:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name)
    request = DescribeConfigsRequest(resources=[resource])
    (result,) = ask(servers, ApiKey.DESCRIBE_CONFIGS, 4, request).results
    assert (result.error_code, result.configs) == (code, [])
    assert words in result.error_message


def test_a_group_has_settings_before_it_exists(servers: str) -> None:
    change(servers, GROUP, "readers", (SET, "consumer.session.timeout.ms", "50000"))
    found = describe(servers, GROUP, "readers")
    assert found["consumer.session.timeout.ms"].value == "50000"
    assert found["consumer.heartbeat.interval.ms"].is_default
    error = refusal(servers, GROUP, "readers", (SET, "consumer.session.timeout.ms", "1"))
    assert error.code() == KafkaError.INVALID_CONFIG
    assert "45000 to 60000" in error.str()


# -- altering -------------------------------------------------------------------------------------


def test_a_smaller_limit_refuses_the_next_batch(servers: str) -> None:
    create(servers, "small")
    assert produce(servers, "small", b"x" * 5000) is None
    change(servers, TOPIC, "small", (SET, "max.message.bytes", "1000"))
    error = produce(servers, "small", b"x" * 5000)
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
    change(servers, TOPIC, "small", (DELETE, "max.message.bytes", None))
    assert produce(servers, "small", b"x" * 5000) is None


def test_what_is_set_for_brokers_counts_in_topics_that_say_nothing(servers: str) -> None:
    create(servers, "inherits")
    create(servers, "insists", max_message_bytes="100000")
    for name in ("", "1"):
        assert alter(servers, 4, name, (0, "message.max.bytes", "1000")).error_code == 0
        error = produce(servers, "inherits", b"x" * 5000)
        assert error is not None
        assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        assert produce(servers, "insists", b"x" * 5000) is None
        assert alter(servers, 4, name, (1, "message.max.bytes", None)).error_code == 0
        assert produce(servers, "inherits", b"x" * 5000) is None


def test_the_nearer_setting_of_a_broker_goes_first(servers: str) -> None:
    setting = "log.cleaner.delete.retention.ms"
    change_all_brokers(servers, (0, setting, "1"))
    change(servers, BROKER, "1", (SET, setting, "2"))
    create(servers, "nearer", delete_retention_ms="3")
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=2, resource_name="nearer", configuration_keys=["delete.retention.ms"]
            ),
            DescribeConfigsResource(resource_type=4, resource_name="", configuration_keys=None),
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    topic, brokers = ask(servers, ApiKey.DESCRIBE_CONFIGS, 4, request).results
    ((entry,), (default,)) = (topic.configs, brokers.configs)
    assert (entry.value, entry.config_source, entry.config_type) == ("3", 1, 5)
    assert entry.documentation.startswith("How long compaction keeps a tombstone")
    assert [(one.name, one.value, one.source) for one in entry.synonyms] == [
        ("delete.retention.ms", "3", 1),
        (setting, "2", 2),
        (setting, "1", 3),
        (setting, "86400000", 5),
    ]
    assert (default.name, default.value, default.config_source) == (setting, "1", 3)
    for name in ("", "1"):
        alter(servers, 4, name, (1, setting, None))


def test_lists_grow_and_shrink(servers: str) -> None:
    create(servers, "listed")
    change(servers, TOPIC, "listed", (APPEND, "cleanup.policy", "compact"))
    assert describe(servers, TOPIC, "listed")["cleanup.policy"].value == "delete,compact"
    change(servers, TOPIC, "listed", (SUBTRACT, "cleanup.policy", "delete"))
    assert describe(servers, TOPIC, "listed")["cleanup.policy"].value == "compact"


def test_validating_only_changes_nothing(servers: str) -> None:
    create(servers, "tried")
    change(servers, TOPIC, "tried", (SET, "retention.ms", "1"), validate_only=True)
    assert describe(servers, TOPIC, "tried")["retention.ms"].is_default


def test_altering_as_a_whole_drops_what_is_not_named(servers: str) -> None:
    create(servers, "replaced", retention_ms="1000")
    resource = ConfigResource(TOPIC, "replaced", set_config={"segment.ms": "5000"})
    with pytest.warns(DeprecationWarning, match="incremental"):
        futures = admin_of(servers).alter_configs([resource])
    futures[resource].result(SECONDS_MAX)
    found = describe(servers, TOPIC, "replaced")
    assert found["retention.ms"].is_default
    assert found["segment.ms"].value == "5000"


@pytest.mark.parametrize(
    ("kind", "name", "setting", "value", "code", "words"),
    [
        (TOPIC, "refusing", "retention.mss", "1", KafkaError.INVALID_CONFIG, "did you mean"),
        (TOPIC, "refusing", "retention.ms", "x", KafkaError.INVALID_CONFIG, "a whole number"),
        (TOPIC, "nowhere", "retention.ms", "1", KafkaError.UNKNOWN_TOPIC_OR_PART, "no topic"),
        (BROKER, "1", "num.partitions", "2", KafkaError.INVALID_REQUEST, "restart"),
        (BROKER, "1", "listeners", "A://:1", KafkaError.INVALID_REQUEST, "restart"),
        (BROKER, "1", "sasl.jaas.config", "x", KafkaError.INVALID_REQUEST, "restart"),
        (BROKER, "1", "max.connections.per.ip", "0", KafkaError.INVALID_REQUEST, "from 1"),
    ],
)
def test_a_refusal_says_what_to_do(
    servers: str, kind: Any, name: str, setting: str, value: str, code: int, words: str
) -> None:
    if name == "refusing" and name not in admin_of(servers).list_topics().topics:
        create(servers, "refusing")
    error = refusal(servers, kind, name, (SET, setting, value))
    assert error.code() == code
    assert words in error.str()


def test_settings_that_ottla_has_no_use_for_are_remembered(servers: str) -> None:
    change(servers, BROKER, "1", (SET, "num.io.threads", "16"))
    assert describe(servers, BROKER, "1")["num.io.threads"].value == "16"


def test_an_undeclared_setting_survives_a_restart_and_its_value_is_shown_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with Broker(data_dir=str(tmp_path)) as broker:
        change(broker.bootstrap_servers, BROKER, "1", (SET, "my.plugin.password", "hush"))
        change_all_brokers(broker.bootstrap_servers, (0, "all.plugins.password", "hush"))
    with Broker(data_dir=str(tmp_path)) as broker:
        found = describe(broker.bootstrap_servers, BROKER, "1")
        change(broker.bootstrap_servers, BROKER, "1", (DELETE, "my.plugin.password", None))
        assert "my.plugin.password" not in describe(broker.bootstrap_servers, BROKER, "1")
    for name in ("my.plugin.password", "all.plugins.password"):
        assert (found[name].value, found[name].is_sensitive) == (None, True)
    assert "hush" not in caplog.text


# -- behaviour ------------------------------------------------------------------------------------


def segments(folder: Path, topic: str) -> int:
    return len(list((folder / f"{topic}-0").glob("*.log")))


def test_smaller_segments_and_shorter_retention_count_in_logs_that_are_open(
    tmp_path: Path,
) -> None:
    with Broker(QUICK, data_dir=str(tmp_path)) as broker:
        servers = broker.bootstrap_servers
        create(servers, "log")
        for _ in range(3):
            assert produce(servers, "log", b"x" * 900_000) is None
        assert segments(tmp_path, "log") == 1
        change(servers, TOPIC, "log", (SET, "segment.bytes", "1048576"))
        for _ in range(3):
            assert produce(servers, "log", b"x" * 900_000) is None
        assert segments(tmp_path, "log") == 4
        change_all_brokers(servers, (0, "log.retention.bytes", "1"))
        eventually(lambda: bool(describe(servers, TOPIC, "log")) and segments(tmp_path, "log") == 1)


def test_producers_are_forgotten_by_a_shorter_expiration() -> None:
    with Broker(QUICK) as broker:
        servers = broker.bootstrap_servers
        create(servers, "written")
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        producer.produce("written", b"value")
        assert producer.flush(SECONDS_MAX) == 0
        topic = TopicRequest(name="written", partition_indexes=[0])
        request = DescribeProducersRequest(topics=[topic])

        def known_producers() -> int:
            answer = ask(servers, ApiKey.DESCRIBE_PRODUCERS, 0, request)
            return len(answer.topics[0].partitions[0].active_producers)

        assert known_producers() == 1
        change_all_brokers(servers, (0, "producer.id.expiration.ms", "1"))
        eventually(lambda: known_producers() == 0)


def test_fewer_connections_are_let_in_at_once() -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        limit = (0, "max.connections", "1")
        with RawConnection(servers) as connection:
            assert connection.alter(4, "", limit).error_code == 0
            with pytest.raises((AssertionError, ConnectionError)):
                alter(servers, 4, "", limit)
            assert connection.alter(4, "", (1, "max.connections", None)).error_code == 0
            assert alter(servers, 4, "", (0, "max.connections", "5")).error_code == 0


def test_everything_that_was_set_survives_a_restart(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path)) as broker:
        servers = broker.bootstrap_servers
        create(servers, "kept")
        change(servers, TOPIC, "kept", (SET, "retention.ms", "5000"))
        change_all_brokers(servers, (0, "message.max.bytes", "1000"))
        change(servers, BROKER, "1", (SET, "log.cleaner.backoff.ms", "77"))
        change(servers, GROUP, "g", (SET, "consumer.heartbeat.interval.ms", "6000"))
    with Broker(data_dir=str(tmp_path)) as broker:
        servers = broker.bootstrap_servers
        assert describe(servers, TOPIC, "kept")["retention.ms"].value == "5000"
        assert describe(servers, BROKER, "1")["log.cleaner.backoff.ms"].value == "77"
        assert describe(servers, GROUP, "g")["consumer.heartbeat.interval.ms"].value == "6000"
        error = produce(servers, "kept", b"x" * 5000)
        assert error is not None
        assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE


# -- other clients --------------------------------------------------------------------------------


def test_kafka_python_describes_and_alters(servers: str) -> None:
    create(servers, "python")
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        resource = PythonResource(PythonType.TOPIC, "python", {"retention.ms": "1234"})
        admin.alter_configs([resource])
        found = admin.describe_configs(
            [PythonResource(PythonType.TOPIC, "python")], config_filter="all"
        )
        assert "1234" in str(found)
        assert "max.message.bytes" in str(found)
        assert "1048588" in str(found)
        assert "python" in str(admin.list_config_resources())
    finally:
        admin.close()


def test_aiokafka_describes_and_alters(servers: str) -> None:
    create(servers, "aio")

    async def alter_and_describe() -> list[Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            await admin.alter_configs([AioResource(AioType.TOPIC, "aio", {"retention.ms": "4321"})])
            answers = await admin.describe_configs([AioResource(AioType.TOPIC, "aio")])
            return [entry for answer in answers for entry in answer.resources[0][4]]
        finally:
            await admin.close()

    entries = asyncio.run(alter_and_describe())
    assert {entry[0]: entry[1] for entry in entries}["retention.ms"] == "4321"
