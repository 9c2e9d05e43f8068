"""The effective value of a setting: the first of these that is set.

    set for the topic
    set for this broker dynamically       log.retention.ms of broker 3
    set for all brokers dynamically       log.retention.ms of the cluster-wide default
    the broker's configuration file
    Kafka's default

Brokers have names of their own for the settings that topics inherit.
"""

from collections.abc import Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.machines.controller.settings import ControllerSettings
from ottla.metadata.image import EVERY_BROKER, ClusterImage, ConfigResource, ResourceType
from ottla.model.settings.broker_config import TOPIC_SYNONYMS
from ottla.model.settings.settings import InvalidSettingsError
from ottla.model.settings.topic_config import TopicConfig

TOPIC_SETTING_BY_BROKER_SETTING: Final = {
    synonyms[0].name: topic_setting for topic_setting, synonyms in TOPIC_SYNONYMS.items()
}
"""Broker settings that can be changed dynamically. Synonyms in other units count at start only."""


class ConfigSource(IntEnum):
    """Where a value comes from, by the protocol's numbers."""

    TOPIC = 1
    BROKER = 2
    EVERY_BROKER = 3
    FILE = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class SourcedValue(NamedTuple):
    """A value, and where it comes from."""

    value: str
    source: ConfigSource


def topic_defaults(image: ClusterImage, settings: ControllerSettings) -> TopicConfig:
    """Return the settings of a topic without settings of its own."""
    own = _as_topic_settings(image.broker_settings(settings.broker_id))
    return usable_settings(own, settings.topic_defaults)


def topic_config(image: ClusterImage, topic: str, defaults: TopicConfig) -> TopicConfig:
    """Return all settings of a topic, given its defaults."""
    return usable_settings(image.topic_settings(topic), defaults)


def usable_settings(own: Mapping[str, str], defaults: TopicConfig) -> TopicConfig:
    """Return the defaults with a topic's own settings, except invalid ones.

    A stored setting can be invalid if another release has written it, or if a broker's
    configuration has changed its bounds.
    """
    try:
        return TopicConfig.parse(own, defaults) if own else defaults
    except InvalidSettingsError:
        config = defaults
    for name, text in own.items():
        with suppress(InvalidSettingsError):
            config = TopicConfig.parse({name: text}, config)
    return config


def parsed_broker_settings(
    broker_settings: Mapping[str, str], settings: ControllerSettings
) -> TopicConfig:
    """Read the brokers' settings for topics; ApiError INVALID_CONFIG uses the topics' names."""
    if not broker_settings:
        return settings.topic_defaults
    return TopicConfig.parse(_as_topic_settings(broker_settings), settings.topic_defaults)


def sourced_defaults(image: ClusterImage, settings: ControllerSettings) -> dict[str, SourcedValue]:
    """Return every setting of a topic that sets nothing itself, and where each comes from."""
    default = TopicConfig().as_strings()
    found = {
        name: SourcedValue(
            text, ConfigSource.DEFAULT if text == default[name] else ConfigSource.FILE
        )
        for name, text in settings.topic_defaults.as_strings().items()
    }
    own = ConfigResource(ResourceType.BROKER, str(settings.broker_id))
    for resource, source in (
        (EVERY_BROKER, ConfigSource.EVERY_BROKER),
        (own, ConfigSource.BROKER),
    ):
        for name, text in _as_topic_settings(image.configs.get(resource, {})).items():
            found[name] = SourcedValue(text, source)
    return found


def _as_topic_settings(broker_settings: Mapping[str, str]) -> dict[str, str]:
    # A newer release may have written settings that this release does not know.
    return {
        TOPIC_SETTING_BY_BROKER_SETTING[name]: text
        for name, text in broker_settings.items()
        if name in TOPIC_SETTING_BY_BROKER_SETTING
    }
