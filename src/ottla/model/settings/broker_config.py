"""A broker's configuration: the settings in `broker_settings`, parsed and checked.

A setting is `num.partitions` in files and `num_partitions` here. Kafka has far more settings than
Ottla uses: a file that sets them is accepted, and `notes_on` lists those without an effect.
Settings that protect something are refused instead.
"""

import re
from collections.abc import Callable, Mapping, Sequence
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
from ottla.model.settings.node_settings import DEFAULT_PROTOCOLS, ProcessRole
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
    def is_in_quorum(self) -> bool:
        """Whether this node belongs to a cluster with a quorum of controllers."""
        return bool(self.process_roles)

    @property
    def is_in_cluster(self) -> bool:
        """Whether other brokers may belong to its cluster: its metadata is not embedded."""
        return self.is_in_quorum or self.zookeeper_connect is not None

    @property
    def is_broker(self) -> bool:
        """Whether this node serves clients; a node without roles does."""
        return not self.process_roles or ProcessRole.BROKER in self.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether this node is a controller of a quorum."""
        return ProcessRole.CONTROLLER in self.process_roles

    @property
    def is_migrating(self) -> bool:
        """Whether this controller takes part in a migration from ZooKeeper."""
        return (
            self.zookeeper_metadata_migration_enable
            and self.process_roles == {ProcessRole.CONTROLLER}
            and self.zookeeper_connect is not None
        )

    @property
    def metadata_folder(self) -> str:
        """The log directory with the metadata log."""
        return self.metadata_log_dir or self.log_dirs[0]

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """The listeners for clients and brokers: all but those for controllers."""
        return tuple(
            listener
            for listener in self.listeners
            if listener.name not in self.controller_listener_names
        )

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The listeners for controllers, in the order of controller.listener.names."""
        listener_by_name = {listener.name: listener for listener in self.listeners}
        return tuple(
            listener_by_name[name]
            for name in self.controller_listener_names
            if name in listener_by_name
        )

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener for other brokers."""
        names = [listener.name for listener in self.broker_listeners]
        default = "PLAINTEXT" if "PLAINTEXT" in names else names[0]
        return self.inter_broker_listener_name or default

    def security_protocol(self, listener_name: str) -> SecurityProtocol | None:
        """Return the protocol of a listener, if the protocol map has one.

        As in Kafka, the listeners of controllers are plain text if the map is not set.
        """
        protocol = dict(self.listener_security_protocol_map).get(listener_name)
        if (
            protocol is None
            and listener_name in self.controller_listener_names
            and self.listener_security_protocol_map == DEFAULT_PROTOCOLS
        ):
            return SecurityProtocol.PLAINTEXT
        return protocol

    def to_advertise(self, port_by_name: Mapping[str, int], host_name: str) -> tuple[Listener, ...]:
        """Return the advertised address of each listener for clients, once ports are bound."""
        return advertised_listeners(
            self.broker_listeners, self.advertised_listeners, port_by_name, host_name
        )

    def controllers_to_advertise(
        self, port_by_name: Mapping[str, int], host_name: str
    ) -> tuple[Listener, ...]:
        """Return the advertised address of each listener for controllers, once ports are bound."""
        return advertised_listeners(
            self.controller_listeners, self.advertised_listeners, port_by_name, host_name
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
            *_problem_without_id(config),
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


def _problem_without_id(config: BrokerConfig) -> list[str]:
    """Refuse a node of a quorum with the default id: two of them would be taken for one."""
    if not config.process_roles or not config.given.keys().isdisjoint(("node.id", "broker.id")):
        return []
    return ["node.id must be set, as process.roles is: each node of a cluster has its own id"]


def _contradictions(config: BrokerConfig, problem_by_name: Mapping[str, str]) -> list[str]:
    """Return the contradictions among the settings that could be read."""
    return [
        problem
        for check, names in _CHECKS
        if problem_by_name.keys().isdisjoint(names) and (problem := check(config))
    ]


def _check_some_are_open(config: BrokerConfig) -> str | None:
    if config.broker_listeners or not config.is_broker:
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
    opened = config.listeners if config.is_in_quorum else config.broker_listeners
    problems = (
        _problem_with_protocol(
            config, f"listeners cannot have {shown(str(listener))}", listener.name
        )
        for listener in opened
    )
    return next(filter(None, problems), None)


def _check_controller_protocols(config: BrokerConfig) -> str | None:
    """Refuse a protocol by which this node could not connect to controllers."""
    opened = {listener.name for listener in config.listeners}
    problems = (
        _problem_with_protocol(config, f"controller.listener.names cannot have {shown(name)}", name)
        for name in config.controller_listener_names
        if config.is_in_quorum and name not in opened
    )
    return next(filter(None, problems), None)


def _problem_with_protocol(config: BrokerConfig, refusal: str, listener_name: str) -> str | None:
    protocol = config.security_protocol(listener_name)
    if protocol is None:
        return f"{refusal} without a protocol for {listener_name} in listener.security.protocol.map"
    if protocol not in SERVED_PROTOCOLS:
        return (
            f"{refusal}: its protocol is {protocol}, and"
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


def _check_one_mode(config: BrokerConfig) -> str | None:
    if config.is_migrating or (problem := _migration_problem(config)) is not None:
        return None if config.is_migrating else problem
    if config.process_roles and config.zookeeper_connect is not None:
        return (
            "zookeeper.connect cannot be set together with process.roles: a cluster keeps its"
            " metadata in ZooKeeper or in a quorum of controllers"
        )
    if config.is_in_cluster:
        return None
    for name in ("controller.quorum.bootstrap.servers", "controller.quorum.voters"):
        if getattr(config, field_name(name)):
            return (
                f"{name} cannot be set without process.roles,"
                f" which must be broker, controller or both"
            )
    return None


def _migration_problem(config: BrokerConfig) -> str | None:
    """Name the missing setting for `zookeeper.metadata.migration.enable`; a broker may have it."""
    if not config.zookeeper_metadata_migration_enable or (
        not config.process_roles and config.zookeeper_connect is not None
    ):
        return None
    name = "zookeeper.metadata.migration.enable"
    if config.process_roles != {ProcessRole.CONTROLLER}:
        return (
            f"{name} cannot be true with process.roles={text_of(config.process_roles) or None}:"
            " a cluster moves from ZooKeeper to nodes with process.roles=controller"
        )
    return f"zookeeper.connect must be set, as {name} is: the metadata comes from there"


def _check_controllers_are_known(config: BrokerConfig) -> str | None:
    if (
        not config.process_roles
        or config.controller_quorum_bootstrap_servers
        or config.controller_quorum_voters
    ):
        return None
    return (
        "controller.quorum.bootstrap.servers must be set, as process.roles is:"
        " a node finds the leader of the quorum there"
    )


def _check_voters(config: BrokerConfig) -> str | None:
    voters = config.controller_quorum_voters
    is_voter = config.node_id in {voter.id for voter in voters}
    if not voters or not config.process_roles or is_voter == config.is_controller:
        return None
    return (
        f"controller.quorum.voters cannot be {shown(text_of(voters))}: it must"
        f" {'have' if config.is_controller else 'not have'} node {config.node_id}, as its"
        f" process.roles is {text_of(config.process_roles)}"
    )


def _check_auto_join(config: BrokerConfig) -> str | None:
    if not config.controller_quorum_auto_join_enable or config.is_controller:
        return None
    return (
        "controller.quorum.auto.join.enable cannot be true: it must be false in a node without the"
        " role controller"
    )


def _check_controller_listeners(config: BrokerConfig) -> str | None:
    names = config.controller_listener_names
    if not config.process_roles:
        return None
    if not names:
        return "controller.listener.names must be set, as process.roles is"
    opened = [listener.name for listener in config.listeners]
    if not config.is_controller:
        wrong = [name for name in names if name in opened]
        reason = "must not be one of listeners, as this node is no controller"
    else:
        wrong = [name for name in names if name not in opened]
        reason = f"must be one of {', '.join(opened)}, as in listeners"
    return (
        f"controller.listener.names cannot have {shown(wrong[0])}: it {reason}" if wrong else None
    )


def _check_controller_is_no_broker(config: BrokerConfig) -> str | None:
    if config.is_broker or not config.controller_listener_names or not config.broker_listeners:
        return None
    return (
        f"listeners cannot have {shown(str(config.broker_listeners[0]))}: with the role controller"
        f" alone, each must be one of controller.listener.names"
    )


def _check_order(least_name: str, most_name: str, config: BrokerConfig) -> str | None:
    """Refuse a minimum that is above its maximum."""
    least, most = getattr(config, field_name(least_name)), getattr(config, field_name(most_name))
    if least <= most:
        return None
    return f"{least_name} cannot be {least}: it must be at most {most_name}, {most}"


_IN_ORDER: Final = (
    ("broker.heartbeat.interval.ms", "broker.session.timeout.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
)
"""Minimums and their maximums."""

_LISTENERS: Final = ("listeners", "controller.listener.names", "process.roles")
_QUORUM: Final = (
    "process.roles",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
)
_PROTOCOLS: Final = (*_LISTENERS, "listener.security.protocol.map")

_CHECKS: Final[Sequence[tuple[Callable[[BrokerConfig], str | None], tuple[str, ...]]]] = (
    (_check_one_mode, (*_QUORUM, "zookeeper.connect", "zookeeper.metadata.migration.enable")),
    (_check_controllers_are_known, _QUORUM),
    (_check_voters, (*_QUORUM, "node.id")),
    (_check_auto_join, ("process.roles", "controller.quorum.auto.join.enable")),
    (_check_controller_listeners, _LISTENERS),
    (_check_controller_is_no_broker, _LISTENERS),
    (_check_some_are_open, _LISTENERS),
    (_check_advertised_names, ("listeners", "advertised.listeners")),
    (_check_advertised_hosts, ("advertised.listeners",)),
    (_check_protocols, _PROTOCOLS),
    (_check_controller_protocols, _PROTOCOLS),
    (_check_inter_broker_listener, (*_LISTENERS, "inter.broker.listener.name")),
    *((partial(_check_order, *names), names) for names in _IN_ORDER),
)
"""Checks across settings; a check is skipped if one of its settings could not be read."""
