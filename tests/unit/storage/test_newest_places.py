"""The newest batches are located without a read, while they are in the file."""

from ottla.storage.segments.segment_batches import BatchPlace, NewestPlaces
from ottla.wire.records.batch import RecordBatch, batch_at
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import Record

RECORDS = 3


def batch(base_offset: int) -> RecordBatch:
    records = [Record(base_offset + number, 0, None, b"v", ()) for number in range(RECORDS)]
    return batch_at(memoryview(build_batch(records)), 0)


def places(count: int) -> tuple[NewestPlaces, list[BatchPlace]]:
    newest, expected, position = NewestPlaces(), [], 0
    for number in range(count):
        one = batch(number * RECORDS)
        newest.add(position, one)
        expected.append(BatchPlace(position, one.size_bytes, one.base_offset, one.last_offset))
        position += one.size_bytes
    return newest, expected


def test_every_offset_of_the_newest_batches_is_found() -> None:
    newest, expected = places(8)
    for place in expected:
        for offset in range(place.base_offset, place.last_offset + 1):
            assert newest.find(offset) == place


def test_the_end_is_not_in_any_batch() -> None:
    newest, expected = places(8)
    assert newest.find(expected[-1].last_offset + 1) is None


def test_old_batches_are_forgotten_and_the_newest_kept() -> None:
    newest, expected = places(100)
    assert newest.find(0) is None
    assert newest.find(expected[-1].base_offset) == expected[-1]


def test_nothing_is_found_after_the_file_was_cut() -> None:
    newest, expected = places(8)
    newest.forget()
    assert newest.find(expected[-1].base_offset) is None
