"""The decision to compact a log, and the range to compact."""

import pytest

from ottla.model.identifiers import TopicPartition
from ottla.model.settings.topic_config import TopicConfig
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.compaction.compaction_plan import (
    FIRST_DIRTY_OFFSET_FILE,
    CompactionPlan,
    first_dirty_offset,
    plan,
    read_first_dirty_offsets,
)
from ottla.storage.files.checkpoints import write_offsets
from ottla.storage.files.damage import Damage
from ottla.storage.log.log import PartitionLog
from tests.unit.storage.compacted_logs import DAY_MS, START_MS, Writer, compacted, opened

NOW_MS = START_MS + 10 * DAY_MS
BATCH_BYTES = 87


def log_of_days(config: TopicConfig, count: int = 4) -> PartitionLog:
    """Make a log with a record a day, each in a segment of its own, and an empty active one."""
    writer = Writer(opened(SimulatedDisk(), config))
    for day in range(count):
        now_ms = START_MS + day * DAY_MS
        writer.put((b"key", b"value"), timestamp_ms=now_ms)
        writer.roll(now_ms)
    return writer.log


def test_everything_but_the_active_segment_may_be_compacted() -> None:
    log = log_of_days(compacted())
    Writer(log).put((b"key", b"value"))
    assert plan(log, 0, log.end_offset, NOW_MS) == CompactionPlan(
        first_dirty_offset=0,
        end_offset=4,
        clean_bytes=0,
        dirty_bytes=4 * BATCH_BYTES,
        is_overdue=False,
    )


def test_a_log_that_is_not_compacted_has_no_plan() -> None:
    log = log_of_days(TopicConfig())
    assert plan(log, 0, log.end_offset, NOW_MS) is None


@pytest.mark.parametrize(("first_dirty", "ratio"), [(0, 1.0), (1, 0.75), (3, 0.25)])
def test_how_dirty_a_log_is_goes_by_bytes(first_dirty: int, ratio: float) -> None:
    log = log_of_days(compacted(min_cleanable_dirty_ratio=ratio))
    assert plan(log, first_dirty, log.end_offset, NOW_MS) is None
    log.config = compacted(min_cleanable_dirty_ratio=ratio - 0.01)
    found = plan(log, first_dirty, log.end_offset, NOW_MS)
    assert found is not None
    assert found.dirty_ratio == ratio
    assert found.clean_bytes == first_dirty * BATCH_BYTES


def test_a_clean_log_has_no_plan() -> None:
    log = log_of_days(compacted())
    assert plan(log, 4, log.end_offset, NOW_MS) is None


def test_a_segment_that_is_clean_in_part_counts_as_dirty() -> None:
    writer = Writer(opened(SimulatedDisk(), compacted()))
    writer.put((b"key", b"1"), (b"key", b"2"))
    writer.roll()
    found = plan(writer.log, 1, 2, NOW_MS)
    assert found is not None
    assert (found.first_dirty_offset, found.clean_bytes) == (1, 0)


@pytest.mark.parametrize("stable", [1, 2, 3])
def test_c4_nothing_from_the_last_stable_offset_on_may_be_compacted(stable: int) -> None:
    log = log_of_days(compacted())
    found = plan(log, 0, stable, NOW_MS)
    assert found is not None
    assert found.end_offset == stable
    assert plan(log, stable, stable, NOW_MS) is None


def test_records_younger_than_min_compaction_lag_ms_stay() -> None:
    log = log_of_days(compacted(min_compaction_lag_ms=9 * DAY_MS))
    found = plan(log, 0, log.end_offset, NOW_MS)
    assert found is not None
    assert found.end_offset == 2
    assert plan(log, 0, log.end_offset, NOW_MS - 2 * DAY_MS) is None
    # The age of compacted records is not checked again.
    found = plan(log, 3, log.end_offset, NOW_MS + 2 * DAY_MS)
    assert found is not None
    assert found.end_offset == 4


def test_what_is_older_than_max_compaction_lag_ms_is_compacted_however_little_it_is() -> None:
    log = log_of_days(compacted(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=7 * DAY_MS))
    assert plan(log, 3, log.end_offset, NOW_MS) is None
    found = plan(log, 3, log.end_offset, NOW_MS + 1)
    assert found is not None
    assert found.is_overdue


def test_nothing_from_a_damaged_segment_on_is_compacted() -> None:
    log = log_of_days(compacted())
    damaged = list(log.segments)[2]
    damaged.damage = (Damage(0, damaged.size_bytes, 2, 3),)
    found = plan(log, 0, log.end_offset, NOW_MS)
    assert found is not None
    assert found.end_offset == 2
    assert plan(log, 2, log.end_offset, NOW_MS) is None
    assert plan(log, 3, log.end_offset, NOW_MS) is None


# -- first dirty offset ---------------------------------------------------------------------------


@pytest.mark.parametrize(("noted", "expected"), [(None, 1), (0, 1), (1, 1), (3, 3), (4, 4), (5, 1)])
def test_what_was_noted_outside_the_log_does_not_count(noted: int | None, expected: int) -> None:
    log = log_of_days(compacted())
    log.advance_log_start(1)
    assert first_dirty_offset(log, noted) == expected


def test_noted_damage_is_read_back() -> None:
    disk = SimulatedDisk()
    path = f"/{FIRST_DIRTY_OFFSET_FILE}"
    assert read_first_dirty_offsets(disk, path) == {}
    noted = {TopicPartition("topic", 0): 17}
    write_offsets(disk, path, noted)
    assert read_first_dirty_offsets(disk, path) == noted
    disk.flip_bit(path, 0, 0)
    assert read_first_dirty_offsets(disk, path) == {}
