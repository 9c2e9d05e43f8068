"""The list of segments, searched by offset."""

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.settings.topic_config import TopicConfig
from ottla.replication.partition import Partition
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.damage import Damage
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.admission import Origin
from ottla.storage.log.log import PartitionLog
from ottla.storage.recovery.log_recovery import open_log
from ottla.wire.records.control import ControlType
from tests.log_building import NOW_MS, PARTITION, READ_BYTES, batch, fill, marker, new_log, stamped
from tests.unit.storage.compacted_logs import DIRECTORY, START_MS, Writer, opened

SIZE = len(batch())


@pytest.fixture
def log() -> PartitionLog:
    """Ten batches of one record, in segments from 0, 3, 6 and 9 on."""
    log = new_log()
    fill(log, 10)
    return log


def test_a_segment_holds_the_offsets_before_the_next_segment(log: PartitionLog) -> None:
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


def test_segments_are_replaced_by_segments_of_the_same_range(log: PartitionLog) -> None:
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


def aborted_log(count: int, segment_bytes: int) -> PartitionLog:
    log = new_log(segment_bytes=segment_bytes, index_interval_bytes=0)
    for number in range(count):
        data = batch(producer_id=4, base_sequence=number, is_transactional=True)
        log.append_as_leader(data, 0, NOW_MS)
        end = marker(ControlType.ABORT, 4)
        log.append_as_leader(end, 0, NOW_MS, origin=Origin.COORDINATOR)
    return log


def first_offsets(log: PartitionLog, offset: int, end_offset: int, size: int | None) -> list[int]:
    return [one.first_offset for one in log.aborted_transactions(offset, end_offset, size)]


def test_only_those_in_the_bytes_that_a_reader_gets_are_told() -> None:
    log = aborted_log(10, segment_bytes=1 << 20)
    one_batch = len(log.read(4, 5, 1 << 20))
    assert first_offsets(log, 4, 20, one_batch) == [4]
    two_more = len(log.read(4, 7, 1 << 20))
    assert first_offsets(log, 4, 20, two_more) == [4, 6]
    assert first_offsets(log, 4, 20, None) == list(range(4, 20, 2))
    assert first_offsets(log, 4, 20, 1 << 20) == list(range(4, 20, 2))


def test_bytes_end_with_their_segment() -> None:
    log = aborted_log(10, segment_bytes=300)
    assert len(log.segments) > 3
    first = log.segments.since(0)[0]
    end_offset = log.segments.base_offset_of(1)
    found = first_offsets(log, 0, 20, first.size_bytes)
    assert found == [offset for offset in range(0, 20, 2) if offset < end_offset]


def test_a_transaction_that_ends_in_a_later_segment_is_returned() -> None:
    log = new_log(segment_bytes=300, index_interval_bytes=0)
    log.append_as_leader(batch(producer_id=4, base_sequence=0, is_transactional=True), 0, NOW_MS)
    for _ in range(10):
        log.append_as_leader(batch(), 0, NOW_MS)
    log.append_as_leader(marker(ControlType.ABORT, 4), 0, NOW_MS, origin=Origin.COORDINATOR)
    assert log.segments.since(0)[0].aborted_index.entry_count == 0
    assert first_offsets(log, 0, 12, 10) == [0]
    assert first_offsets(log, 1, 12, 10) == [0]


def test_an_index_that_is_mended_takes_nothing_back_from_readers() -> None:
    disk, config = SimulatedDisk(), TopicConfig()
    writer = Writer(opened(disk, config))
    writer.put((b"key", b"aborted"), producer_id=1, is_transactional=True)
    writer.end(1, ControlType.ABORT)
    writer.put((b"key", b"committed"), producer_id=2, is_transactional=True)
    writer.end(2, ControlType.COMMIT)
    writer.roll()
    end_offset = writer.put((b"key", b"plain")) + 1
    writer.log.close(START_MS)
    disk.open_file(f"{DIRECTORY}/{0:020}.txnindex").write_at(0, b"\x7f")
    files = OpenFiles(disk)
    log = open_log(files, DIRECTORY, config, START_MS, is_clean=True, recovery_point=end_offset).log
    partition = Partition(PARTITION, bytes(16), log, lambda _: None, high_watermark=end_offset)
    partition.lead(0)
    assert partition.read(0, 1 << 20, is_committed_only=True).aborted == [(1, 0)]
    assert partition.last_stable_offset == end_offset
