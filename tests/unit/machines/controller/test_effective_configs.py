"""Effective settings."""

from ottla.machines.controller.effective_configs import (
    TOPIC_SETTING_BY_BROKER_SETTING,
    ConfigSource,
    SourcedValue,
    sourced_defaults,
    topic_config,
    topic_defaults,
)
from ottla.machines.controller.settings import ControllerSettings
from ottla.metadata.records import ConfigRecord
from ottla.model.settings.topic_config import TopicConfig
from tests.metadata_building import image_of

SETTINGS = ControllerSettings(
    broker_id=3,
    topic_defaults=TopicConfig(retention_ms=1, flush_ms=1, segment_ms=1, preallocate=True),
)


def setting(kind: int, resource: str, name: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


IMAGE = image_of(
    setting(4, "", "log.retention.ms", "2"),
    setting(4, "", "log.flush.interval.ms", "2"),
    setting(4, "", "log.roll.ms", "2"),
    setting(4, "3", "log.flush.interval.ms", "3"),
    setting(4, "3", "log.roll.ms", "3"),
    setting(4, "4", "log.roll.ms", "4"),
    setting(2, "t", "segment.ms", "5"),
)


def test_every_setting_that_topics_inherit_has_one_name_at_brokers() -> None:
    known = TopicConfig().as_strings()
    inherited = list(TOPIC_SETTING_BY_BROKER_SETTING.values())
    assert len(set(inherited)) == len(inherited)
    own = {name for name in known if "throttled" in name}
    assert set(inherited) == known.keys() - own


def test_the_nearest_value_counts() -> None:
    config = topic_config(IMAGE, "t", topic_defaults(IMAGE, SETTINGS))
    assert (config.segment_ms, config.flush_ms, config.retention_ms) == (5, 3, 2)
    assert config.preallocate


def test_topics_that_set_nothing_share_their_settings() -> None:
    defaults = topic_defaults(IMAGE, SETTINGS)
    assert topic_config(IMAGE, "other", defaults) is defaults


def test_without_anything_set_the_file_counts() -> None:
    assert topic_defaults(image_of(), SETTINGS) is SETTINGS.topic_defaults


def test_every_value_is_told_with_its_source() -> None:
    told = sourced_defaults(IMAGE, SETTINGS)
    assert told.keys() == TopicConfig().as_strings().keys()
    assert told["flush.ms"] == SourcedValue("3", ConfigSource.BROKER)
    assert told["retention.ms"] == SourcedValue("2", ConfigSource.EVERY_BROKER)
    assert told["preallocate"] == SourcedValue("true", ConfigSource.FILE)
    assert told["cleanup.policy"] == SourcedValue("delete", ConfigSource.DEFAULT)


def test_broker_settings_of_a_newer_release_are_skipped() -> None:
    image = image_of(setting(4, "", "what.is.this", "1"), setting(4, "", "log.roll.ms", "7"))
    assert topic_defaults(image, SETTINGS).segment_ms == 7
    assert sourced_defaults(image, SETTINGS)["segment.ms"].value == "7"


def test_a_topic_keeps_what_still_makes_sense() -> None:
    image = image_of(
        setting(2, "t", "min.compaction.lag.ms", "101"),
        setting(2, "t", "retention.ms", "5"),
        setting(2, "t", "what.is.this", "1"),
    )
    config = topic_config(image, "t", TopicConfig(max_compaction_lag_ms=100))
    assert (config.min_compaction_lag_ms, config.retention_ms) == (0, 5)
