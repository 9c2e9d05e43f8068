"""The list of segments, searched by offset."""

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.storage.files.damage import Damage
from ottla.storage.log.log import PartitionLog
from tests.log_building import NOW_MS, READ_BYTES, batch, fill, new_log, stamped

SIZE = len(batch())


@pytest.fixture
def log() -> PartitionLog:
    """Ten batches of one record, in segments from 0, 3, 6 and 9 on."""
    log = new_log()
    fill(log, 10)
    return log


def test_a_segment_holds_what_comes_before_the_next_one(log: PartitionLog) -> None:
    firsts = [log.segments.since(offset)[0].base_offset for offset in (-1, 0, 2, 3, 8, 9, 99)]
    assert firsts == [0, 0, 0, 3, 6, 9, 9]
    assert (len(log.segments), log.segments.base_offset, log.segments.active.base_offset) == (
        4,
        0,
        9,
    )
    assert [log.segments.base_offset_of(n) for n in range(4)] == [0, 3, 6, 9]
    assert log.segments.size_bytes == 10 * SIZE


def test_each_offset_is_found_in_its_segment(log: PartitionLog) -> None:
    for offset in range(10):
        found = log.segments.find(offset)
        assert found is not None
        assert (found[0].base_offset, found[1].base_offset) == (offset // 3 * 3, offset)
    assert log.segments.find(10) is None


def test_an_offset_that_compaction_took_leads_to_the_next_batch_there_is() -> None:
    log = new_log()
    for offset in (0, 1, 2, 5, 6):
        log.append_as_follower(stamped(batch(), offset), NOW_MS)
    found = log.segments.find(3)
    assert found is not None
    assert (found[0].base_offset, found[1].base_offset) == (3, 5)


def test_segments_are_replaced_by_what_covers_the_same(log: PartitionLog) -> None:
    row = list(log.segments)
    log.segments.replace(row[1:3], [row[1]])
    assert [segment.base_offset for segment in log.segments] == [0, 3, 9]
    assert log.segments.since(7)[0] is row[1]


class TestDamage:
    """Damaged offsets raise an error, all others do not."""

    def fenced(self, log: PartitionLog) -> None:
        list(log.segments)[1].fence_off(Damage(SIZE, 2 * SIZE, 4, 5))

    def test_only_damaged_offsets_cannot_be_read(self, log: PartitionLog) -> None:
        self.fenced(log)
        for offset in (0, 1, 2, 3, 5, 6, 7, 8, 9):
            assert len(log.read(offset, 10, 1)) == SIZE
        with pytest.raises(ApiError) as refusal:
            log.read(4, 10, READ_BYTES)
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    def test_a_slice_ends_before_it(self, log: PartitionLog) -> None:
        self.fenced(log)
        assert len(log.read(3, 10, READ_BYTES)) == SIZE
        assert len(log.read(5, 10, READ_BYTES)) == SIZE

    def test_it_is_not_passed_over_from_a_gap_before_it(self) -> None:
        log = new_log()
        for offset in (0, 5, 6, 7, 8):
            log.append_as_follower(stamped(batch(), offset), NOW_MS)
        first = next(iter(log.segments))
        first.fence_off(Damage(SIZE, 2 * SIZE, 5, 6))
        for offset in (1, 4, 5):
            with pytest.raises(ApiError):
                log.read(offset, 9, READ_BYTES)
        assert len(log.read(0, 9, READ_BYTES)) == SIZE
        assert len(log.read(6, 9, 1)) == SIZE

    def test_at_the_end_of_a_segment_it_is_not_passed_over_either(self, log: PartitionLog) -> None:
        list(log.segments)[1].fence_off(Damage(2 * SIZE, 3 * SIZE, 5, 6))
        with pytest.raises(ApiError):
            log.read(5, 10, READ_BYTES)
        assert len(log.read(6, 10, 1)) == SIZE
        assert len(log.read(3, 10, READ_BYTES)) == 2 * SIZE
