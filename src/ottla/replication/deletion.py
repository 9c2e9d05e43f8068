"""How much of a log DeleteRecords may delete."""

from typing import Final

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.topic_config import CleanupPolicy
from ottla.storage.log.log import PartitionLog

HIGH_WATERMARK: Final = -1
"""In the place of an offset up to which records are deleted."""


def deletion_offset(log: PartitionLog, high_watermark: int, offset: int) -> int:
    """Return the offset at which a log is to begin; ApiError if it may not."""
    if log.config.cleanup_policy == {CleanupPolicy.COMPACT}:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"{log.directory} is compacted, not deleted")
    until = high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= until <= high_watermark:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.directory} cannot begin at {until}: it may up to {high_watermark}",
        )
    return max(until, log.log_start_offset)
