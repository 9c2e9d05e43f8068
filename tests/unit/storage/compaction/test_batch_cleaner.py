"""The remaining records of a single batch, independent of the log around it."""

import pytest

from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.compaction import segment_swap
from ottla.storage.compaction.batch_cleaner import (
    BatchCleaner,
    SeenMarker,
    TransactionTracker,
    emptied,
    placeholder,
    read_aborted,
)
from ottla.storage.compaction.offset_map import offset_map
from ottla.storage.compaction.segment_swap import CleanedSegment, OversizedSegmentError
from ottla.storage.indexes.aborted_index import AbortedIndex, AbortedTransaction
from ottla.storage.indexes.sparse_index import CorruptIndexError
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.control import ControlType, end_txn_marker
from ottla.wire.records.record import records_of
from tests.unit.storage.compacted_logs import DAY_MS, START_MS, compacted

END_OFFSET = 100

PATH = "/00000000000000000000.txnindex"
NEEDLESS = SeenMarker(is_needless=True)
NEEDED = SeenMarker(is_needless=False)


def batch_of(*pairs: tuple[bytes, bytes | None], base_offset: int = 10) -> RecordBatch:
    builder = BatchBuilder(
        base_offset=base_offset,
        leader_epoch=4,
        producer_id=9,
        producer_epoch=2,
        base_sequence=30,
        compression=Compression.LZ4,
        is_transactional=True,
    )
    for number, (key, value) in enumerate(pairs):
        builder.append(START_MS + number, key, value)
    return RecordBatch(memoryview(builder.build()))


def cleaner_after(*batches: RecordBatch) -> BatchCleaner:
    """Return a cleaner for a log that also holds these keys."""
    keys = offset_map(10_000, 100)
    for batch in batches:
        section = BatchBuilder(base_offset=batch.base_offset)
        for record in records_of(batch):
            section.append(record.timestamp_ms, record.key, record.value)
        plain = RecordBatch(memoryview(section.build()))
        keys.add_keys(plain, plain.records_view, 0)
    return BatchCleaner(keys, END_OFFSET, {}, START_MS, DAY_MS)


def test_a_horizon_for_which_there_is_no_room_is_left_out_and_what_is_replaced_goes() -> None:
    batch = batch_of((b"a", None), (b"b", b"1"), (b"c", b"2"))
    cleaner = cleaner_after(batch, batch_of((b"b", b"3"), base_offset=50))
    roomy = cleaner.cleaned_batch(batch, 1000, is_aborted=False)
    cramped = cleaner.cleaned_batch(batch, -batch.size_bytes, is_aborted=False)
    assert roomy is not None
    assert cramped is not None
    assert roomy.has_delete_horizon
    assert not cramped.has_delete_horizon
    assert records_of(cramped) == records_of(roomy)
    assert [record.key for record in records_of(cramped)] == [b"a", b"c"]
    assert cleaner.counts.records_removed == 2


def test_an_emptied_batch_still_tells_its_producers_state() -> None:
    batch = batch_of((b"a", b"1"), (b"b", b"1"))
    left = emptied(batch)
    left.check_crc()
    assert records_of(left) == []
    assert (left.base_offset, left.last_offset, left.partition_leader_epoch) == (10, 11, 4)
    assert (left.producer_id, left.producer_epoch) == (9, 2)
    assert (left.base_sequence, left.last_sequence) == (30, 31)
    assert left.max_timestamp_ms == START_MS + 1
    assert left.is_transactional
    assert left.compression is Compression.NONE
    assert left.size_bytes == 61


def test_a_placeholder_tells_nothing_but_offsets() -> None:
    left = placeholder(batch_of((b"a", b"1"), (b"b", b"1")))
    left.check_crc()
    assert (left.base_offset, left.last_offset, left.record_count) == (10, 11, 0)
    assert (left.producer_id, left.producer_epoch, left.base_sequence) == (-1, -1, -1)
    assert left.attributes == 0
    assert placeholder(left).raw == left.raw


def test_a_segment_does_not_grow_beyond_what_its_index_can_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = batch_of((b"a", b"1"))
    monkeypatch.setattr(segment_swap, "POSITION_MAX", 2 * batch.size_bytes)
    disk = SimulatedDisk()
    disk.make_directory("/log")
    segment = CleanedSegment(disk, "/log", 0, compacted(), lambda _: None)
    segment.append(batch)
    segment.append(batch_of((b"a", b"2"), base_offset=11))
    with pytest.raises(OversizedSegmentError, match="offset 12"):
        segment.append(batch_of((b"a", b"3"), base_offset=12))


def data(offset: int, producer_id: int = 1, *, is_transactional: bool = True) -> RecordBatch:
    builder = BatchBuilder(
        base_offset=offset, producer_id=producer_id, is_transactional=is_transactional
    )
    builder.append(0, b"key", b"value")
    return RecordBatch(memoryview(builder.build()))


def marker(
    offset: int, kind: ControlType = ControlType.COMMIT, producer_id: int = 1
) -> RecordBatch:
    batch = RecordBatch(memoryview(end_txn_marker(kind, 0, producer_id, 0, 0)))
    batch.restamp(offset, 0)
    return batch


def test_a_marker_is_needed_as_long_as_a_batch_of_its_transaction_is_there() -> None:
    tracker = TransactionTracker([])
    assert not tracker.see_batch(data(0))
    assert tracker.see_marker(marker(1, producer_id=2)) == NEEDLESS
    assert tracker.see_marker(marker(2)) == NEEDED
    assert tracker.see_marker(marker(3)) == NEEDLESS


def test_a_batch_without_records_keeps_its_marker_or_its_transaction_would_never_end() -> None:
    tracker = TransactionTracker([])
    tracker.see_batch(emptied(data(0)))
    assert tracker.see_marker(marker(1)) == NEEDED


def test_only_what_is_between_its_first_record_and_its_marker_is_aborted() -> None:
    aborted = AbortedTransaction(1, 4, 8, 9)
    tracker = TransactionTracker([aborted])
    assert not tracker.see_batch(data(2))
    assert tracker.see_marker(marker(3)) == NEEDED
    assert tracker.see_batch(data(4))
    assert not tracker.see_batch(data(5, producer_id=2))
    assert not tracker.see_batch(data(6, is_transactional=False))
    assert tracker.see_batch(data(7))
    assert tracker.see_marker(marker(8, ControlType.ABORT)) == SeenMarker(
        is_needless=False, aborted=aborted
    )
    assert not tracker.see_batch(data(9))


def test_an_aborted_transaction_of_which_nothing_is_left_is_not_noted_again() -> None:
    tracker = TransactionTracker([AbortedTransaction(1, 4, 8, 9)])
    assert tracker.see_marker(marker(8, ControlType.ABORT)) == NEEDLESS


def test_a_producer_may_abort_again_and_again() -> None:
    first, second = AbortedTransaction(1, 0, 1, 2), AbortedTransaction(1, 2, 5, 6)
    tracker = TransactionTracker([second, first])
    assert tracker.see_batch(data(0))
    assert tracker.see_marker(marker(1, ControlType.ABORT)).aborted == first
    assert tracker.see_batch(data(2))
    assert tracker.see_marker(marker(5, ControlType.ABORT)).aborted == second


def test_a_transaction_whose_marker_is_nowhere_ends_there_all_the_same() -> None:
    tracker = TransactionTracker([AbortedTransaction(1, 0, 3, 4)])
    assert tracker.see_batch(data(0))
    assert not tracker.see_batch(data(4))


def test_a_control_batch_that_is_no_marker_is_never_needless() -> None:
    builder = BatchBuilder(base_offset=5, is_control=True)
    builder.append(0, b"\x00\x00\x00\x02", b"the leader has changed")
    tracker = TransactionTracker([])
    assert tracker.see_marker(RecordBatch(memoryview(builder.build()))) == NEEDED
    builder = BatchBuilder(base_offset=6, is_control=True)
    builder.append(0, b"?", b"")
    assert tracker.see_marker(RecordBatch(memoryview(builder.build()))) == NEEDED


def test_a_control_batch_that_was_emptied_is_needless() -> None:
    raw = bytearray(marker(3).raw[:61])
    raw[8:12] = (49).to_bytes(4, "big")
    raw[57:61] = bytes(4)
    assert TransactionTracker([]).see_marker(RecordBatch(memoryview(raw))) == NEEDLESS


def test_an_index_is_read_without_being_mapped() -> None:
    disk = SimulatedDisk()
    assert read_aborted(disk, PATH) == []
    index = AbortedIndex(disk, PATH, 0)
    noted = [AbortedTransaction(1, 0, 3, 4), AbortedTransaction(2, 1, 5, 6)]
    for transaction in noted:
        index.append(transaction)
    assert read_aborted(disk, PATH) == noted


@pytest.mark.parametrize("damage", ["cut off", "another version"])
def test_an_index_that_is_damaged_is_not_done_without(damage: str) -> None:
    disk = SimulatedDisk()
    AbortedIndex(disk, PATH, 0).append(AbortedTransaction(1, 0, 3, 4))
    if damage == "cut off":
        disk.open_file(PATH).truncate(33)
    else:
        disk.corrupt(PATH, 1, b"\x01")
    with pytest.raises(CorruptIndexError):
        read_aborted(disk, PATH)
