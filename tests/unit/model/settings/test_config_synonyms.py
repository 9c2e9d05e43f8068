"""Broker settings that give the defaults of topic settings, with their units."""

import pytest

from ottla.model.settings.broker_config import BROKER_SYNONYMS, TOPIC_SYNONYMS, BrokerConfig
from ottla.model.settings.broker_settings import BROKER_SETTINGS
from ottla.model.settings.topic_config import TOPIC_SETTINGS, TopicConfig


def topic_setting(name: str, **settings: str) -> str:
    dotted = {key.replace("_", "."): text for key, text in settings.items()}
    return BrokerConfig.parse(dotted).topic_defaults().as_strings()[name]


def test_a_broker_that_says_nothing_leaves_topics_kafkas_defaults() -> None:
    assert BrokerConfig().topic_defaults() == TopicConfig()


def test_milliseconds_go_before_minutes_and_those_before_hours() -> None:
    hours = {"log_retention_hours": "1"}
    minutes = {**hours, "log_retention_minutes": "2"}
    assert topic_setting("retention.ms", **hours) == "3600000"
    assert topic_setting("retention.ms", **minutes) == "120000"
    assert topic_setting("retention.ms", **minutes, log_retention_ms="3") == "3"
    assert topic_setting("retention.ms", **minutes, log_retention_ms="") == "120000"
    assert topic_setting("segment.ms", log_roll_hours="2") == "7200000"
    assert topic_setting("segment.ms", log_roll_hours="2", log_roll_ms="5") == "5"
    assert topic_setting("segment.jitter.ms", log_roll_jitter_hours="1") == "3600000"


@pytest.mark.parametrize("unit", ["ms", "minutes", "hours"])
def test_records_can_be_kept_for_ever_in_any_unit(unit: str) -> None:
    assert topic_setting("retention.ms", **{f"log_retention_{unit}": "-1"}) == "-1"


def test_the_interval_of_flushing_is_that_of_looking_unless_it_was_set() -> None:
    assert topic_setting("flush.ms", log_flush_scheduler_interval_ms="5") == "5"
    both = {"log_flush_scheduler_interval_ms": "5", "log_flush_interval_ms": "7"}
    assert topic_setting("flush.ms", **both) == "7"


OTHER_VALUES = {
    "cleanup.policy": "compact",
    "compression.type": "zstd",
    "compression.gzip.level": "5",
    "compression.lz4.level": "5",
    "compression.zstd.level": "5",
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": "0.25",
    "preallocate": "true",
    "unclean.leader.election.enable": "true",
}


@pytest.mark.parametrize("name", TOPIC_SYNONYMS)
def test_what_a_broker_says_for_topics_they_have(name: str) -> None:
    text = OTHER_VALUES.get(name, "1048577")
    synonym = TOPIC_SYNONYMS[name][0]
    defaults = BrokerConfig.parse({synonym.name: text}).topic_defaults()
    assert defaults == TopicConfig.parse({name: text})
    assert defaults != TopicConfig()


def test_all_but_throttled_replicas_can_be_said_for_all_topics() -> None:
    left = TOPIC_SETTINGS.keys() - TOPIC_SYNONYMS.keys()
    assert all(name.endswith(".throttled.replicas") for name in left)
    names = {synonym.name for synonyms in TOPIC_SYNONYMS.values() for synonym in synonyms}
    assert names <= BROKER_SETTINGS.keys()


def test_what_says_the_same_in_other_units_is_known() -> None:
    retention = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    assert [BROKER_SYNONYMS[name] for name in retention] == [retention] * 3
    assert "log.segment.bytes" not in BROKER_SYNONYMS
