"""A broker's configuration: the settings in `broker_settings`, parsed and checked.

A setting is `num.partitions` in files and `num_partitions` here. Kafka has far more settings than
Ottla uses: a file that sets them is accepted, and `notes_on` lists those without an effect.
Settings that protect something are refused instead.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Self

from ottla.model.settings.broker_settings import BROKER_SETTINGS, BrokerSettings
from ottla.model.settings.kafka_settings import (
    GUARDING_SETTINGS,
    KAFKA_4_SETTING_NAMES,
    KAFKA_SETTING_NAMES,
    is_known_to_kafka,
)
from ottla.model.settings.listeners import (
    Listener,
    SecurityProtocol,
    advertised_listeners,
)
from ottla.model.settings.settings import (
    InvalidSettingsError,
    Setting,
    UpdateMode,
    field_name,
    read_settings,
    shown,
    text_of,
    texts_of,
    unknown_settings,
)
from ottla.model.settings.topic_config import TOPIC_SETTINGS, TopicConfig

SERVED_PROTOCOLS: Final = frozenset({SecurityProtocol.PLAINTEXT})
"""The supported listener protocols. Serving any other as plain text would expose users' data."""

TOPIC_SYNONYMS: Final[Mapping[str, tuple[Setting, ...]]] = {
    topic_setting: synonyms
    for topic_setting in TOPIC_SETTINGS
    if (
        synonyms := tuple(
            one for one in BROKER_SETTINGS.values() if one.topic_setting == topic_setting
        )
    )
}
"""The broker settings that replace an unset topic setting; the first set one counts."""

BROKER_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    synonym.name: tuple(other.name for other in synonyms)
    for synonyms in TOPIC_SYNONYMS.values()
    if len(synonyms) > 1
    for synonym in synonyms
}
"""The broker settings with the same meaning in other units; the first set name counts."""


@dataclass(frozen=True, slots=True)
class BrokerConfig(BrokerSettings):
    """All settings of one broker that Ottla uses.

    The constructor validates nothing; `parse` does.
    """

    given: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The settings as they were written; all others have their defaults."""

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """The listeners that are opened: all but those for controllers."""
        return tuple(
            listener
            for listener in self.listeners
            if listener.name not in self.controller_listener_names
        )

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener for other brokers."""
        names = [listener.name for listener in self.broker_listeners]
        default = "PLAINTEXT" if "PLAINTEXT" in names else names[0]
        return self.inter_broker_listener_name or default

    def security_protocol(self, listener_name: str) -> SecurityProtocol | None:
        """Return the protocol of a listener, if the protocol map has one."""
        return dict(self.listener_security_protocol_map).get(listener_name)

    def to_advertise(self, port_by_name: Mapping[str, int], host_name: str) -> tuple[Listener, ...]:
        """Return the advertised address of each listener, once ports are bound."""
        return advertised_listeners(
            self.broker_listeners, self.advertised_listeners, port_by_name, host_name
        )

    def topic_defaults(self) -> TopicConfig:
        """Return the default settings of topics."""
        value_by_field = {
            field_name(topic_name): next(
                synonym.converted(value)
                for synonym in synonyms
                if (value := getattr(self, field_name(synonym.name))) is not None
            )
            for topic_name, synonyms in TOPIC_SYNONYMS.items()
        }
        return replace(TopicConfig(), **value_by_field)

    @classmethod
    def parse(cls, settings: Mapping[str, str], defaults: Self | None = None) -> Self:
        """Read settings by their dotted names; missing settings are as in `defaults`.

        InvalidSettingsError lists every fault at once: names that neither Ottla nor Kafka knows,
        invalid values, and contradictions.
        """
        used = {name: text for name, text in settings.items() if name in BROKER_SETTINGS}
        values, problem_by_name = read_settings(BROKER_SETTINGS, used)
        base = cls() if defaults is None else defaults
        config = replace(base, **values, given={**base.given, **settings})
        problems = [
            *_problems_with_names(settings),
            *problem_by_name.values(),
            *_problems_with_ids(config, settings, problem_by_name),
            *_contradictions(config, problem_by_name),
        ]
        if problems:
            raise InvalidSettingsError(problems)
        return config

    def as_strings(self) -> dict[str, str]:
        """Write every setting that has a value by its dotted name, as `parse` reads it."""
        return texts_of(self, BROKER_SETTINGS)


def notes_on(settings: Mapping[str, str]) -> list[str]:
    """Return a sentence for each accepted setting that has no effect."""
    return [
        f"{name} is known to Kafka, not used by Ottla yet"
        for name in settings
        if name not in BROKER_SETTINGS and is_known_to_kafka(name)
    ]


DEFAULT_CONFIG: Final = BrokerConfig()
"""The configuration of a broker without any settings."""


def can_change_while_running(name: str) -> bool:
    """Whether this is a setting that takes effect at once when it is altered.

    Kafka also changes the settings of listeners, which are per broker, in a running broker.
    """
    declared = BROKER_SETTINGS.get(name)
    return declared is not None and declared.update_mode is UpdateMode.CLUSTER_WIDE


_OF_LISTENER: Final = re.compile(r"listener\.name\.[^.]+\.")


def is_unknown(name: str) -> bool:
    """Whether neither Ottla nor Kafka 4 declares this setting, so that it may be a plug-in's.

    A declared setting may have the prefix of a listener. Kafka lets an unknown setting be altered
    and never shows its value, as it may be a secret.
    """
    declared = _OF_LISTENER.sub("", name, count=1)
    return declared not in BROKER_SETTINGS and declared not in KAFKA_4_SETTING_NAMES


# -- validation -----------------------------------------------------------------------------------


def _problems_with_names(settings: Mapping[str, str]) -> list[str]:
    problems = [
        f"{name} cannot be {shown(settings[name])}: it must be empty, as {reason}"
        for name, reason in GUARDING_SETTINGS.items()
        if settings.get(name, "").strip()
    ]
    unknown = [
        name for name in settings if name not in BROKER_SETTINGS and not is_known_to_kafka(name)
    ]
    return problems + unknown_settings(unknown, "broker", [*BROKER_SETTINGS, *KAFKA_SETTING_NAMES])


def _problems_with_ids(
    config: BrokerConfig, settings: Mapping[str, str], problem_by_name: Mapping[str, str]
) -> list[str]:
    old = settings.get("broker.id")
    if old is None or "broker.id" in problem_by_name or int(old) == config.node_id:
        return []
    return [f"broker.id cannot be {shown(old)}: it must be node.id, {config.node_id}, or left out"]


def _contradictions(config: BrokerConfig, problem_by_name: Mapping[str, str]) -> list[str]:
    """Return the contradictions among the settings that could be read."""
    return [
        problem
        for names, check in _CHECKS.items()
        if problem_by_name.keys().isdisjoint(names) and (problem := check(config))
    ]


def _check_some_are_open(config: BrokerConfig) -> str | None:
    if config.broker_listeners:
        return None
    return (
        f"listeners cannot be {shown(text_of(config.listeners))}: it must have one for clients,"
        f" besides the listeners in controller.listener.names"
    )


def _check_advertised_names(config: BrokerConfig) -> str | None:
    names = [listener.name for listener in config.listeners]
    strange = [listener for listener in config.advertised_listeners if listener.name not in names]
    if not strange:
        return None
    return (
        f"advertised.listeners cannot have {shown(str(strange[0]))}:"
        f" its name must be one of {', '.join(names)}, as in listeners"
    )


def _check_advertised_hosts(config: BrokerConfig) -> str | None:
    for listener in config.advertised_listeners:
        if listener.host and listener.is_on_every_address:
            return (
                f"advertised.listeners cannot have {shown(str(listener))}:"
                f" it must be a host that clients can connect to"
            )
    return None


def _check_protocols(config: BrokerConfig) -> str | None:
    for listener in config.broker_listeners:
        protocol = config.security_protocol(listener.name)
        if protocol is None:
            return (
                f"listeners cannot have {shown(str(listener))} without a protocol for"
                f" {listener.name} in listener.security.protocol.map"
            )
        if protocol not in SERVED_PROTOCOLS:
            return (
                f"listeners cannot have {shown(str(listener))}: its protocol is {protocol}, and"
                f" must be one of the supported protocols: {', '.join(sorted(SERVED_PROTOCOLS))}"
            )
    return None


def _check_inter_broker_listener(config: BrokerConfig) -> str | None:
    names = [listener.name for listener in config.broker_listeners]
    name = config.inter_broker_listener_name
    if name is None or not names or name in names:
        return None
    return (
        f"inter.broker.listener.name cannot be {shown(name)}:"
        f" it must be one of {', '.join(names)}, as in listeners"
    )


def _check_order(least_name: str, most_name: str, config: BrokerConfig) -> str | None:
    """Refuse a minimum that is above its maximum."""
    least, most = getattr(config, field_name(least_name)), getattr(config, field_name(most_name))
    if least <= most:
        return None
    return f"{least_name} cannot be {least}: it must be at most {most_name}, {most}"


_IN_ORDER: Final = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
)
"""Minimums and their maximums."""

_CHECKS: Final[Mapping[tuple[str, ...], Callable[[BrokerConfig], str | None]]] = {
    ("listeners", "controller.listener.names"): _check_some_are_open,
    ("listeners", "advertised.listeners"): _check_advertised_names,
    ("advertised.listeners",): _check_advertised_hosts,
    (
        "listeners",
        "listener.security.protocol.map",
        "controller.listener.names",
    ): _check_protocols,
    (
        "listeners",
        "inter.broker.listener.name",
        "controller.listener.names",
    ): _check_inter_broker_listener,
    **{names: partial(_check_order, *names) for names in _IN_ORDER},
}
"""Checks across settings; a check is skipped if one of its settings could not be read."""
