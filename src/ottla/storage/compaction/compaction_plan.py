"""Decides whether to compact a log now, and which part of it.

    |<------- clean ------->|<------ dirty ------>|<---- unchanged ---->|
    first segment     first dirty offset      end offset          active segment

Compaction reads both parts, removes clean records that dirty ones replace, and makes the dirty part
clean. Whole segments stay unchanged: the active one, undecided transactions, segments that are
younger than `min.compaction.lag.ms`, and everything behind a damaged one.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ottla.environment.disk import Disk
from ottla.model.identifiers import Offset, TopicPartition
from ottla.model.settings.topic_config import NO_LIMIT
from ottla.storage.files.checkpoints import CorruptCheckpointError, read_offsets
from ottla.storage.log.log import PartitionLog
from ottla.storage.log.retention import greatest_time_ms
from ottla.storage.segments.segment import Segment

FIRST_DIRTY_OFFSET_FILE: Final = "cleaner-offset-checkpoint"
"""Per log dir, in the format of `checkpoints.write_offsets`."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The part to compact, and the expected gain."""

    first_dirty_offset: Offset
    end_offset: Offset
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Whether something dirty is older than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        """The dirty share of it; the dirtiest log is compacted first."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)


def read_first_dirty_offsets(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    """Read the clean offsets of a log dir's logs; without a readable file, all are unknown."""
    try:
        return read_offsets(disk, path)
    except CorruptCheckpointError:
        return {}


def first_dirty_offset(log: PartitionLog, noted_offset: Offset | None) -> Offset:
    """Return where a log begins to be dirty, from the offset recorded at its last compaction.

    An offset outside the log belongs to another log. A truncation lowers the recorded offset to its
    own: records written there again have not been compacted.
    """
    if noted_offset is None or not log.log_start_offset <= noted_offset <= log.end_offset:
        return log.log_start_offset
    return noted_offset


def plan(
    log: PartitionLog, first_dirty_offset: Offset, last_stable_offset: Offset, now_ms: int
) -> CompactionPlan | None:
    """Plan a compaction, if `min.cleanable.dirty.ratio` or `max.compaction.lag.ms` demands one.

    Nothing at or after the last stable offset, which is never above the high watermark.
    """
    if not log.config.is_compacted:
        return None
    row = list(log.segments)
    count = _cleanable_count(log, row, first_dirty_offset, last_stable_offset, now_ms)
    if count == 0:
        return None
    end_offset = row[count].base_offset
    clean = [
        s for s, next_ in pairwise(row[: count + 1]) if next_.base_offset <= first_dirty_offset
    ]
    dirty = row[len(clean) : count]
    found = CompactionPlan(
        first_dirty_offset,
        end_offset,
        sum(segment.size_bytes for segment in clean),
        sum(segment.size_bytes for segment in dirty),
        _is_overdue(log, dirty, now_ms),
    )
    wanted = found.is_overdue or found.dirty_ratio > log.config.min_cleanable_dirty_ratio
    return found if found.dirty_bytes and wanted else None


def _cleanable_count(
    log: PartitionLog, row: list[Segment], first_dirty: int, last_stable_offset: Offset, now_ms: int
) -> int:
    """Return how many segments from the first on may be compacted."""
    youngest_ms = now_ms - log.config.min_compaction_lag_ms
    for number, (segment, following) in enumerate(pairwise(row)):
        is_young = (
            log.config.min_compaction_lag_ms > 0
            and following.base_offset > first_dirty
            and greatest_time_ms(segment) > youngest_ms
        )
        if segment.damage or following.base_offset > last_stable_offset or is_young:
            return number
    return len(row) - 1


def _is_overdue(log: PartitionLog, dirty: list[Segment], now_ms: int) -> bool:
    if log.config.max_compaction_lag_ms == NO_LIMIT:
        return False
    oldest_ms = now_ms - log.config.max_compaction_lag_ms
    return any(0 < segment.first_timestamp_ms < oldest_ms for segment in dirty)
