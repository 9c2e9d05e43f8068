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
    HOUR_MS,
    INT64_MAX,
    InvalidSettingsError,
    Kind,
    Setting,
    SettingType,
    double,
    integer,
    long,
    one_of,
    read_known_settings,
    setting,
    settings_of,
    split_list,
    texts_of,
)

NO_LIMIT = INT64_MAX
"""The largest value: it means "never" or "no limit"."""
PRODUCER_COMPRESSION = "producer"
"""The compression type that leaves batches as their producers compressed them."""

_DAY_MS = 24 * HOUR_MS
_THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+")


class CleanupPolicy(StrEnum):
    """The cleanup of old records: delete whole segments, or keep only the last value per key."""

    COMPACT = "compact"
    DELETE = "delete"


class TimestampType(StrEnum):
    """The timestamp of a record: the producer's, or the time of the append."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


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


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """All settings of one topic.

    The constructor validates nothing, so that tests can have segments of a few bytes; `parse` does.
    A retention of -1 means no limit, and an empty cleanup policy keeps everything.
    """

    cleanup_policy: frozenset[CleanupPolicy] = setting(
        frozenset({CleanupPolicy.DELETE}),
        _CLEANUP_POLICY,
        "The cleanup of old records: delete drops whole segments, compact keeps the last value of"
        " each key, and an empty list keeps everything.",
    )
    compression_type: str = setting(
        PRODUCER_COMPRESSION,
        one_of(PRODUCER_COMPRESSION, "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "How batches are compressed in the log; producer leaves them as they came.",
    )
    compression_gzip_level: int = setting(
        -1, integer(1, 9, also=-1), "How hard the broker compresses by gzip; -1 leaves it to gzip."
    )
    compression_lz4_level: int = setting(
        9, integer(1, 17), "How hard the broker compresses by LZ4."
    )
    compression_zstd_level: int = setting(
        3, integer(-131_072, 22), "How hard the broker compresses by Zstandard."
    )
    delete_retention_ms: int = setting(
        _DAY_MS,
        long(0),
        "How long compaction keeps a tombstone, so that consumers learn of the deletion.",
    )
    file_delete_delay_ms: int = setting(
        60_000,
        long(0),
        "How long the files of a deleted segment stay, for reads in progress.",
    )
    flush_messages: int = setting(
        NO_LIMIT,
        long(1),
        "After how many records the log is synced to disk; 1 syncs before every response.",
    )
    flush_ms: int = setting(NO_LIMIT, long(0), "After how much time the log is synced to disk.")
    follower_replication_throttled_replicas: frozenset[str] = setting(
        frozenset(),
        _THROTTLED_REPLICAS,
        "The replicas that are throttled while they copy from their leader.",
    )
    index_interval_bytes: int = setting(
        4096, integer(0), "How many bytes of batches lie between two entries of an index."
    )
    leader_replication_throttled_replicas: frozenset[str] = setting(
        frozenset(),
        _THROTTLED_REPLICAS,
        "The replicas that are throttled while followers copy from them.",
    )
    max_compaction_lag_ms: int = setting(
        NO_LIMIT, long(1), "After how long a record is compacted in any case."
    )
    max_message_bytes: int = setting(
        (1 << 20) + 12,
        integer(0),
        "How many bytes a batch may have, as it is sent and with its header.",
    )
    message_timestamp_after_max_ms: int = setting(
        HOUR_MS, long(0), "How far the timestamp of a record may lie ahead of the broker's clock."
    )
    message_timestamp_before_max_ms: int = setting(
        NO_LIMIT, long(0), "How far the timestamp of a record may lie behind the broker's clock."
    )
    message_timestamp_type: TimestampType = setting(
        TimestampType.CREATE_TIME,
        _TIMESTAMP_TYPE,
        "The timestamp of records: the producer's, or the time of the append.",
    )
    min_cleanable_dirty_ratio: float = setting(
        0.5,
        double(0, 1),
        "The share of the log that must be new since the last compaction before the next.",
    )
    min_compaction_lag_ms: int = setting(0, long(0), "How long a record is safe from compaction.")
    min_insync_replicas: int = setting(
        1,
        integer(1),
        "How many replicas must be in sync for a producer that waits for all of them.",
    )
    preallocate: bool = setting(
        False, FLAG, "Whether a new segment is allocated on disk in its full size."
    )
    retention_bytes: int = setting(
        -1,
        long(-INT64_MAX - 1),
        "The size of a partition above which its oldest segments are deleted; below 0 is no limit.",
    )
    retention_ms: int = setting(
        7 * _DAY_MS, long(-1), "The age at which a segment is deleted; -1 is no limit."
    )
    segment_bytes: int = setting(
        1 << 30, integer(1 << 20), "How large a segment may become before the next begins."
    )
    segment_index_bytes: int = setting(
        10 << 20, integer(4), "How large each index of a segment may become."
    )
    segment_jitter_ms: int = setting(
        0,
        long(0),
        "The maximum random time by which a segment begins earlier, so that not all begin at once.",
    )
    segment_ms: int = setting(
        7 * _DAY_MS, long(1), "How old a segment may become before the next begins."
    )
    unclean_leader_election_enable: bool = setting(
        False,
        FLAG,
        "Whether a replica that is not in sync may lead if no in-sync replica is left, which"
        " loses records.",
    )

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
        values, problems = read_known_settings(TOPIC_SETTINGS, settings, "topic")
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


TOPIC_SETTINGS: Final[Mapping[str, Setting]] = settings_of(TopicConfig)
"""Every setting of a topic, by its name."""
