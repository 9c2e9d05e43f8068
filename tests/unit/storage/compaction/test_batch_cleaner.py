"""The remaining records of a single batch, independent of the log around it."""

import pytest

from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.compaction import cleaned_segment
from ottla.storage.compaction.batch_cleaner import BatchCleaner, emptied, placeholder
from ottla.storage.compaction.cleaned_segment import CleanedSegment, OversizedSegmentError
from ottla.storage.compaction.offset_map import offset_map
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.record import records_of
from tests.unit.storage.compacted_logs import DAY_MS, START_MS, compacted

END_OFFSET = 100


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
    monkeypatch.setattr(cleaned_segment, "POSITION_MAX", 2 * batch.size_bytes)
    disk = SimulatedDisk()
    disk.make_directory("/log")
    segment = CleanedSegment(disk, "/log", 0, compacted(), lambda _: None)
    segment.append(batch)
    segment.append(batch_of((b"a", b"2"), base_offset=11))
    with pytest.raises(OversizedSegmentError, match="offset 12"):
        segment.append(batch_of((b"a", b"3"), base_offset=12))
