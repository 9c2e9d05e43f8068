"""DescribeConfigs responses have a size limit."""

from dataclasses import replace

import pytest

from ottla.broker.handlers import describe_configs
from ottla.broker.handlers.describe_configs import (
    ConfigDescriptions,
    DescribeConfigsHandler,
    Described,
)
from ottla.broker.hosting.live_config import LiveConfig
from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.concurrency.yield_budget import TimeSlices
from ottla.machines.controller.effective_configs import ConfigSource
from ottla.metadata.records import ConfigRecord
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.broker_settings import BROKER_SETTINGS
from ottla.model.settings.settings import TEXT, Kind, SettingType
from ottla.simulation.world.disk import SimulatedDisk
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from tests.metadata_building import FixedClock, image_of, tell

CONTEXT = RequestContext("User:ANONYMOUS", None, "127.0.0.1", "PLAINTEXT", 4, 0)

BROKER, EVERY_BROKER, FILE, DEFAULT = (
    ConfigSource.BROKER,
    ConfigSource.EVERY_BROKER,
    ConfigSource.FILE,
    ConfigSource.DEFAULT,
)


def test_more_settings_than_an_answer_can_have_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(describe_configs, "SETTINGS_MAX", 7)
    subscriptions = [
        DescribeConfigsResource(resource_type=16, resource_name=name, configuration_keys=None)
        for name in "abc"
    ]

    async def describe(store: EmbeddedMetadataStore) -> None:
        handler = DescribeConfigsHandler(
            store, LiveConfig(BrokerConfig()), TimeSlices(FixedClock())
        )
        answer = await handler.handle(CONTEXT, DescribeConfigsRequest(resources=subscriptions))
        assert [len(result.configs) for result in answer.results] == [3, 3, 0]
        assert answer.results[2].error_message == (
            "the answer is too large: ask for fewer resources at once"
        )

    tell(SimulatedDisk(), describe)


def test_an_empty_list_of_settings_stands_for_all_of_them() -> None:
    wanted = DescribeConfigsResource(resource_type=32, resource_name="g", configuration_keys=[])

    async def describe(store: EmbeddedMetadataStore) -> None:
        handler = DescribeConfigsHandler(
            store, LiveConfig(BrokerConfig()), TimeSlices(FixedClock())
        )
        answer = await handler.handle(CONTEXT, DescribeConfigsRequest(resources=[wanted]))
        assert len(answer.results[0].configs) == 11

    tell(SimulatedDisk(), describe)


def descriptions(
    static: dict[str, str], *dynamic: tuple[int, str, str, str], is_short: bool = False
) -> ConfigDescriptions:
    image = image_of(
        *(
            ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
            for kind, resource, name, value in dynamic
        )
    )
    live_config = LiveConfig(BrokerConfig.parse(static))
    live_config.take(image)
    return ConfigDescriptions(
        image, live_config, include_synonyms=not is_short, include_documentation=not is_short
    )


def entry_of(described: Described, name: str) -> DescribeConfigsResourceResult:
    return next(entry for entry in described if entry.name == name)


def synonyms_of(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(one.name, one.value, one.source) for one in entry.synonyms]


def test_values_of_all_levels_are_told_in_the_order_in_which_they_count() -> None:
    found = descriptions(
        {"log.retention.hours": "24", "log.retention.ms": "5"},
        (4, "", "log.retention.ms", "3"),
        (4, "1", "log.retention.ms", "2"),
        (2, "t", "retention.ms", "1"),
    )
    at_brokers = [
        ("log.retention.ms", "2", BROKER),
        ("log.retention.ms", "3", EVERY_BROKER),
        ("log.retention.ms", "5", FILE),
        ("log.retention.hours", "24", FILE),
        ("log.retention.hours", "168", DEFAULT),
    ]
    topic = entry_of(found.topic("t"), "retention.ms")
    assert (topic.value, topic.config_source) == ("1", ConfigSource.TOPIC)
    assert synonyms_of(topic) == [("retention.ms", "1", ConfigSource.TOPIC), *at_brokers]
    other = entry_of(found.topic("other"), "retention.ms")
    assert (other.value, other.config_source) == ("2", BROKER)
    assert synonyms_of(entry_of(found.broker(), "log.retention.ms")) == at_brokers


def test_lists_are_in_the_order_in_which_they_were_set() -> None:
    found = descriptions(
        {"log.cleanup.policy": "delete,compact"},
        (2, "t", "leader.replication.throttled.replicas", "2:1, 10:1"),
    )
    throttled = entry_of(found.topic("t"), "leader.replication.throttled.replicas")
    assert throttled.value == "2:1,10:1"
    assert synonyms_of(throttled)[0][1] == "2:1,10:1"
    for described, name in (
        (found.topic("t"), "cleanup.policy"),
        (found.broker(), "log.cleanup.policy"),
    ):
        assert entry_of(described, name).value == "delete,compact"


def test_a_list_that_cannot_be_used_is_told_by_what_is() -> None:
    found = descriptions({}, (2, "t", "cleanup.policy", "delete,shrink"))
    assert entry_of(found.topic("t"), "cleanup.policy").value == "delete"


def test_a_unit_that_does_not_count_is_described_by_its_own_value() -> None:
    found = descriptions({"log.retention.ms": "5"})
    hours = entry_of(found.broker(), "log.retention.hours")
    assert (hours.value, hours.config_source) == ("168", DEFAULT)
    assert synonyms_of(hours) == [("log.retention.hours", "168", DEFAULT)]
    minutes = entry_of(found.broker(), "log.retention.minutes")
    assert (minutes.value, minutes.config_source, minutes.synonyms) == (None, DEFAULT, [])


def test_an_old_name_is_a_source_of_the_new_one() -> None:
    node_id = entry_of(descriptions({"broker.id": "7"}).broker(), "node.id")
    assert (node_id.value, node_id.config_source) == ("7", FILE)


def test_what_was_set_to_its_default_was_set() -> None:
    entry = entry_of(descriptions({"num.partitions": "1"}).broker(), "num.partitions")
    assert (entry.value, entry.config_source, entry.read_only) == ("1", FILE, True)


def test_settings_without_a_use_are_shown_where_they_were_set() -> None:
    found = descriptions({}, (4, "", "num.io.threads", "16"))
    entry = entry_of(found.broker(), "num.io.threads")
    assert (entry.value, entry.config_source, entry.read_only) == ("16", EVERY_BROKER, False)
    (everywhere,) = found.every_broker()
    assert (everywhere.name, everywhere.config_source) == ("num.io.threads", EVERY_BROKER)


def test_the_value_of_an_undeclared_setting_is_never_shown() -> None:
    found = descriptions({}, (4, "1", "my.password", "hush"), (4, "", "all.password", "hush"))
    own, inherited = (entry_of(found.broker(), name) for name in ("my.password", "all.password"))
    (everywhere,) = found.every_broker()
    for entry, source in ((own, BROKER), (inherited, EVERY_BROKER), (everywhere, EVERY_BROKER)):
        assert (entry.value, entry.is_sensitive, entry.read_only) == (None, True, True)
        assert (entry.config_type, entry.config_source) == (0, source)
        assert synonyms_of(entry) == [(entry.name, None, source)]


@pytest.mark.parametrize(
    ("static", "topic_setting"),
    [
        ({"log.retention.hours": "24"}, "retention.ms"),
        ({"log.retention.minutes": "24"}, "retention.ms"),
        ({"log.roll.hours": "24"}, "segment.ms"),
        ({"log.roll.jitter.hours": "24"}, "segment.jitter.ms"),
        ({"log.flush.scheduler.interval.ms": "24"}, "flush.ms"),
    ],
)
def test_a_setting_in_another_unit_is_no_synonym_of_a_topics(
    static: dict[str, str], topic_setting: str
) -> None:
    entry = entry_of(descriptions(static).topic("t"), topic_setting)
    assert (synonyms_of(entry), entry.config_source) == ([], DEFAULT)
    assert entry.value != entry_of(descriptions({}).topic("t"), topic_setting).value


def test_only_the_requested_settings_are_described() -> None:
    entry = entry_of(descriptions({}, is_short=True).topic("t"), "retention.ms")
    assert (entry.synonyms, entry.documentation) == ([], None)


def test_topics_share_their_inherited_settings() -> None:
    found = descriptions({}, (2, "t", "retention.ms", "1"))
    assert found.topic("a") is found.topic("b")
    assert found.topic("t")[0] is found.topic("a")[0]


def test_no_secret_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Kind(SettingType.PASSWORD, "any", TEXT.read)
    secret = replace(BROKER_SETTINGS["broker.rack"], kind=kind)
    monkeypatch.setattr(
        describe_configs, "BROKER_SETTINGS", {**BROKER_SETTINGS, "broker.rack": secret}
    )
    entry = entry_of(descriptions({"broker.rack": "hush"}).broker(), "broker.rack")
    assert (entry.value, entry.is_sensitive, entry.config_source) == (None, True, FILE)
    assert synonyms_of(entry) == [("broker.rack", None, FILE)]
