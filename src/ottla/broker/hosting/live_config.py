"""The broker's current configuration: its static and its dynamic settings.

Dynamic settings are in the committed metadata. They apply to all brokers, or to one; the latter
take precedence. Users of a dynamic setting read `current` each time, or subscribe.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ottla.machines.controller.effective_configs import usable_settings
from ottla.metadata.image import ClusterImage, ResourceType
from ottla.metadata.records import ConfigRecord, MetadataRecord
from ottla.model.settings.broker_config import BrokerConfig, can_change_while_running
from ottla.model.settings.broker_settings import BROKER_SETTINGS
from ottla.model.settings.settings import InvalidSettingsError
from ottla.model.settings.topic_config import TopicConfig

_log = logging.getLogger(__name__)


class LiveConfig:
    """Follows the metadata. Subscribe it to the store before its own users."""

    def __init__(self, static: BrokerConfig) -> None:
        self.static = static
        """The settings at start."""
        self.current = static
        self.topic_defaults = static.topic_defaults()
        """The settings of topics without settings of their own."""
        self._listeners: list[Callable[[BrokerConfig], None]] = []

    def subscribe(self, on_change: Callable[[BrokerConfig], None]) -> None:
        """Call a function at every change of the configuration. It must not raise."""
        self._listeners.append(on_change)

    def on_change(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Go on to the next image."""
        if any(_is_about_brokers(record) for record in records):
            self.take(image)

    def take(self, image: ClusterImage) -> None:
        """Apply the settings of an image."""
        current = _with_settings(self.static, image.broker_settings(self.static.node_id))
        if current == self.current:
            return
        _log.info("changed while running: %s", ", ".join(_changed(self.current, current)))
        self.current = current
        self.topic_defaults = current.topic_defaults()
        for on_change in self._listeners:
            on_change(current)


def topic_config(own: Mapping[str, str], defaults: TopicConfig, topic: str) -> TopicConfig:
    """Return a topic's settings; invalid ones are logged and left out."""
    if not own:
        return defaults
    try:
        return TopicConfig.parse(own, defaults)
    except InvalidSettingsError as error:
        _log.error("settings of topic %s: %s", topic, error.detail)
        return usable_settings(own, defaults)


def _changed(old: BrokerConfig, new: BrokerConfig) -> list[str]:
    before, after = old.as_strings(), new.as_strings()
    return [name for name in BROKER_SETTINGS if before.get(name) != after.get(name)]


def _is_about_brokers(record: MetadataRecord) -> bool:
    return isinstance(record, ConfigRecord) and record.resource_type == ResourceType.BROKER


def _with_settings(static: BrokerConfig, settings: Mapping[str, str]) -> BrokerConfig:
    used = {name: text for name, text in settings.items() if can_change_while_running(name)}
    if not used:
        return static
    try:
        return BrokerConfig.parse(used, static)
    except InvalidSettingsError as error:
        _log.error("settings of this broker: %s", error.detail)
    config = static
    for name, text in used.items():
        with suppress(InvalidSettingsError):
            config = BrokerConfig.parse({name: text}, config)
    return config
