"""Settings by the admin client: of topics, brokers, groups, log levels and client metrics."""

from collections.abc import Iterator

import pytest

from ottla import Admin, Append, ConfigResource, ErrorCode, ItemsFailedError, Subtract
from ottla.clients.admin.admin_configs import ConfigSource, ResourceType
from tests.clients.admin_stories import refused

LOGGER = "ottla.broker.describing.client_telemetry"


@pytest.fixture
def admin(story_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=story_servers) as admin:
        yield admin


@pytest.fixture
def letters(admin: Admin, topic: str) -> ConfigResource:
    admin.topics.create(topic, configs={"retention.ms": "60000"})
    return ConfigResource.topic(topic)


def values(admin: Admin, resource: ConfigResource, *keys: str) -> list[str | None]:
    found = admin.configs.describe(resource, keys=keys)[resource]
    return [found[key].value for key in keys]


def test_settings_are_described_with_where_they_come_from(
    admin: Admin, letters: ConfigResource
) -> None:
    found = admin.configs.describe(letters, with_documentation=True, with_synonyms=True)[letters]
    assert list(found) == sorted(found)
    entry = found["retention.ms"]
    assert (entry.value, entry.source) == ("60000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert entry.documentation
    assert [one.source for one in entry.synonyms] == [ConfigSource.DYNAMIC_TOPIC_CONFIG]
    assert found["max.message.bytes"].is_default
    assert found["max.message.bytes"].synonyms[-1].source is ConfigSource.DEFAULT_CONFIG
    assert not entry.is_default
    assert list(admin.configs.describe(letters, keys=["retention.ms"])[letters]) == ["retention.ms"]


def test_settings_are_changed_one_by_one(admin: Admin, letters: ConfigResource) -> None:
    admin.configs.alter({letters: {"retention.bytes": "7", "cleanup.policy": Append("compact")}})
    assert values(admin, letters, "retention.ms", "retention.bytes", "cleanup.policy") == [
        "60000",
        "7",
        "delete,compact",
    ]
    changes = {"retention.ms": None, "cleanup.policy": Subtract("delete")}
    admin.configs.alter({letters: changes})
    assert values(admin, letters, "retention.ms", "cleanup.policy") == ["604800000", "compact"]


def test_settings_are_replaced_as_a_whole(admin: Admin, letters: ConfigResource) -> None:
    admin.configs.replace({letters: {"retention.bytes": "7"}}, validate_only=True)
    assert values(admin, letters, "retention.ms") == ["60000"]
    admin.configs.replace({letters: {"retention.bytes": "7"}})
    assert values(admin, letters, "retention.ms", "retention.bytes") == ["604800000", "7"]


def test_only_checking_changes_nothing(admin: Admin, letters: ConfigResource) -> None:
    admin.configs.alter({letters: {"retention.ms": "1"}}, validate_only=True)
    assert values(admin, letters, "retention.ms") == ["60000"]


def test_one_resource_that_is_refused_leaves_the_others_alone(
    admin: Admin, letters: ConfigResource
) -> None:
    missing = ConfigResource.topic("missing")
    with pytest.raises(ItemsFailedError) as failure:
        admin.configs.alter({missing: {"retention.ms": "5"}, letters: {"retention.ms": "5"}})
    assert list(failure.value.done) == [letters]
    assert failure.value.failed[missing].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert values(admin, letters, "retention.ms") == ["5"]
    code, words = refused(lambda: admin.configs.alter({letters: {"retention.ms": "long"}}))
    assert code is ErrorCode.INVALID_CONFIG
    assert "retention.ms" in words
    with pytest.raises(ItemsFailedError) as failure:
        admin.configs.describe([letters, missing])
    assert failure.value.done[letters]["retention.ms"].value == "5"
    code, _ = refused(lambda: admin.configs.replace({missing: {}}))
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_brokers_are_asked_about_themselves(admin: Admin) -> None:
    (broker,) = admin.cluster.describe().brokers
    ours = ConfigResource.broker(broker.broker_id)
    admin.configs.alter({ours: {"log.cleaner.threads": "2"}, ConfigResource.every_broker(): {}})
    found = admin.configs.describe([ours, ConfigResource.every_broker()])
    assert found[ours]["log.cleaner.threads"].source is ConfigSource.DYNAMIC_BROKER_CONFIG
    assert found[ours]["log.dirs"].is_read_only
    admin.configs.alter({ours: {"log.cleaner.threads": None}})
    with pytest.raises(ItemsFailedError, match="there is no broker 4711") as failure:
        admin.configs.describe([ConfigResource.broker(4711), ours])
    assert list(failure.value.done) == [ours]


def test_log_levels_are_settings_of_a_broker(admin: Admin) -> None:
    (broker,) = admin.cluster.describe().brokers
    logger = ConfigResource.broker_logger(broker.broker_id)
    admin.configs.alter({logger: {LOGGER: "DEBUG"}})
    assert admin.configs.describe(logger)[logger][LOGGER].value == "DEBUG"
    admin.configs.alter({logger: {LOGGER: None}})


def test_groups_and_client_metrics_have_settings(admin: Admin, topic: str) -> None:
    group, metrics = ConfigResource.group(topic), ConfigResource.client_metrics(topic)
    admin.configs.alter(
        {
            group: {"consumer.session.timeout.ms": "50000"},
            metrics: {"interval.ms": "10000", "metrics": "org.apache.kafka."},
        }
    )
    assert values(admin, group, "consumer.session.timeout.ms") == ["50000"]
    assert values(admin, metrics, "interval.ms") == ["10000"]
    assert metrics in admin.configs.list_resources([ResourceType.CLIENT_METRICS])
    everything = admin.configs.list_resources()
    assert {group, metrics} <= set(everything)
    admin.configs.alter({metrics: {"interval.ms": None, "metrics": None}})
    assert admin.configs.list_resources([ResourceType.CLIENT_METRICS]) == ()
