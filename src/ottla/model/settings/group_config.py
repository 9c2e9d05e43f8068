"""A group's settings in the group protocols of Kafka 4: names, defaults and limits.

For these groups the broker sets session timeouts and heartbeat intervals, which can be overridden
per group. In classic groups each member sets its own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from ottla.model.settings.settings import (
    InvalidSettingsError,
    Kind,
    Setting,
    SettingType,
    integer,
    one_of,
    read_settings,
    table_of,
    texts_of,
    unknown_settings,
)

_SESSION = integer(45_000, 60_000)
_HEARTBEAT = integer(5_000, 15_000)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """All settings of one group."""

    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_record_lock_duration_ms: int = 30_000
    share_auto_offset_reset: str = "latest"
    share_isolation_level: str = "read_uncommitted"
    streams_session_timeout_ms: int = 45_000
    streams_heartbeat_interval_ms: int = 5_000
    streams_num_standby_replicas: int = 0
    streams_initial_rebalance_delay_ms: int = 3_000

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> Self:
        """Read settings by their dotted names; InvalidSettingsError names the valid values."""
        unknown = [name for name in settings if name not in GROUP_SETTINGS]
        problems = unknown_settings(unknown, "group", GROUP_SETTINGS)
        known = {name: text for name, text in settings.items() if name in GROUP_SETTINGS}
        values, problem_by_name = read_settings(GROUP_SETTINGS, known)
        problems += problem_by_name.values()
        if problems:
            raise InvalidSettingsError(problems)
        return replace(cls(), **values)

    def as_strings(self) -> dict[str, str]:
        """Write every setting by its dotted name, as `parse` reads it."""
        return texts_of(self, GROUP_SETTINGS)


_DURATION = re.compile(
    r"by_duration:P(?=.*\d)(\d{1,9}D)?(T(\d{1,9}H)?(\d{1,9}M)?(\d{1,9}(\.\d{1,9})?S)?)?", re.ASCII
)


def _offset_reset(text: str) -> str:
    if text not in {"earliest", "latest"} and not _DURATION.fullmatch(text):
        raise ValueError(text)
    return text


_OFFSET_RESET = Kind(
    SettingType.STRING, "earliest, latest, or by_duration: and a duration as PT1H30M", _offset_reset
)

GROUP_SETTINGS: Final[Mapping[str, Setting]] = table_of(
    Setting(
        "consumer.session.timeout.ms",
        _SESSION,
        "How long a consumer may be silent before others get its partitions.",
    ),
    Setting(
        "consumer.heartbeat.interval.ms", _HEARTBEAT, "How often consumers say that they live."
    ),
    Setting(
        "share.session.timeout.ms",
        _SESSION,
        "How long a member of a share group may be silent before it is taken for gone.",
    ),
    Setting(
        "share.heartbeat.interval.ms",
        _HEARTBEAT,
        "How often members of a share group say that they live.",
    ),
    Setting(
        "share.record.lock.duration.ms",
        integer(15_000, 60_000),
        "How long a record is given to one member of a share group before another may have it.",
    ),
    Setting("share.auto.offset.reset", _OFFSET_RESET, "Where a new share group begins to read."),
    Setting(
        "share.isolation.level",
        one_of("read_committed", "read_uncommitted"),
        "Whether a share group waits for the end of transactions.",
    ),
    Setting(
        "streams.session.timeout.ms",
        _SESSION,
        "How long a member of a streams group may be silent before others get its tasks.",
    ),
    Setting(
        "streams.heartbeat.interval.ms",
        _HEARTBEAT,
        "How often members of a streams group say that they live.",
    ),
    Setting(
        "streams.num.standby.replicas",
        integer(0, 2),
        "How many copies of its state each task of a streams group has in reserve.",
    ),
    Setting(
        "streams.initial.rebalance.delay.ms",
        integer(0),
        "How long the first member of an empty streams group waits for others.",
    ),
)
"""Every setting of a group, by its name."""
