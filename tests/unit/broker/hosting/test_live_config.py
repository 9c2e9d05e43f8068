"""The effective configuration follows committed changes."""

import pytest

from ottla.broker.hosting.live_config import LiveConfig, topic_config
from ottla.metadata.records import ConfigRecord, TopicRecord
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.topic_config import TopicConfig
from tests.metadata_building import image_of, uuid_of

STATIC = BrokerConfig.parse({"node.id": "3", "log.roll.ms": "5", "num.partitions": "7"})


def broker_setting(broker: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=4, resource_name=broker, name=name, value=value)


def live_config(*records: ConfigRecord) -> LiveConfig:
    live = LiveConfig(STATIC)
    live.take(image_of(*records))
    return live


def test_a_broker_setting_goes_before_the_default_of_all_brokers() -> None:
    live = live_config(
        broker_setting("", "max.connections", "1"),
        broker_setting("3", "max.connections", "2"),
        broker_setting("4", "max.connections", "3"),
        broker_setting("", "log.retention.ms", "99"),
    )
    assert live.current.max_connections == 2
    assert live.current.num_partitions == 7
    assert (live.topic_defaults.retention_ms, live.topic_defaults.segment_ms) == (99, 5)
    assert live.static is STATIC


def test_listeners_are_told_of_changes_and_of_nothing_else() -> None:
    live = LiveConfig(STATIC)
    told: list[int] = []
    live.subscribe(lambda config: told.append(config.max_connections))
    first = broker_setting("", "max.connections", "9")
    live.on_change(image_of(first), [first])
    live.on_change(image_of(first), [first])
    topic = TopicRecord(name="t", topic_id=uuid_of(1))
    live.on_change(image_of(first, topic), [topic])
    last = broker_setting("", "max.connections", None)
    live.on_change(image_of(first, last), [last])
    assert told == [9, STATIC.max_connections]
    assert live.current is STATIC


def test_a_read_only_setting_does_not_change_while_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    live = live_config(
        broker_setting("", "num.partitions", "9"),
        broker_setting("3", "listeners", "A://:1"),
        broker_setting("", "num.io.threads", "9"),
        broker_setting("", "what.is.this", "9"),
    )
    assert live.current is STATIC
    assert caplog.records == []


def test_a_value_that_cannot_be_read_leaves_the_others_in_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    live = live_config(
        broker_setting("", "max.connections", "many"), broker_setting("", "log.roll.ms", "8")
    )
    assert live.current.max_connections == STATIC.max_connections
    assert live.current.log_roll_ms == 8
    assert "max.connections cannot be 'many'" in caplog.text


def test_a_topic_keeps_what_still_makes_sense(caplog: pytest.LogCaptureFixture) -> None:
    own = {"min.compaction.lag.ms": "101", "retention.ms": "5", "new.setting": "1"}
    config = topic_config(own, TopicConfig(max_compaction_lag_ms=100), "t")
    assert (config.min_compaction_lag_ms, config.retention_ms) == (0, 5)
    assert "settings of topic t" in caplog.text


def test_topics_that_set_nothing_share_the_defaults() -> None:
    assert topic_config({}, STATIC.topic_defaults(), "t") == STATIC.topic_defaults()
