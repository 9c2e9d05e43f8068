"""A7: retention by time, size and DeleteRecords removes whole, replicated segments only."""

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.isolation_level import EARLIEST, LATEST
from ottla.model.settings.topic_config import CleanupPolicy, TopicConfig
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.log.log import PartitionLog
from ottla.storage.log.retention import apply_retention, expired_segments, offsets_before
from tests.log_building import NOW_MS, fill, new_log
from tests.unit.storage.compacted_logs import (
    DAY_MS,
    DIRECTORY,
    START_MS,
    Writer,
    compact,
    compacted,
    offsets_of,
    opened,
)

BATCH_BYTES = 87


def log_of_days(config: TopicConfig, count: int = 4) -> PartitionLog:
    """Make a log with a record per day, each in its own segment; the last segment is active."""
    writer = Writer(opened(SimulatedDisk(), config))
    for day in range(count):
        if day:
            writer.roll(START_MS + day * DAY_MS)
        writer.put((b"key", b"value"), timestamp_ms=START_MS + day * DAY_MS)
    assert [segment.size_bytes for segment in writer.log.segments] == [BATCH_BYTES] * count
    return writer.log


@pytest.mark.parametrize("days", [2, 3, 4, 5])
def test_segments_go_when_their_youngest_record_is_too_old(days: int) -> None:
    log = log_of_days(TopicConfig(retention_ms=2 * DAY_MS))
    now_ms = START_MS + days * DAY_MS
    assert expired_segments(log, now_ms, log.end_offset) == days - 2
    assert expired_segments(log, now_ms + 1, log.end_offset) == days - 1


def check_expires(log: PartitionLog, after_ms: int) -> None:
    assert expired_segments(log, after_ms, 1) == 0
    assert expired_segments(log, after_ms + 1, 1) == 1


def test_without_timestamps_it_counts_when_the_segment_was_last_written_to() -> None:
    now_ms = START_MS
    disk = SimulatedDisk(now_ms=lambda: now_ms)
    config = TopicConfig(retention_ms=DAY_MS)
    writer = Writer(opened(disk, config))
    now_ms += 7
    writer.put((b"key", b"value"), timestamp_ms=-1)
    now_ms += 7
    writer.roll(now_ms)
    check_expires(writer.log, START_MS + 7 + DAY_MS)
    now_ms += DAY_MS
    disk.kill()
    check_expires(opened(disk, config), START_MS + 7 + DAY_MS)


def test_without_timestamps_a_compacted_segment_is_as_old_as_what_it_was_made_from() -> None:
    now_ms = START_MS
    disk = SimulatedDisk(now_ms=lambda: now_ms)
    config = compacted(cleanup_policy=frozenset(CleanupPolicy), retention_ms=DAY_MS)
    writer = Writer(opened(disk, config))
    for _ in range(2):
        writer.put((b"key", b"value"), timestamp_ms=-1)
    writer.roll(START_MS)
    now_ms += 7
    compact(disk, writer.log, now_ms=now_ms)
    assert offsets_of(writer.log) == [1]
    now_ms += 7
    assert expired_segments(writer.log, START_MS + DAY_MS, 2) == 0
    assert expired_segments(writer.log, START_MS + DAY_MS + 1, 2) == 1


@pytest.mark.parametrize(
    ("retention_bytes", "count"),
    [
        (4 * BATCH_BYTES, 0),
        (4 * BATCH_BYTES - 1, 0),
        (3 * BATCH_BYTES, 1),
        (BATCH_BYTES + 1, 2),
        (BATCH_BYTES, 3),
        (0, 4),
        (-1, 0),
    ],
)
def test_at_least_retention_bytes_stay(retention_bytes: int, count: int) -> None:
    log = log_of_days(TopicConfig(retention_ms=-1, retention_bytes=retention_bytes))
    assert expired_segments(log, START_MS, log.end_offset) == count


@pytest.mark.parametrize("high_watermark", range(5))
def test_c5_only_replicated_records_are_deleted(high_watermark: int) -> None:
    log = log_of_days(TopicConfig(retention_ms=0, retention_bytes=0))
    assert apply_retention(log, START_MS + 100 * DAY_MS, high_watermark) == high_watermark
    assert log.log_start_offset == high_watermark
    assert log.end_offset == 4


@pytest.mark.parametrize("policies", [{"delete"}, {"compact"}, {"compact", "delete"}, set()])
def test_segments_before_the_log_start_go_under_every_policy(policies: set[str]) -> None:
    policy = frozenset(map(CleanupPolicy, policies))
    log = log_of_days(TopicConfig(retention_ms=-1, cleanup_policy=policy))
    log.advance_log_start(2)
    assert apply_retention(log, START_MS, log.end_offset) == 2
    assert log.segments.base_offset == 2
    log.advance_log_start(4)
    assert apply_retention(log, START_MS, log.end_offset) == 1
    assert len(log.segments) == 1


def test_a_log_without_the_delete_policy_keeps_old_and_large_segments() -> None:
    log = log_of_days(compacted(retention_ms=0, retention_bytes=0))
    assert expired_segments(log, START_MS + 100 * DAY_MS, log.end_offset) == 0


def test_a_log_that_is_all_expired_goes_on_with_an_empty_segment() -> None:
    log = log_of_days(TopicConfig(retention_ms=DAY_MS))
    now_ms = START_MS + 100 * DAY_MS
    assert apply_retention(log, now_ms, log.end_offset) == 4
    assert [segment.base_offset for segment in log.segments] == [4]
    assert (log.log_start_offset, log.end_offset) == (4, 4)
    assert apply_retention(log, now_ms, log.end_offset) == 0
    with pytest.raises(ApiError) as caught:
        log.read(3, 4, 1000)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    Writer(log).put((b"key", b"value"))
    assert offsets_of(log) == [4]


def test_the_files_stay_for_file_delete_delay_ms() -> None:
    disk = SimulatedDisk()
    writer = Writer(opened(disk, TopicConfig(retention_ms=DAY_MS, file_delete_delay_ms=1000)))
    writer.put((b"key", b"value"))
    now_ms = START_MS + 2 * DAY_MS
    apply_retention(writer.log, now_ms, 1)
    for later_ms, is_there in ((999, True), (1000, False)):
        writer.log.remove_deleted(now_ms + later_ms)
        assert disk.exists(f"{DIRECTORY}/00000000000000000000.log.deleted") is is_there


def test_compact_and_delete_go_together() -> None:
    disk = SimulatedDisk()
    config = compacted(
        cleanup_policy=frozenset(CleanupPolicy), retention_ms=2 * DAY_MS, segment_bytes=200
    )
    writer = Writer(opened(disk, config))
    for day in range(6):
        key = b"%d" % (day % 2)
        writer.put((key, b"x" * 100), timestamp_ms=START_MS + day * DAY_MS)
    writer.roll()
    dirty = compact(disk, writer.log, now_ms=START_MS + 5 * DAY_MS)
    assert offsets_of(writer.log) == [4, 5]
    assert apply_retention(writer.log, START_MS + 7 * DAY_MS, 6) == 5
    assert offsets_of(writer.log) == [5]
    assert compact(disk, writer.log, dirty) == dirty


def test_an_empty_log_has_one_offset() -> None:
    log = new_log()
    assert offsets_before(log, LATEST, NOW_MS) == [0]
    assert offsets_before(log, EARLIEST, NOW_MS) == [0]


def test_segments_are_told_by_where_they_begin_the_last_one_first() -> None:
    log = new_log()
    fill(log, 10, timestamp_ms=1000)
    fill(log, 10, timestamp_ms=2000)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 3
    assert offsets_before(log, LATEST, NOW_MS) == [20, *reversed(bases)]
    assert offsets_before(log, EARLIEST, NOW_MS) == [0]
    old = [s.base_offset for s in log.segments if s.greatest_timestamp.timestamp_ms <= 1000]
    assert 0 < len(old) < len(bases)
    assert offsets_before(log, 1500, NOW_MS) == [*reversed(old)]
    assert offsets_before(log, 999, NOW_MS) == []
    assert offsets_before(log, NOW_MS, NOW_MS) == [20, *reversed(bases)]


def test_nothing_before_the_start_of_the_log_is_told() -> None:
    log = new_log()
    fill(log, 10)
    log.advance_log_start(1)
    assert offsets_before(log, EARLIEST, NOW_MS) == [1]
