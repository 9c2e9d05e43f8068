"""Appending to a log and reading from it."""

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.topic_config import TimestampType
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.log_slice import NOTHING
from ottla.storage.indexes.sparse_index import RELATIVE_OFFSET_MAX
from ottla.storage.log.log import Appended, PartitionLog
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import CONTROL_BIT, RecordBatch, batches, write_crc
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.control import ControlType
from ottla.wire.records.record import records_of
from tests.crashes.invariants import check_derived
from tests.log_building import (
    NOW_MS,
    READ_BYTES,
    LogFolder,
    batch,
    batches_of,
    contents,
    fill,
    joined,
    marker,
    new_log,
    stamped,
    tiny,
)


def refused(code: ErrorCode) -> "pytest.RaisesExc[ApiError]":
    return pytest.raises(ApiError, check=lambda error: error.code is code)


def offsets_read(log: PartitionLog, offset: int, end: int, bytes_max: int) -> list[int]:
    found = batches(log.read(offset, end, bytes_max).read())
    return [record.offset for one in found for record in records_of(one)]


class TestAppending:
    def test_offsets_go_on_where_the_log_ends(self) -> None:
        log = new_log()
        assert log.append_as_leader(batch(3), 0, NOW_MS) == Appended(0, 2)
        assert log.append_as_leader(batch(2), 0, NOW_MS) == Appended(3, 4)
        assert log.end_offset == 5
        assert [b.base_offset for b in batches_of(log)] == [0, 3]

    def test_the_leader_epoch_is_stamped_and_noted(self) -> None:
        log = new_log()
        for epoch in (2, 2, 5):
            log.append_as_leader(batch(), epoch, NOW_MS)
        assert [b.partition_leader_epoch for b in batches_of(log)] == [2, 2, 5]
        assert log.epochs.entries == ((2, 0), (5, 2))

    def test_refused_batches_are_not_appended(self) -> None:
        log = new_log(max_message_bytes=200)
        with refused(ErrorCode.MESSAGE_TOO_LARGE):
            log.append_as_leader(batch(value=bytes(200)), 0, NOW_MS)
        assert log.end_offset == 0
        assert contents(log) == []

    def test_a_repeated_batch_is_answered_with_its_first_offset(self) -> None:
        log = new_log()
        fill(log, 1)
        first = batch(2, producer_id=7, base_sequence=0)
        log.append_as_leader(memoryview(bytearray(first)), 0, NOW_MS)
        fill(log, 3)
        again = log.append_as_leader(first, 0, NOW_MS)
        assert again == Appended(1, 2, is_duplicate=True)
        assert log.end_offset == 6

    def test_with_log_append_time_every_record_has_the_brokers(self) -> None:
        log = new_log(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
        data = batch(2, 5, producer_id=7, base_sequence=0)
        copy = memoryview(bytearray(data))
        assert log.append_as_leader(data, 0, NOW_MS).log_append_time_ms == NOW_MS
        assert log.append_as_leader(copy, 0, NOW_MS + 9) == Appended(0, 1, NOW_MS, True)
        (found,) = batches_of(log)
        assert {record.timestamp_ms for record in records_of(found)} == {NOW_MS}

    def test_with_create_time_the_answer_has_no_time(self) -> None:
        assert new_log().append_as_leader(batch(), 0, NOW_MS).log_append_time_ms == -1


class TestFollowing:
    def test_several_batches_are_appended_as_they_are(self) -> None:
        log = new_log()
        sent = [stamped(batch(2), 0, 4), stamped(batch(1), 2, 5)]
        assert log.append_as_follower(joined(*sent), NOW_MS) == Appended(0, 2)
        assert contents(log) == [bytes(one) for one in sent]
        assert log.epochs.entries == ((4, 0), (5, 2))

    def test_more_than_a_segment_at_once_goes_into_one(self) -> None:
        log = new_log()
        log.append_as_follower(joined(*(stamped(batch(), n) for n in range(9))), NOW_MS)
        assert [s.base_offset for s in log.segments] == [0]
        assert len(contents(log)) == 9
        check_derived(log, contents(log))

    @pytest.mark.parametrize("kept", [0, 1, 11, 12, 60, 75])
    def test_a_batch_that_is_cut_off_is_left_out(self, kept: int) -> None:
        log = new_log()
        whole, cut = stamped(batch(), 0), stamped(batch(), 1)
        log.append_as_follower(joined(whole, cut[:kept]), NOW_MS)
        assert contents(log) == [bytes(whole)]

    def test_a_part_of_a_batch_alone_is_nothing(self) -> None:
        log = new_log()
        assert log.append_as_follower(stamped(batch(), 0)[:50], NOW_MS) is None
        assert log.append_as_follower(memoryview(b""), NOW_MS) is None

    def test_offsets_that_are_there_already_are_refused_and_nothing_is_appended(self) -> None:
        log = new_log()
        fill(log, 2)
        with refused(ErrorCode.CORRUPT_MESSAGE):
            log.append_as_follower(joined(stamped(batch(), 2), stamped(batch(), 2)), NOW_MS)
        assert log.end_offset == 2
        assert len(contents(log)) == 2

    def test_a_wrong_crc_is_refused_and_nothing_is_appended(self) -> None:
        log = new_log()
        bad = stamped(batch(), 1)
        bad[-1] ^= 1
        with refused(ErrorCode.CORRUPT_MESSAGE):
            log.append_as_follower(joined(stamped(batch(), 0), bad), NOW_MS)
        assert log.end_offset == 0
        assert contents(log) == []

    def test_a_batch_of_no_offsets_is_refused(self) -> None:
        log = new_log()
        data = stamped(batch(), 0)
        data[23:27] = (2**32 - 1).to_bytes(4, "big")  # last offset delta
        data[57:61] = bytes(4)  # record count
        write_crc(data)
        with refused(ErrorCode.CORRUPT_MESSAGE):
            log.append_as_follower(data, NOW_MS)

    def test_a_control_batch_that_is_no_marker_is_refused_and_nothing_is_left_of_it(self) -> None:
        log = new_log()
        fill(log, 1)
        odd = stamped(batch(producer_id=7, base_sequence=0), 1)
        odd[22] |= CONTROL_BIT
        write_crc(odd)
        with pytest.raises(ProtocolError):
            log.append_as_follower(odd, NOW_MS)
        fill(log, 1)
        assert [b.base_offset for b in batches_of(log)] == [0, 1]
        check_derived(log, contents(log))

    def test_offsets_that_compaction_took_leave_a_gap(self) -> None:
        log = new_log()
        log.append_as_follower(joined(stamped(batch(), 3), stamped(batch(), 8)), NOW_MS)
        assert (log.log_start_offset, log.end_offset) == (0, 9)
        assert offsets_read(log, 0, 9, 1) == [3]
        assert offsets_read(log, 4, 9, 1) == [8]

    def test_a_segment_begins_at_the_end_of_its_predecessor_despite_missing_offsets(
        self,
    ) -> None:
        log = new_log()
        for offset in (0, 10, 20, 30, 40):
            log.append_as_follower(stamped(batch(), offset), NOW_MS)
        assert [s.base_offset for s in log.segments] == [0, 21]

    def test_offsets_too_far_apart_for_one_index_go_into_another_segment(self) -> None:
        log = new_log()
        far = RELATIVE_OFFSET_MAX + 1
        log.append_as_follower(stamped(batch(), 5), NOW_MS)
        sent = joined(stamped(batch(), 6), stamped(batch(), 7 + far))
        assert log.append_as_follower(sent, NOW_MS) == Appended(6, 6)
        assert log.append_as_follower(stamped(batch(), 7 + far), NOW_MS) == Appended(
            7 + far, 7 + far
        )
        assert [s.base_offset for s in log.segments] == [0, 7 + far]
        assert [b.base_offset for b in batches_of(log)] == [5, 6, 7 + far]

    def test_offsets_far_from_an_empty_segment_go_into_one_of_their_own(self) -> None:
        log = new_log()
        far = RELATIVE_OFFSET_MAX + 1
        log.append_as_follower(stamped(batch(), far), NOW_MS)
        assert [s.base_offset for s in log.segments] == [far]


class TestRolling:
    def test_a_segment_ends_when_the_next_batch_does_not_fit(self) -> None:
        log = new_log(segment_bytes=200)
        size_bytes = len(batch())
        assert 2 * size_bytes <= 200 < 3 * size_bytes
        fill(log, 5)
        assert [s.base_offset for s in log.segments] == [0, 2, 4]

    def test_a_segment_ends_when_its_records_span_too_long(self) -> None:
        log = new_log(segment_bytes=1 << 20, segment_ms=100)
        for timestamp_ms in (1000, 1100, 1050, 1101, 1102):
            log.append_as_leader(batch(1, timestamp_ms), 0, NOW_MS)
        assert [s.base_offset for s in log.segments] == [0, 3]

    def test_records_without_a_time_count_by_ours(self) -> None:
        log = new_log(segment_bytes=1 << 20, segment_ms=100)
        for now_ms in (NOW_MS, NOW_MS + 100, NOW_MS + 101):
            log.append_as_leader(batch(1, -1), 0, now_ms)
        assert [s.base_offset for s in log.segments] == [0, 2]

    def test_a_segment_ends_when_an_index_is_full(self) -> None:
        log = new_log(segment_bytes=1 << 20, segment_index_bytes=32, index_interval_bytes=1)
        for number in range(9):
            log.append_as_leader(batch(1, 1000 + number), 0, NOW_MS)
        assert len(log.segments) > 2
        check_derived(log, contents(log))

    def test_rolling_by_hand_leaves_an_empty_segment_alone(self) -> None:
        log = new_log()
        log.roll(NOW_MS)
        assert [s.base_offset for s in log.segments] == [0]
        fill(log, 1)
        log.roll(NOW_MS)
        log.roll(NOW_MS)
        assert [s.base_offset for s in log.segments] == [0, 1]


class TestReading:
    def test_from_inside_a_batch_the_whole_batch_is_read(self) -> None:
        log = new_log()
        fill(log, 4, record_count=3)
        assert offsets_read(log, 4, log.end_offset, 1) == [3, 4, 5]

    def test_at_least_one_batch_is_read_however_little_is_asked_for(self) -> None:
        log = new_log()
        fill(log, 4)
        for bytes_max in (0, 1, len(batch()) - 1, len(batch())):
            assert offsets_read(log, 1, 4, bytes_max) == [1]

    def test_batches_beyond_the_size_are_left_out_on_request(self) -> None:
        log = new_log()
        fill(log, 2)
        size_bytes = len(batch())
        assert len(log.read(0, 2, size_bytes - 1, whole_batch=False)) == 0
        assert len(log.read(0, 2, size_bytes, whole_batch=False)) == size_bytes

    def test_a_later_batch_is_cut_off_where_the_bytes_end(self) -> None:
        log = new_log()
        fill(log, 3)
        slice_ = log.read(0, 3, len(batch()) + 10)
        assert len(slice_) == len(batch()) + 10
        assert [b.base_offset for b in batches(slice_.read())] == [0]

    @pytest.mark.parametrize("first_bytes", [10, 20_000])
    def test_a_long_batch_is_left_out_rather_than_cut_off(self, first_bytes: int) -> None:
        log = new_log(segment_bytes=1 << 20, index_interval_bytes=4096)
        written = [batch(value=bytes(size)) for size in (first_bytes, 20_000)]
        sizes = [len(one) for one in written]
        for one in written:
            log.append_as_leader(one, 0, NOW_MS)
        for part in (4097, sizes[1] - 1):
            slice_ = log.read(0, 2, sizes[0] + part)
            assert (len(slice_), slice_.left_out_bytes) == (sizes[0], part)
        assert len(log.read(0, 2, sizes[0] + 4096)) == sizes[0] + 4096
        assert len(log.read(0, 2, sum(sizes))) == sum(sizes)

    def test_a_slice_ends_with_its_segment(self) -> None:
        log = new_log()
        fill(log, 5)
        base_offset = list(log.segments)[1].base_offset
        assert offsets_read(log, 0, 5, READ_BYTES) == list(range(base_offset))

    @pytest.mark.parametrize("end_offset", range(10))
    def test_nothing_from_the_end_on_is_read(self, end_offset: int) -> None:
        log = new_log(segment_bytes=1 << 20)
        fill(log, 3, record_count=3)
        readable = [n for n in range(9) if n < end_offset // 3 * 3]
        assert offsets_read(log, 0, end_offset, READ_BYTES) == readable
        assert offsets_read(log, 0, end_offset, 0) == readable[:3]

    def test_at_the_end_there_is_nothing_to_read(self) -> None:
        log = new_log()
        assert len(log.read(0, 0, READ_BYTES)) == 0
        fill(log, 3)
        assert len(log.read(3, 3, READ_BYTES)) == 0
        assert len(log.read(3, 99, READ_BYTES)) == 0
        assert log.read(3, 3, READ_BYTES) is NOTHING
        assert NOTHING.read() == b""
        assert len(log.read(1, 1, READ_BYTES)) == 0

    def test_outside_of_the_log_there_is_no_reading(self) -> None:
        log = new_log()
        fill(log, 6)
        log.advance_log_start(2)
        for offset in (-1, 0, 1, 7):
            with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
                log.read(offset, 6, READ_BYTES)

    def test_a_slice_stays_readable_when_its_segment_goes(self) -> None:
        log = new_log(file_delete_delay_ms=0)
        fill(log, 6)
        slice_ = log.read(0, 6, READ_BYTES)
        before = slice_.read()
        log.delete_segments(1, NOW_MS)
        log.remove_deleted(NOW_MS)
        assert slice_.read() == before


class TestTimestamps:
    def log_with(self, *timestamps_ms: int) -> PartitionLog:
        log = new_log()
        for timestamp_ms in timestamps_ms:
            log.append_as_leader(batch(1, timestamp_ms), 0, NOW_MS)
        return log

    def test_the_first_record_that_is_no_older_is_found(self) -> None:
        times = [500, 900, 100, 950, 100, 100, 980, 960, 10, 20]
        log = self.log_with(*times)
        for wanted in range(1, 1000, 7):
            answer = log.offset_for_timestamp(wanted, log.end_offset)
            expected = next(((t, n) for n, t in enumerate(times) if t >= wanted), None)
            assert answer == expected

    def test_only_records_before_the_end_count(self) -> None:
        log = self.log_with(10, 20, 30, 40)
        assert log.offset_for_timestamp(30, 3) == (30, 2)
        assert log.offset_for_timestamp(30, 2) is None

    def test_only_records_after_the_start_count(self) -> None:
        log = self.log_with(50, 20, 30, 40, 45)
        log.advance_log_start(1)
        assert log.offset_for_timestamp(25, 5) == (30, 2)
        assert log.offset_for_timestamp(46, 5) is None

    def test_the_record_inside_a_batch_is_found(self) -> None:
        log = new_log()
        log.append_as_leader(batch(5, 100), 0, NOW_MS)
        assert log.offset_for_timestamp(103, 5) == (103, 3)

    def test_the_greatest_timestamp_is_that_of_the_first_record_that_has_it(self) -> None:
        assert self.log_with(10, 40, 40, 20).greatest_timestamp() == (40, 1)
        assert self.log_with().greatest_timestamp() is None
        assert self.log_with(-1, -1).greatest_timestamp() is None

    def test_a_greatest_timestamp_before_the_start_does_not_count(self) -> None:
        log = self.log_with(90, 10, 40, 20, 30)
        log.advance_log_start(1)
        assert log.greatest_timestamp() == (40, 2)

    def test_a_greatest_timestamp_behind_the_start_counts(self) -> None:
        log = self.log_with(10, 20, 90, 90, 30)
        log.advance_log_start(1)
        assert log.greatest_timestamp() == (90, 2)

    def test_a_greatest_timestamp_in_the_batch_of_the_start_counts_if_it_is_behind_it(self) -> None:
        log = new_log()
        log.append_as_leader(batch(3, 100), 0, NOW_MS)
        log.append_as_leader(batch(1, 50), 0, NOW_MS)
        log.advance_log_start(2)
        assert log.greatest_timestamp() == (102, 2)
        log.advance_log_start(3)
        assert log.greatest_timestamp() == (50, 3)
        log.advance_log_start(4)
        assert log.greatest_timestamp() is None


class TestTransactions:
    def test_aborted_transactions_are_known_to_readers(self) -> None:
        log = new_log()
        fill(log, 1, producer_id=8, base_sequence=0, is_transactional=True)
        fill(log, 3)
        log.append_as_follower(stamped(marker(ControlType.ABORT, 8), log.end_offset), NOW_MS)
        fill(log, 2)
        for start, end in ((0, 7), (0, 1), (3, 4), (4, 7)):
            assert [a[:3] for a in log.aborted_transactions(start, end)] == [(8, 0, 4)]
        assert log.aborted_transactions(5, 7) == []

    def test_what_a_transaction_wrote_is_known_again_after_a_truncation(self) -> None:
        log = new_log()
        for sequence in range(3):
            fill(log, 1, producer_id=8, base_sequence=sequence, is_transactional=True)
        log.append_as_follower(stamped(marker(ControlType.ABORT, 8), 3), NOW_MS)
        fill(log, 4)
        log.truncate_to(3)
        assert log.aborted_transactions(0, 3) == []
        assert log.producers.first_unstable_offset == 0
        check_derived(log, contents(log))

    def test_a_marker_before_the_first_record_of_its_producer_is_no_transaction(self) -> None:
        log = new_log()
        log.append_as_follower(stamped(marker(ControlType.ABORT, 8), 0), NOW_MS)
        assert log.aborted_transactions(0, 1) == []


def test_ten_thousand_small_records_come_back_in_order() -> None:
    folder = LogFolder(SimulatedDisk(), tiny(segment_bytes=20_000, index_interval_bytes=1000))
    log = folder.start()
    for first in range(0, 10_000, 100):
        builder = BatchBuilder()
        builder.extend(first, [b"%d" % number for number in range(first, first + 100)])
        log.append_as_leader(memoryview(builder.build()), 0, NOW_MS)
    values = [record.value for one in batches_of(log) for record in records_of(one)]
    assert values == [b"%d" % number for number in range(10_000)]
    assert isinstance(next(batches_of(log)), RecordBatch)
