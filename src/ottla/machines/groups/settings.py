"""The broker settings that groups obey, with Kafka's defaults, and the limits that are our own."""

from dataclasses import dataclass

from ottla.model.error_code import ErrorCode


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of groups; the names are Kafka's, underscores for dots.

    `offsets.retention.minutes` is given in milliseconds, and `group_bytes_max` is called
    `ottla.group.max.bytes`. The last three are not Kafka's settings:
    how long a member may wait for its first generation, and how many sessions (counted with the
    few other deadlines) and groups one machine keeps at most.
    """

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = (1 << 31) - 1
    group_bytes_max: int = 8 << 20
    """The memory limit of one group; GroupMemory has the limit of all groups."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    """How long a decision may take to be replicated."""
    new_member_join_timeout_ms: int = 300_000
    sessions_max: int = 100_000
    groups_max: int = 100_000

    def check_metadata(self, metadata: str | None) -> ErrorCode:
        """Return OFFSET_METADATA_TOO_LARGE for a note to an offset that is too long, else NONE."""
        is_too_large = len(metadata or "") > self.offset_metadata_max_bytes
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else ErrorCode.NONE
