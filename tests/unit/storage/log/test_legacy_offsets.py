from ottla.model.isolation_level import EARLIEST, LATEST
from ottla.storage.log.legacy_offsets import offsets_before
from tests.log_building import NOW_MS, fill, new_log


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
