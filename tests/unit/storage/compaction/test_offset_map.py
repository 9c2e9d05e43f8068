"""The map of last offsets: compiled code and fallback agree byte for byte."""

from hashlib import blake2b
from types import ModuleType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.compaction import _compaction_python, batch_cleaner, offset_map
from ottla.storage.compaction.offset_map import DEDUPE_BUFFER_BYTES
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.builder import BatchBuilder, build_batch
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.record import Record, records_of
from tests.examples import examples
from tests.record_strategies import record_lists
from tests.unit.storage.compacted_logs import (
    DAY_MS,
    START_MS,
    Writer,
    compact,
    compacted,
    files_of,
    opened,
)

try:
    from ottla.storage.compaction import _compaction
except ImportError:
    _compaction = _compaction_python
BOTH = [_compaction, _compaction_python]
both = pytest.mark.parametrize("module", BOTH)


def batch_of(*keys: bytes | None, base_offset: int = 0) -> RecordBatch:
    builder = BatchBuilder(base_offset=base_offset)
    for key in keys:
        builder.append(START_MS, key, b"value")
    return RecordBatch(memoryview(builder.build()))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 127, 128, 129, 255, 256, 257, 1000])
def test_a_key_is_known_by_its_blake2b(size: int) -> None:
    key = bytes(number * 31 % 256 for number in range(size))
    for module in BOTH:
        assert module.key_digest(key) == blake2b(key, digest_size=16).digest()


@both
def test_the_last_offset_of_a_key_counts(module: ModuleType) -> None:
    known = module.OffsetMap(5, 6)
    batch = batch_of(b"a", None, b"b", b"a", b"", base_offset=70)
    assert known.add_keys(batch, batch.records_view, 0) == -1
    assert [known.get(key) for key in (b"a", b"b", b"", b"c")] == [73, 72, 74, -1]
    assert known.entry_count == 3


@both
def test_offsets_before_the_start_are_passed_over(module: ModuleType) -> None:
    known = module.OffsetMap(5, 6)
    batch = batch_of(b"a", b"b", base_offset=70)
    assert known.add_keys(batch, batch.records_view, 71) == -1
    assert (known.get(b"a"), known.get(b"b")) == (-1, 71)


@both
def test_a_full_map_says_at_which_offset_it_was_full(module: ModuleType) -> None:
    known = module.OffsetMap(2, 3)
    batch = batch_of(b"a", b"b", b"a", b"c", b"b", base_offset=10)
    assert known.add_keys(batch, batch.records_view, 0) == 13
    assert [known.get(key) for key in (b"a", b"b", b"c")] == [12, 11, -1]


@both
@pytest.mark.parametrize(("entries_max", "slots"), [(0, 5), (5, 5), (1, 2**32)])
def test_a_map_has_always_a_free_place(module: ModuleType, entries_max: int, slots: int) -> None:
    with pytest.raises(AssertionError):
        module.OffsetMap(entries_max, slots)


@both
def test_a_map_full_to_the_limit_still_finds_everything(module: ModuleType) -> None:
    keys = [b"%d" % number for number in range(900)]
    known = module.OffsetMap(900, 1000)
    batch = batch_of(*keys)
    assert known.add_keys(batch, batch.records_view, 0) == -1
    assert [known.get(key) for key in keys] == list(range(900))
    assert known.get(b"missing") == -1
    batch = batch_of(*reversed(keys), b"one too many", base_offset=900)
    assert known.add_keys(batch, batch.records_view, 0) == 1800
    assert [known.get(key) for key in keys] == list(reversed(range(900, 1800)))


def test_a_map_is_no_larger_than_it_may_be_or_has_to_be() -> None:
    assert offset_map.offset_map(DEDUPE_BUFFER_BYTES, 10**12).entries_max == 5_033_164
    small = offset_map.offset_map(DEDUPE_BUFFER_BYTES, 1000)
    assert 1000 <= small.entries_max <= 1010
    assert offset_map.offset_map(0, 1000).entries_max == 1


# -- compiled and fallback ------------------------------------------------------------------------


def outcome(module: ModuleType, batches: list[RecordBatch], end_offset: int) -> list[object]:
    """Put batches into a map, filter them by it, and shift the remaining records."""
    known = module.OffsetMap(6, 7)
    found: list[object] = [known.add_keys(batch, batch.records_view, 3) for batch in batches]
    for batch in batches:
        for with_tombstones in (True, False):
            filtered = known.filter_records(
                batch, batch.records_view, end_offset, with_tombstones=with_tombstones
            )
            section = batch.records_view if filtered[0] is None else filtered[0]
            shifted = module.shift_timestamps(batch, section, filtered[1], -START_MS)
            found += [filtered, shifted]
    return [*found, known.entry_count]


@pytest.mark.usefixtures("needs_compiled_loops")
@given(st.lists(record_lists(), min_size=1, max_size=4), st.integers(0, 2**41))
def test_compiled_and_plain_python_agree(lists: list[list[Record]], end_offset: int) -> None:
    batches = [RecordBatch(memoryview(build_batch(records))) for records in lists]
    assert outcome(_compaction, batches, end_offset) == outcome(
        _compaction_python, batches, end_offset
    )


@given(record_lists(), st.integers(-(2**40), 2**40))
def test_shifting_and_moving_the_base_changes_no_record(records: list[Record], shift: int) -> None:
    raw = build_batch(records)
    batch = RecordBatch(memoryview(raw))
    shifted = _compaction.shift_timestamps(batch, batch.records_view, len(records), shift)
    moved = bytearray(raw[:61]) + shifted
    moved[8:12] = (len(moved) - 12).to_bytes(4, "big")
    moved[27:35] = (batch.base_timestamp_ms - shift).to_bytes(8, "big", signed=True)
    assert records_of(RecordBatch(memoryview(moved))) == records


def broken(section: bytes, record_count: int) -> list[str]:
    """Return the results or errors of all three loops for a corrupted section."""
    batch = batch_of(*[b"key"] * record_count)
    complaints = []
    for module in BOTH:
        known = module.OffsetMap(5, 6)
        for read in (
            lambda known=known: known.add_keys(batch, section, 0),
            lambda known=known: known.filter_records(batch, section, 50, with_tombstones=False),
            lambda module=module: module.shift_timestamps(batch, section, record_count, 5),
        ):
            try:
                complaints.append(repr(read()))
            except ProtocolError as error:
                complaints.append(str(error))
    return complaints


SOUND = bytes(batch_of(b"key", b"key", b"key").records_view)


@pytest.mark.usefixtures("needs_compiled_loops")
@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), max_size=3),
    st.integers(0, len(SOUND)),
    st.integers(1, 4),
)
@example([], len(SOUND), 3)
@example([(0, 0xFF), (1, 0xFF), (2, 0xFF)], len(SOUND), 3)
def test_compiled_and_plain_python_agree_on_invalid_records(
    changes: list[tuple[int, int]], size: int, record_count: int
) -> None:
    section = bytearray(SOUND)
    for position, byte in changes:
        section[position] = byte
    complaints = broken(bytes(section[:size]), record_count)
    assert complaints[:3] == complaints[3:]


@pytest.mark.usefixtures("needs_compiled_loops")
@given(st.binary(max_size=60), st.integers(1, 5))
def test_compiled_and_plain_python_agree_on_noise(noise: bytes, record_count: int) -> None:
    complaints = broken(noise, record_count)
    assert complaints[:3] == complaints[3:]


def test_a_record_that_is_cut_off_is_named() -> None:
    complaints = broken(SOUND[:-1], 3)
    assert [complaint.count("record 2 is malformed") for complaint in complaints] == [1] * 6


def test_whole_logs_come_out_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for module in BOTH:
        monkeypatch.setattr(offset_map, "OffsetMap", module.OffsetMap)
        monkeypatch.setattr(batch_cleaner, "shift_timestamps", module.shift_timestamps)
        disk = SimulatedDisk()
        writer = Writer(opened(disk, compacted(segment_bytes=2000)))
        for number in range(60):
            writer.put(
                *((b"%d" % (number * extra % 23), b"x" * extra or None) for extra in range(5)),
                codec=Compression(number % 5),
                producer_id=number % 3,
            )
        writer.roll()
        dirty = compact(disk, writer.log, dedupe_buffer_bytes=24 * 15)
        compact(disk, writer.log, dirty, START_MS + DAY_MS)
        results.append(files_of(disk))
    assert results[0] == results[1]
