"""A broker's settings: Kafka's names, and Kafka's defaults where those are safe.

A setting is `num.partitions` in files and `num_partitions` here. Kafka has far more settings than
Ottla uses: a file that sets them is accepted, and `notes_on` lists those without an effect.
Settings that protect something are refused instead.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from ottla.model.settings.admin_listener import DEFAULT_ADMIN_LISTENER, AdminListener
from ottla.model.settings.broker_settings import BROKER_SETTINGS
from ottla.model.settings.config_synonyms import TOPIC_SYNONYMS
from ottla.model.settings.kafka_settings import (
    GUARDING_SETTINGS,
    KAFKA_SETTING_NAMES,
    is_known_to_kafka,
)
from ottla.model.settings.listeners import (
    Listener,
    ListenerProtocol,
    SecurityProtocol,
    advertised_listeners,
)
from ottla.model.settings.settings import (
    InvalidSettingsError,
    field_name,
    read_settings,
    shown,
    text_of,
    texts_of,
    unknown_settings,
)
from ottla.model.settings.topic_config import NO_LIMIT, CleanupPolicy, TimestampType, TopicConfig

SERVED_PROTOCOLS: Final = frozenset({SecurityProtocol.PLAINTEXT})
"""The supported listener protocols. Serving any other as plain text would expose users' data."""

_OF_TOPICS = TopicConfig()


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """All settings of one broker that Ottla uses.

    The constructor validates nothing; `parse` does. None means that the setting follows another
    one.
    """

    node_id: int = 1
    broker_rack: str | None = None

    zookeeper_connect: str | None = None
    zookeeper_session_timeout_ms: int = 18_000

    listeners: tuple[Listener, ...] = (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    advertised_listeners: tuple[Listener, ...] = ()
    listener_security_protocol_map: tuple[ListenerProtocol, ...] = tuple(
        ListenerProtocol(protocol, protocol) for protocol in SecurityProtocol
    )
    inter_broker_listener_name: str | None = None
    controller_listener_names: tuple[str, ...] = ()

    socket_request_max_bytes: int = 100 << 20
    socket_send_buffer_bytes: int = 100 << 10
    socket_receive_buffer_bytes: int = 1 << 20
    socket_listen_backlog_size: int = 50
    max_connections: int = 10_000
    max_connections_per_ip: int = 2_000
    connections_max_idle_ms: int = 600_000
    queued_max_requests: int = 500
    queued_max_request_bytes: int = 192 << 20
    fetch_max_bytes: int = 55 << 20
    max_incremental_fetch_session_cache_slots: int = 1_000
    telemetry_max_bytes: int = 1 << 20

    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    num_partitions: int = 1
    default_replication_factor: int = 1

    log_dirs: tuple[str, ...] = ("ottla-data",)
    log_retention_check_interval_ms: int = 300_000
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 128 << 20
    log_cleaner_io_max_bytes_per_second: float = sys.float_info.max
    log_scrub_interval_ms: int = 7 * 86_400_000
    log_scrub_io_max_bytes_per_second: int = 8 << 20
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    transaction_partition_verification_enable: bool = True

    compression_type: str = _OF_TOPICS.compression_type
    compression_gzip_level: int = _OF_TOPICS.compression_gzip_level
    compression_lz4_level: int = _OF_TOPICS.compression_lz4_level
    compression_zstd_level: int = _OF_TOPICS.compression_zstd_level
    log_cleaner_delete_retention_ms: int = _OF_TOPICS.delete_retention_ms
    log_cleaner_max_compaction_lag_ms: int = _OF_TOPICS.max_compaction_lag_ms
    log_cleaner_min_cleanable_ratio: float = _OF_TOPICS.min_cleanable_dirty_ratio
    log_cleaner_min_compaction_lag_ms: int = _OF_TOPICS.min_compaction_lag_ms
    log_cleanup_policy: frozenset[CleanupPolicy] = _OF_TOPICS.cleanup_policy
    log_flush_interval_messages: int = _OF_TOPICS.flush_messages
    log_flush_interval_ms: int | None = None
    log_flush_scheduler_interval_ms: int = NO_LIMIT
    log_index_interval_bytes: int = _OF_TOPICS.index_interval_bytes
    log_index_size_max_bytes: int = _OF_TOPICS.segment_index_bytes
    log_message_timestamp_after_max_ms: int = _OF_TOPICS.message_timestamp_after_max_ms
    log_message_timestamp_before_max_ms: int = _OF_TOPICS.message_timestamp_before_max_ms
    log_message_timestamp_type: TimestampType = _OF_TOPICS.message_timestamp_type
    log_preallocate: bool = _OF_TOPICS.preallocate
    log_retention_bytes: int = _OF_TOPICS.retention_bytes
    log_retention_ms: int | None = None
    log_retention_minutes: int | None = None
    log_retention_hours: int = 7 * 24
    log_roll_ms: int | None = None
    log_roll_hours: int = 7 * 24
    log_roll_jitter_ms: int | None = None
    log_roll_jitter_hours: int = 0
    log_segment_bytes: int = _OF_TOPICS.segment_bytes
    log_segment_delete_delay_ms: int = _OF_TOPICS.file_delete_delay_ms
    message_max_bytes: int = _OF_TOPICS.max_message_bytes
    min_insync_replicas: int = _OF_TOPICS.min_insync_replicas
    unclean_leader_election_enable: bool = _OF_TOPICS.unclean_leader_election_enable

    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1 << 20
    replica_fetch_response_max_bytes: int = 10 << 20
    replica_fetch_backoff_ms: int = 1_000
    replica_socket_timeout_ms: int = 30_000
    replica_selector_class: str | None = None
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    leader_imbalance_per_broker_percentage: int = 10
    controlled_shutdown_enable: bool = True
    controlled_shutdown_max_retries: int = 3
    controlled_shutdown_retry_backoff_ms: int = 5_000
    leader_replication_throttled_rate: int = NO_LIMIT
    follower_replication_throttled_rate: int = NO_LIMIT
    replica_alter_log_dirs_io_max_bytes_per_second: int = NO_LIMIT
    replication_quota_window_num: int = 11
    replication_quota_window_size_seconds: int = 1
    alter_log_dirs_replication_quota_window_num: int = 11
    alter_log_dirs_replication_quota_window_size_seconds: int = 1

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 5_000
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 100 << 20
    offsets_topic_compression_codec: int = 0
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    offsets_commit_timeout_ms: int = 5_000

    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_min_isr: int = 2
    transaction_state_log_segment_bytes: int = 100 << 20
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 60 * 60_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_two_phase_commit_enable: bool = False

    ottla_admin_listener: AdminListener | None = DEFAULT_ADMIN_LISTENER
    ottla_group_max_bytes: int = 8 << 20
    ottla_groups_max_bytes: int = 128 << 20

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
        return replace(_OF_TOPICS, **value_by_field)

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
        f" besides those in controller.listener.names"
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
                f" must be one that Ottla speaks already: {', '.join(sorted(SERVED_PROTOCOLS))}"
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


def _check_sessions(config: BrokerConfig) -> str | None:
    least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if least <= most:
        return None
    return (
        f"group.min.session.timeout.ms cannot be {least}:"
        f" it must be at most group.max.session.timeout.ms, {most}"
    )


def _check_compaction_lags(config: BrokerConfig) -> str | None:
    least, most = config.log_cleaner_min_compaction_lag_ms, config.log_cleaner_max_compaction_lag_ms
    if least <= most:
        return None
    return (
        f"log.cleaner.min.compaction.lag.ms cannot be {least}:"
        f" it must be at most log.cleaner.max.compaction.lag.ms, {most}"
    )


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
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"): _check_sessions,
    (
        "log.cleaner.min.compaction.lag.ms",
        "log.cleaner.max.compaction.lag.ms",
    ): _check_compaction_lags,
}
"""Checks across settings; a check is skipped if one of its settings could not be read."""
