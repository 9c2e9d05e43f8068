"""The aborted transactions that a read returns."""

from ottla.model.settings.topic_config import TopicConfig
from ottla.replication.partition import Partition
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.open_files import OpenFiles
from ottla.storage.log.admission import Origin
from ottla.storage.log.log import PartitionLog
from ottla.storage.recovery.log_recovery import open_log
from ottla.wire.records.control import ControlType
from tests.log_building import NOW_MS, PARTITION, batch, marker, new_log
from tests.unit.storage.compacted_logs import DIRECTORY, START_MS, Writer, opened


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


def test_one_that_ends_in_a_later_segment_is_told_too() -> None:
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
