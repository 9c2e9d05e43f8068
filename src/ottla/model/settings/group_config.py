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
    read_known_settings,
    setting,
    settings_of,
    texts_of,
)

_SESSION = integer(45_000, 60_000)
_HEARTBEAT = integer(5_000, 15_000)


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


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """All settings of one group."""

    consumer_session_timeout_ms: int = setting(
        45_000,
        _SESSION,
        "How long a consumer may be silent before its partitions go to other members.",
    )
    consumer_heartbeat_interval_ms: int = setting(
        5_000, _HEARTBEAT, "The interval of consumers' heartbeats."
    )
    share_session_timeout_ms: int = setting(
        45_000,
        _SESSION,
        "How long a member of a share group may be silent before it is removed.",
    )
    share_heartbeat_interval_ms: int = setting(
        5_000, _HEARTBEAT, "The interval of heartbeats of members of a share group."
    )
    share_record_lock_duration_ms: int = setting(
        30_000,
        integer(15_000, 60_000),
        "How long a record is locked for one member of a share group.",
    )
    share_auto_offset_reset: str = setting(
        "latest", _OFFSET_RESET, "Where a new share group begins to read."
    )
    share_isolation_level: str = setting(
        "read_uncommitted",
        one_of("read_committed", "read_uncommitted"),
        "Whether a share group waits for the end of transactions.",
    )
    streams_session_timeout_ms: int = setting(
        45_000,
        _SESSION,
        "How long a member of a streams group may be silent before its tasks go to other members.",
    )
    streams_heartbeat_interval_ms: int = setting(
        5_000, _HEARTBEAT, "The interval of heartbeats of members of a streams group."
    )
    streams_num_standby_replicas: int = setting(
        0,
        integer(0, 2),
        "How many copies of its state each task of a streams group has in reserve.",
    )
    streams_initial_rebalance_delay_ms: int = setting(
        3_000, integer(0), "How long the first member of an empty streams group waits for others."
    )

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> Self:
        """Read settings by their dotted names; InvalidSettingsError names the valid values."""
        values, problems = read_known_settings(GROUP_SETTINGS, settings, "group")
        if problems:
            raise InvalidSettingsError(problems)
        return replace(cls(), **values)

    def as_strings(self) -> dict[str, str]:
        """Write every setting by its dotted name, as `parse` reads it."""
        return texts_of(self, GROUP_SETTINGS)


GROUP_SETTINGS: Final[Mapping[str, Setting]] = settings_of(GroupConfig)
"""Every setting of a group, by its name."""
