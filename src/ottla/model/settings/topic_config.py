"""A topic's settings: Kafka's names, defaults and limits, parsed once and frozen.

A setting is called `segment.bytes` in files and requests, and `segment_bytes` here. The settings of
tiered storage are left out on purpose: Ottla does not have it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self

from ottla.model.settings.settings import (
    FLAG,
    INT64_MAX,
    InvalidSettingsError,
    Kind,
    Setting,
    SettingType,
    double,
    integer,
    long,
    one_of,
    read_settings,
    split_list,
    table_of,
    texts_of,
    unknown_settings,
)

NO_LIMIT = INT64_MAX
"""The largest value: it means "never" or "no limit"."""
PRODUCER_COMPRESSION = "producer"
"""The compression type that leaves batches as their producers compressed them."""

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+")


class CleanupPolicy(StrEnum):
    """The cleanup of old records: delete whole segments, or keep only the last value per key."""

    COMPACT = "compact"
    DELETE = "delete"


class TimestampType(StrEnum):
    """The timestamp of a record: the producer's, or the time of the append."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """All settings of one topic.

    The constructor validates nothing, so that tests can have segments of a few bytes; `parse` does.
    A retention of -1 means no limit, and an empty cleanup policy keeps everything.
    """

    cleanup_policy: frozenset[CleanupPolicy] = frozenset({CleanupPolicy.DELETE})
    compression_type: str = PRODUCER_COMPRESSION
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = NO_LIMIT
    flush_ms: int = NO_LIMIT
    follower_replication_throttled_replicas: frozenset[str] = frozenset()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: frozenset[str] = frozenset()
    max_compaction_lag_ms: int = NO_LIMIT
    max_message_bytes: int = (1 << 20) + 12
    message_timestamp_after_max_ms: int = _HOUR_MS
    message_timestamp_before_max_ms: int = NO_LIMIT
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS
    unclean_leader_election_enable: bool = False

    @property
    def is_compacted(self) -> bool:
        """Whether records need a key, because compaction goes by it."""
        return CleanupPolicy.COMPACT in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """The maximum age of the active segment: only closed segments can be compacted in time."""
        is_sooner = self.max_compaction_lag_ms < self.segment_ms
        return self.max_compaction_lag_ms if is_sooner and self.is_compacted else self.segment_ms

    @classmethod
    def parse(cls, settings: Mapping[str, str], defaults: Self | None = None) -> Self:
        """Read settings by their dotted names; missing settings are as in `defaults`.

        Unknown names, invalid values and contradictions raise InvalidSettingsError, which names the
        valid values.
        """
        unknown = [name for name in settings if name not in TOPIC_SETTINGS]
        problems = unknown_settings(unknown, "topic", TOPIC_SETTINGS)
        known = {name: text for name, text in settings.items() if name in TOPIC_SETTINGS}
        values, problem_by_name = read_settings(TOPIC_SETTINGS, known)
        problems += problem_by_name.values()
        config = replace(cls() if defaults is None else defaults, **values)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            problems.append(
                f"min.compaction.lag.ms {config.min_compaction_lag_ms} is above"
                f" max.compaction.lag.ms {config.max_compaction_lag_ms}"
            )
        if problems:
            raise InvalidSettingsError(problems)
        return config

    def as_strings(self) -> dict[str, str]:
        """Write every setting by its dotted name, as `parse` reads it."""
        return texts_of(self, TOPIC_SETTINGS)


def _cleanup_policy(text: str) -> frozenset[CleanupPolicy]:
    policies = split_list(text)
    if len(set(policies)) != len(policies):
        raise ValueError(text)
    return frozenset(map(CleanupPolicy, policies))


def _throttled_replicas(text: str) -> frozenset[str]:
    replicas = split_list(text)
    if replicas != ["*"] and not all(map(_THROTTLED_REPLICA.fullmatch, replicas)):
        raise ValueError(text)
    return frozenset(replicas)


_CLEANUP_POLICY = Kind(
    SettingType.LIST, "a list of compact and delete, each at most once", _cleanup_policy
)
_THROTTLED_REPLICAS = Kind(
    SettingType.LIST, "* or a list of replicas, each as partition:broker", _throttled_replicas
)
_TIMESTAMP_TYPE = Kind(SettingType.STRING, one_of(*TimestampType).allowed, TimestampType)

TOPIC_SETTINGS: Final[Mapping[str, Setting]] = table_of(
    Setting(
        "cleanup.policy",
        _CLEANUP_POLICY,
        "What becomes of old records: delete drops whole segments, compact keeps the last value of"
        " each key, and an empty list keeps everything.",
    ),
    Setting(
        "compression.type",
        one_of(PRODUCER_COMPRESSION, "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "How batches are compressed in the log; producer leaves them as they came.",
    ),
    Setting(
        "compression.gzip.level",
        integer(1, 9, also=-1),
        "How hard the broker compresses by gzip; -1 leaves it to gzip.",
    ),
    Setting("compression.lz4.level", integer(1, 17), "How hard the broker compresses by LZ4."),
    Setting(
        "compression.zstd.level",
        integer(-131_072, 22),
        "How hard the broker compresses by Zstandard.",
    ),
    Setting(
        "delete.retention.ms",
        long(0),
        "How long compaction keeps a tombstone, so that consumers learn of the deletion.",
    ),
    Setting(
        "file.delete.delay.ms",
        long(0),
        "How long the files of a deleted segment stay, for those who are reading them.",
    ),
    Setting(
        "flush.messages",
        long(1),
        "After how many records the log is synced to disk; 1 syncs before every answer.",
    ),
    Setting("flush.ms", long(0), "After how much time the log is synced to disk."),
    Setting(
        "follower.replication.throttled.replicas",
        _THROTTLED_REPLICAS,
        "Which replicas are slowed down while they copy from their leader.",
    ),
    Setting(
        "index.interval.bytes",
        integer(0),
        "How many bytes of batches lie between two entries of an index.",
    ),
    Setting(
        "leader.replication.throttled.replicas",
        _THROTTLED_REPLICAS,
        "Which replicas are slowed down while others copy from them.",
    ),
    Setting(
        "max.compaction.lag.ms",
        long(1),
        "After how long a record is compacted in any case.",
    ),
    Setting(
        "max.message.bytes",
        integer(0),
        "How many bytes a batch may have, as it is sent and with its header.",
    ),
    Setting(
        "message.timestamp.after.max.ms",
        long(0),
        "How far the timestamp of a record may lie ahead of the broker's clock.",
    ),
    Setting(
        "message.timestamp.before.max.ms",
        long(0),
        "How far the timestamp of a record may lie behind the broker's clock.",
    ),
    Setting(
        "message.timestamp.type",
        _TIMESTAMP_TYPE,
        "Whose time records carry: their producer's, or the broker's that appended them.",
    ),
    Setting(
        "min.cleanable.dirty.ratio",
        double(0, 1),
        "Which share of the log must be new since the last compaction to make the next one worth"
        " its while.",
    ),
    Setting("min.compaction.lag.ms", long(0), "How long a record is safe from compaction."),
    Setting(
        "min.insync.replicas",
        integer(1),
        "How many replicas must be in sync for a producer that waits for all of them.",
    ),
    Setting("preallocate", FLAG, "Whether a new segment takes its whole size on disk at once."),
    Setting(
        "retention.bytes",
        long(-INT64_MAX - 1),
        "How large a partition may become before its oldest segments go; below 0 is no limit.",
    ),
    Setting(
        "retention.ms", long(-1), "How old a segment may become before it goes; -1 is no limit."
    ),
    Setting(
        "segment.bytes", integer(1 << 20), "How large a segment may become before the next begins."
    ),
    Setting("segment.index.bytes", integer(4), "How large each index of a segment may become."),
    Setting(
        "segment.jitter.ms",
        long(0),
        "By how much, at random, segments begin earlier, so that not all begin at once.",
    ),
    Setting("segment.ms", long(1), "How old a segment may become before the next begins."),
    Setting(
        "unclean.leader.election.enable",
        FLAG,
        "Whether a replica that is not in sync may lead if no other is left, which loses records.",
    ),
)
"""Every setting of a topic, by its name."""
