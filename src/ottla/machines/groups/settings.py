"""The broker settings that groups obey, and the limits that are our own."""

from dataclasses import dataclass
from typing import Self

from ottla.model.error_code import ErrorCode
from ottla.model.settings.broker_config import DEFAULT_CONFIG, BrokerConfig
from ottla.model.settings.settings import MINUTE_MS


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of groups; the names are Kafka's, underscores for dots.

    `offsets.retention.minutes` is given in milliseconds, and `group_bytes_max` is called
    `ottla.group.max.bytes`. The last three are not Kafka's settings:
    how long a member may wait for its first generation, and how many sessions (counted with the
    few other deadlines) and groups one machine keeps at most.
    """

    group_min_session_timeout_ms: int = DEFAULT_CONFIG.group_min_session_timeout_ms
    group_max_session_timeout_ms: int = DEFAULT_CONFIG.group_max_session_timeout_ms
    group_initial_rebalance_delay_ms: int = DEFAULT_CONFIG.group_initial_rebalance_delay_ms
    group_max_size: int = DEFAULT_CONFIG.group_max_size
    group_bytes_max: int = DEFAULT_CONFIG.ottla_group_max_bytes
    """The memory limit of one group; GroupMemory has the limit of all groups."""
    offset_metadata_max_bytes: int = DEFAULT_CONFIG.offset_metadata_max_bytes
    offsets_retention_ms: int = DEFAULT_CONFIG.offsets_retention_minutes * MINUTE_MS
    offsets_retention_check_interval_ms: int = DEFAULT_CONFIG.offsets_retention_check_interval_ms
    offsets_commit_timeout_ms: int = DEFAULT_CONFIG.offsets_commit_timeout_ms
    """How long a decision may take to be replicated."""
    new_member_join_timeout_ms: int = 300_000
    sessions_max: int = 100_000
    groups_max: int = 100_000

    @classmethod
    def from_config(cls, config: BrokerConfig) -> Self:
        """Return the settings of a configuration."""
        return cls(
            group_min_session_timeout_ms=config.group_min_session_timeout_ms,
            group_max_session_timeout_ms=config.group_max_session_timeout_ms,
            group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            group_max_size=config.group_max_size,
            group_bytes_max=config.ottla_group_max_bytes,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            offsets_commit_timeout_ms=config.offsets_commit_timeout_ms,
        )

    def check_metadata(self, metadata: str | None) -> ErrorCode:
        """Return OFFSET_METADATA_TOO_LARGE for a note to an offset that is too long, else NONE."""
        is_too_large = len(metadata or "") > self.offset_metadata_max_bytes
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else ErrorCode.NONE
