"""The broker settings that Ottla uses: one field declares each setting.

Names, types and limits are Kafka's. Where Kafka accepts a value that it later refuses, or that
cannot work, the limit here is narrower.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.model.settings.listeners import (
    DEFAULT_ADMIN_LISTENER,
    DEFAULT_REGISTRY_LISTENER,
    HTTP_LISTENER,
    HttpListener,
)
from ottla.model.settings.node_settings import NodeSettings
from ottla.model.settings.settings import (
    FLAG,
    HOUR_MS,
    INT16_MAX,
    MINUTE_MS,
    TEXT,
    Alias,
    Kind,
    Setting,
    SettingType,
    at_start,
    double,
    integer,
    long,
    optional,
    setting,
    settings_of,
    short,
    split_list,
)
from ottla.model.settings.topic_config import (
    NO_LIMIT,
    TOPIC_SETTINGS,
    CleanupPolicy,
    TimestampType,
)


def _default_of_topics(topic_setting: str, section: str = "") -> Any:
    """Declare the broker setting that is the default of a topic setting."""
    topic = TOPIC_SETTINGS[topic_setting]
    meaning = topic.documentation[0].lower() + topic.documentation[1:]
    return setting(
        topic.default,
        topic.kind,
        f"The default of {topic_setting} in topics without one: {meaning}",
        section=section,
        topic_setting=topic_setting,
    )


def _folders(text: str) -> tuple[str, ...]:
    folders = split_list(text)
    if not folders or "" in folders or len(set(folders)) != len(folders):
        raise ValueError(text)
    return tuple(folders)


_FOLDERS = Kind(SettingType.LIST, "a list of different directories", _folders)


# Only BrokerConfig is instantiated: it generates the methods for all fields.
@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class BrokerSettings(NodeSettings):
    """The fields of BrokerConfig. None means that the setting follows another setting."""

    socket_request_max_bytes: int = at_start(
        100 << 20,
        integer(1),
        "How many bytes a request may have.",
        section="Connections and requests",
    )
    socket_send_buffer_bytes: int = at_start(
        100 << 10,
        integer(1, also=-1),
        "The size of the kernel's send buffer of a connection; -1 leaves it to the kernel.",
    )
    socket_receive_buffer_bytes: int = at_start(
        1 << 20,
        integer(1, also=-1),
        "The size of the kernel's receive buffer of a connection; -1 leaves it to the kernel.",
    )
    socket_listen_backlog_size: int = at_start(
        50,
        integer(1),
        "Without effect: as many connections may wait to be accepted as the kernel lets wait.",
    )
    max_connections: int = setting(10_000, integer(0), "How many connections may be open in all.")
    max_connections_per_ip: int = setting(
        2_000, integer(1), "How many connections may be open from one address."
    )
    connections_max_idle_ms: int = at_start(
        600_000,
        long(1, also=-1),
        "How long a connection may be silent before it is closed; -1 is no limit.",
    )
    queued_max_requests: int = at_start(
        500,
        integer(1),
        "How many requests of one connection may be in progress before no more are read from it; 32"
        " at most.",
    )
    queued_max_request_bytes: int = at_start(
        192 << 20,
        long(1, also=-1),
        "How many bytes the requests of all connections may take together before those that have a"
        " share in it are not read from; -1 is no limit.",
    )
    fetch_max_bytes: int = at_start(
        55 << 20, integer(1024), "How many bytes of records a fetch may be answered with."
    )
    max_incremental_fetch_session_cache_slots: int = at_start(
        1_000, integer(0), "How many fetch sessions are remembered."
    )
    telemetry_max_bytes: int = at_start(
        1 << 20, integer(1), "How many bytes of its metrics a client may push at once."
    )

    auto_create_topics_enable: bool = at_start(
        True,
        FLAG,
        "Whether a topic that a client asks for, and that is not there, is created.",
        section="Topics",
    )
    delete_topic_enable: bool = at_start(True, FLAG, "Whether topics can be deleted.")
    num_partitions: int = at_start(
        1, integer(1), "The number of partitions of a topic that is created without a number."
    )
    default_replication_factor: int = at_start(
        1,
        integer(1, INT16_MAX),
        "The number of replicas of a topic that is created without a number.",
    )

    log_dirs: tuple[str, ...] = at_start(
        ("ottla-data",),
        _FOLDERS,
        "The directories of the logs, usually one for each disk.",
        section="Logs",
        alias=Alias("log.dir", "The directories if log.dirs is not set."),
    )
    log_retention_check_interval_ms: int = at_start(
        300_000, long(1), "The interval of checks for segments that retention deletes."
    )
    log_flush_offset_checkpoint_interval_ms: int = at_start(
        60_000,
        integer(1),
        "The interval of checkpoints of the recovery points, up to which logs are synced.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = at_start(
        60_000,
        integer(1),
        "Without effect: log start offsets are checkpointed with"
        " log.flush.offset.checkpoint.interval.ms.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = at_start(
        5_000, long(1), "The interval of checkpoints of the high watermarks."
    )
    log_cleaner_enable: bool = at_start(True, FLAG, "Whether logs are compacted.")
    log_cleaner_threads: int = setting(1, integer(0), "How many logs may be compacted at a time.")
    log_cleaner_backoff_ms: int = setting(
        15_000, long(1), "How long compaction rests when there is nothing to compact."
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        128 << 20, long(1 << 20), "How many bytes compaction may use to remember keys."
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        sys.float_info.max, double(1), "How many bytes compaction may read and write in a second."
    )
    producer_id_expiration_ms: int = setting(
        86_400_000,
        integer(1),
        "How long a partition keeps the state of a producer that does not write.",
    )
    producer_id_expiration_check_interval_ms: int = at_start(
        600_000,
        integer(1),
        "Without effect: the state of idle producers expires with the check of retention.",
    )
    transaction_partition_verification_enable: bool = setting(
        True,
        FLAG,
        "Whether a partition verifies with the coordinator a transaction's first batch.",
    )

    log_cleanup_policy: frozenset[CleanupPolicy] = _default_of_topics(
        "cleanup.policy", section="Defaults of topics"
    )
    compression_type: str = _default_of_topics("compression.type")
    compression_gzip_level: int = _default_of_topics("compression.gzip.level")
    compression_lz4_level: int = _default_of_topics("compression.lz4.level")
    compression_zstd_level: int = _default_of_topics("compression.zstd.level")
    log_cleaner_delete_retention_ms: int = _default_of_topics("delete.retention.ms")
    log_segment_delete_delay_ms: int = _default_of_topics("file.delete.delay.ms")
    log_flush_interval_messages: int = _default_of_topics("flush.messages")
    log_index_interval_bytes: int = _default_of_topics("index.interval.bytes")
    log_cleaner_max_compaction_lag_ms: int = _default_of_topics("max.compaction.lag.ms")
    message_max_bytes: int = _default_of_topics("max.message.bytes")
    log_message_timestamp_after_max_ms: int = _default_of_topics("message.timestamp.after.max.ms")
    log_message_timestamp_before_max_ms: int = _default_of_topics("message.timestamp.before.max.ms")
    log_message_timestamp_type: TimestampType = _default_of_topics("message.timestamp.type")
    log_cleaner_min_cleanable_ratio: float = _default_of_topics("min.cleanable.dirty.ratio")
    log_cleaner_min_compaction_lag_ms: int = _default_of_topics("min.compaction.lag.ms")
    min_insync_replicas: int = _default_of_topics("min.insync.replicas")
    log_preallocate: bool = _default_of_topics("preallocate")
    log_retention_bytes: int = _default_of_topics("retention.bytes")
    log_segment_bytes: int = _default_of_topics("segment.bytes")
    log_index_size_max_bytes: int = _default_of_topics("segment.index.bytes")
    unclean_leader_election_enable: bool = _default_of_topics("unclean.leader.election.enable")
    log_flush_interval_ms: int | None = setting(
        None,
        optional(long(0)),
        "The default of flush.ms in topics without one; if empty, log.flush.scheduler.interval.ms.",
        topic_setting="flush.ms",
    )
    log_flush_scheduler_interval_ms: int = at_start(
        NO_LIMIT,
        long(1),
        "The interval of checks for logs that are due to be synced.",
        topic_setting="flush.ms",
    )
    log_retention_ms: int | None = setting(
        None,
        optional(long(1, also=-1)),
        "The default of retention.ms in topics without one, -1 being no limit; if empty,"
        " log.retention.minutes.",
        topic_setting="retention.ms",
    )
    log_retention_minutes: int | None = at_start(
        None,
        optional(integer(1, also=-1)),
        "The same as log.retention.ms, in minutes; if empty, log.retention.hours.",
        topic_setting="retention.ms",
        factor=MINUTE_MS,
    )
    log_retention_hours: int = at_start(
        7 * 24,
        integer(1, also=-1),
        "The same as log.retention.ms, in hours.",
        topic_setting="retention.ms",
        factor=HOUR_MS,
    )
    log_roll_ms: int | None = setting(
        None,
        optional(long(1)),
        "The default of segment.ms in topics without one; if empty, log.roll.hours.",
        topic_setting="segment.ms",
    )
    log_roll_hours: int = at_start(
        7 * 24,
        integer(1),
        "The same as log.roll.ms, in hours.",
        topic_setting="segment.ms",
        factor=HOUR_MS,
    )
    log_roll_jitter_ms: int | None = setting(
        None,
        optional(long(0)),
        "The default of segment.jitter.ms in topics without one; if empty, log.roll.jitter.hours.",
        topic_setting="segment.jitter.ms",
    )
    log_roll_jitter_hours: int = at_start(
        0,
        integer(0),
        "The same as log.roll.jitter.ms, in hours.",
        topic_setting="segment.jitter.ms",
        factor=HOUR_MS,
    )

    replica_lag_time_max_ms: int = at_start(
        30_000,
        long(1),
        "How long a follower may lag behind its leader before it leaves the ISR.",
        section="Replication",
    )
    replica_fetch_wait_max_ms: int = at_start(
        500,
        integer(0),
        "How long a follower's fetch may wait at the leader; less than replica.lag.time.max.ms.",
    )
    replica_fetch_min_bytes: int = at_start(
        1, integer(0), "How many bytes a follower's fetch waits for."
    )
    replica_fetch_max_bytes: int = at_start(
        1 << 20,
        integer(0),
        "How many bytes a follower fetches of a partition at once, unless a batch is larger.",
    )
    replica_fetch_response_max_bytes: int = at_start(
        10 << 20, integer(0), "How many bytes a follower fetches at once, unless a batch is larger."
    )
    replica_fetch_backoff_ms: int = at_start(
        1_000,
        integer(0),
        "The maximum pause of a follower after its leader has refused a partition; the first pause"
        " is 20 ms, and each further pause twice as long.",
    )
    replica_socket_timeout_ms: int = at_start(
        30_000,
        integer(1),
        "How long a broker waits for a response of another broker, besides the wait that the"
        " request allows.",
    )
    replica_selector_class: str | None = at_start(
        None,
        optional(TEXT),
        "The replica that serves consumers: the leader, or with Kafka's RackAwareReplicaSelector,"
        " by its whole name, the replica in their rack.",
    )
    auto_leader_rebalance_enable: bool = at_start(
        True, FLAG, "Whether the controller lets preferred replicas lead again by itself."
    )
    leader_imbalance_check_interval_seconds: int = at_start(
        300, long(1), "How often the controller looks whether preferred replicas lead."
    )
    leader_imbalance_per_broker_percentage: int = at_start(
        10,
        integer(0),
        "The percentage of a broker's preferred partitions that other brokers may lead before the"
        " controller rebalances.",
    )
    controlled_shutdown_enable: bool = at_start(
        True, FLAG, "Whether a broker hands over its leaderships before it stops."
    )
    controlled_shutdown_max_retries: int = at_start(
        3,
        integer(0),
        "How often controlled.shutdown.retry.backoff.ms may pass before a broker stops though it"
        " still leads.",
    )
    controlled_shutdown_retry_backoff_ms: int = at_start(
        5_000,
        long(0),
        "The duration of each try to hand over leaderships.",
    )
    leader_replication_throttled_rate: int = setting(
        NO_LIMIT,
        long(0),
        "How many bytes a second this broker sends of leader.replication.throttled.replicas.",
    )
    follower_replication_throttled_rate: int = setting(
        NO_LIMIT,
        long(0),
        "How many bytes a second this broker fetches of follower.replication.throttled.replicas.",
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        NO_LIMIT,
        long(0),
        "How many bytes a second are copied of replicas that move between log dirs.",
    )
    replication_quota_window_num: int = at_start(
        11, integer(1), "How many windows the rates of replication are taken over."
    )
    replication_quota_window_size_seconds: int = at_start(
        1, integer(1), "How long each of these windows is."
    )
    alter_log_dirs_replication_quota_window_num: int = at_start(
        11, integer(1), "How many windows the rate of moves between log dirs is taken over."
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = at_start(
        1, integer(1), "How long each of these windows is."
    )

    group_min_session_timeout_ms: int = at_start(
        6_000,
        integer(1),
        "The shortest session that a member can ask for.",
        section="Groups and offsets",
    )
    group_max_session_timeout_ms: int = at_start(
        1_800_000, integer(1), "The longest session that a member can ask for."
    )
    group_initial_rebalance_delay_ms: int = at_start(
        3_000, integer(0), "How long the first member of an empty group waits for others."
    )
    group_max_size: int = at_start(5_000, integer(1), "How many members a group may have.")
    offsets_topic_num_partitions: int = at_start(
        50,
        integer(1),
        "How many partitions the topic of committed offsets gets; not to be changed afterwards.",
    )
    offsets_topic_replication_factor: int = at_start(
        3,
        short(1),
        "The number of replicas of the topic of committed offsets; a broker without a cluster"
        " makes one.",
    )
    offsets_topic_segment_bytes: int = at_start(
        100 << 20,
        integer(1 << 20),
        "How large a segment of the topic of committed offsets may become.",
    )
    offsets_topic_compression_codec: int = at_start(
        0,
        integer(0, 4),
        "How commits are compressed: 0 not at all, 1 by gzip, 2 snappy, 3 LZ4, 4 Zstandard.",
    )
    offsets_retention_minutes: int = at_start(
        7 * 24 * 60, integer(1), "How long the offsets of a group without members are kept."
    )
    offsets_retention_check_interval_ms: int = at_start(
        600_000, long(1), "The interval of checks for expired offsets."
    )
    offset_metadata_max_bytes: int = at_start(
        4_096, integer(0), "How many bytes a member may add to a commit."
    )
    offsets_commit_timeout_ms: int = at_start(
        5_000,
        integer(1),
        "How long the replication of a group's decision may take.",
    )

    transaction_state_log_num_partitions: int = at_start(
        50,
        integer(1),
        "How many partitions the topic of transactions gets; not to be changed afterwards.",
        section="Transactions",
    )
    transaction_state_log_replication_factor: int = at_start(
        3,
        short(1),
        "The number of replicas of the topic of transactions; a broker without a cluster makes"
        " one.",
    )
    transaction_state_log_min_isr: int = at_start(
        2,
        integer(1),
        "The number of in-sync replicas that a write to the topic of transactions needs; a broker"
        " without a cluster needs only itself.",
    )
    transaction_state_log_segment_bytes: int = at_start(
        100 << 20, integer(1 << 20), "How large a segment of the topic of transactions may become."
    )
    transaction_max_timeout_ms: int = at_start(
        900_000, integer(1), "The longest time that a producer can ask for its transactions."
    )
    transactional_id_expiration_ms: int = at_start(
        7 * 24 * 60 * 60_000,
        integer(1),
        "How long an unused transactional id is kept.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = at_start(
        10_000,
        integer(1),
        "The interval of checks for transactions that have timed out, which are aborted.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = at_start(
        3_600_000,
        integer(1),
        "The interval of checks for expired transactional ids, which are removed.",
    )
    transaction_two_phase_commit_enable: bool = at_start(
        False,
        FLAG,
        "Whether a producer may prepare transactions that an external coordinator ends, and that"
        " never time out.",
    )

    ottla_admin_listener: HttpListener | None = at_start(
        DEFAULT_ADMIN_LISTENER,
        HTTP_LISTENER,
        "The address of the HTTP pages with metrics, health and log levels, or empty for none; if"
        " it is not set, a broker that finds the port in use starts without them.",
        section="Ottla's own",
    )
    ottla_schema_registry_listener: HttpListener | None = at_start(
        DEFAULT_REGISTRY_LISTENER,
        HTTP_LISTENER,
        "The address of the schema registry, or empty for none; if it is not set, a broker that"
        " finds the port in use starts without one.",
    )
    ottla_rest_listener: HttpListener | None = at_start(
        None,
        HTTP_LISTENER,
        "The address of the REST proxy, such as 127.0.0.1:8082, or empty for none.",
    )
    log_scrub_interval_ms: int = setting(
        7 * 86_400_000,
        long(1, also=-1),
        "How long after a round the closed segments are read again to find damage; -1 is never.",
    )
    log_scrub_io_max_bytes_per_second: int = setting(
        8 << 20, long(1), "How many bytes of logs may be read in a second to find damage."
    )
    ottla_group_max_bytes: int = at_start(
        8 << 20,
        long(1 << 16),
        "The memory limit of one group: the names, metadata and assignments of its members.",
    )
    ottla_groups_max_bytes: int = at_start(
        128 << 20,
        long(1 << 20),
        "The memory limit of all groups of this broker together, with the offsets of transactions"
        " that have not ended.",
    )


BROKER_SETTINGS: Final[Mapping[str, Setting]] = settings_of(BrokerSettings)
"""Every broker setting that Ottla uses, by its name."""
