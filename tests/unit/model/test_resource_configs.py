"""The settings of groups and of client metrics subscriptions."""

from dataclasses import fields

import pytest

from ottla.model.settings.client_metrics_config import CLIENT_METRICS_SETTINGS, ClientMetricsConfig
from ottla.model.settings.group_config import GROUP_SETTINGS, GroupConfig
from ottla.model.settings.settings import InvalidSettingsError, Setting

# name, type and default, as Kafka 4.2 declares them
KAFKAS_GROUP_SETTINGS = {
    "consumer.session.timeout.ms": ("INT", "45000"),
    "consumer.heartbeat.interval.ms": ("INT", "5000"),
    "share.session.timeout.ms": ("INT", "45000"),
    "share.heartbeat.interval.ms": ("INT", "5000"),
    "share.record.lock.duration.ms": ("INT", "30000"),
    "share.auto.offset.reset": ("STRING", "latest"),
    "share.isolation.level": ("STRING", "read_uncommitted"),
    "streams.session.timeout.ms": ("INT", "45000"),
    "streams.heartbeat.interval.ms": ("INT", "5000"),
    "streams.num.standby.replicas": ("INT", "0"),
    "streams.initial.rebalance.delay.ms": ("INT", "3000"),
}
KAFKAS_CLIENT_METRICS_SETTINGS = {
    "metrics": ("LIST", ""),
    "interval.ms": ("INT", "300000"),
    "match": ("LIST", ""),
}


@pytest.mark.parametrize(
    ("config", "table", "kafkas"),
    [
        (GroupConfig(), GROUP_SETTINGS, KAFKAS_GROUP_SETTINGS),
        (ClientMetricsConfig(), CLIENT_METRICS_SETTINGS, KAFKAS_CLIENT_METRICS_SETTINGS),
    ],
)
def test_names_types_and_defaults_are_kafkas(
    config: GroupConfig | ClientMetricsConfig,
    table: dict[str, Setting],
    kafkas: dict[str, tuple[str, str]],
) -> None:
    texts = config.as_strings()
    assert {name: (table[name].kind.type.name, texts[name]) for name in table} == kafkas
    assert {setting.field for setting in table.values()} == {one.name for one in fields(config)}
    assert type(config).parse(texts) == config


@pytest.mark.parametrize(
    ("name", "text", "is_allowed"),
    [
        ("consumer.session.timeout.ms", "60000", True),
        ("consumer.session.timeout.ms", "60001", False),
        ("consumer.heartbeat.interval.ms", "4999", False),
        ("share.auto.offset.reset", "by_duration:PT1H30M", True),
        ("share.auto.offset.reset", "by_duration:P2DT0.5S", True),
        ("share.auto.offset.reset", "by_duration:P", False),
        ("share.auto.offset.reset", "by_duration:-PT1H", False),
        ("share.auto.offset.reset", "middle", False),
        ("group.max.size", "1", False),
    ],
)
def test_groups_keep_to_kafkas_limits(name: str, text: str, is_allowed: bool) -> None:
    if is_allowed:
        assert GroupConfig.parse({name: text}).as_strings()[name] == text
    else:
        with pytest.raises(InvalidSettingsError, match=name):
            GroupConfig.parse({name: text})


def matches(conditions: str, **attributes: str | None) -> bool:
    return ClientMetricsConfig.parse({"match": conditions}).is_for(attributes)


def test_every_condition_must_hold() -> None:
    both = "client_id=app-.*, client_software_name=ottla"
    assert matches(both, client_id="app-1", client_software_name="ottla")
    assert not matches(both, client_id="app-1", client_software_name="other")
    assert not matches(both, client_id="app-1")
    assert not matches(both, client_id="app-1", client_software_name=None)
    assert matches("", client_id="anybody")


def test_a_pattern_is_the_whole_of_an_attribute() -> None:
    assert not matches("client_id=app", client_id="app-1")


def test_of_two_conditions_on_an_attribute_the_last_counts() -> None:
    assert matches("client_id=a, client_id=b", client_id="b")


@pytest.mark.parametrize(
    "conditions",
    ["client_id", "client_id=", "=a", "client_color=red", "client_id=(", "client_id=a,,"],
)
def test_conditions_that_cannot_be_read_are_refused(conditions: str) -> None:
    with pytest.raises(InvalidSettingsError, match="match cannot be"):
        matches(conditions)
