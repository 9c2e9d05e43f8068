from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.records import _writing_python
from ottla.wire.records.batch import HEADER_BYTES, batch_at
from ottla.wire.records.builder import BatchBuilder, build_batch, record_bytes_max
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.record import Record, RecordHeader, records_of
from tests.record_peers import AiokafkaBuilder, KafkaPythonBuilder
from tests.record_strategies import headers, payloads, record_lists, timestamps

try:
    from ottla.wire.records import _writing
except ImportError:  # without a compiler there is only the fallback
    _writing = _writing_python
BOTH = [_writing.RecordAccumulator, _writing_python.RecordAccumulator]
Accumulator = type[_writing_python.RecordAccumulator]

NOW = 1_700_000_000_000


def plain(record: Record) -> list[tuple[str, bytes | None]]:
    return [tuple(header) for header in record.headers]


def state(accumulator: Any) -> tuple[Any, ...]:
    return (
        accumulator.size_bytes,
        accumulator.record_count,
        accumulator.next_offset_delta,
        accumulator.base_timestamp_ms,
        accumulator.max_timestamp_ms,
    )


@pytest.mark.usefixtures("needs_compiled_loops")
@pytest.mark.parametrize("count", [1, 60, 64, 65, 70, 300, 1000])
def test_compiled_and_plain_writers_agree_however_large_a_batch_grows(count: int) -> None:
    batches = []
    for kind in BOTH:
        accumulator = kind()
        for number in range(count):
            accumulator.append(NOW + number, b"%d" % number, b"%d" % number * 300)
        batches.append((state(accumulator), accumulator.take()))
    assert batches[0] == batches[1]


@pytest.mark.usefixtures("needs_compiled_loops")
@given(records=record_lists())
def test_compiled_and_plain_writers_agree(records: list[Record]) -> None:
    compiled, plain = (kind() for kind in BOTH)
    for accumulator in (compiled, plain):
        for record in records:
            gap = record.offset - records[0].offset - accumulator.next_offset_delta
            accumulator.leave_gap(gap)
            accumulator.append(record.timestamp_ms, record.key, record.value, record.headers)
    assert state(compiled) == state(plain)
    assert compiled.take() == plain.take()


@pytest.mark.parametrize(("peer", "leader_epoch"), [(AiokafkaBuilder, -1), (KafkaPythonBuilder, 0)])
@given(records=record_lists(with_gaps=False))
def test_others_write_the_same_bytes(peer: Any, leader_epoch: int, records: list[Record]) -> None:
    theirs = peer(
        magic=2,
        compression_type=0,
        is_transactional=1,
        producer_id=9,
        producer_epoch=2,
        base_sequence=7,
        batch_size=1 << 20,
    )
    ours = BatchBuilder(
        is_transactional=True,
        producer_id=9,
        producer_epoch=2,
        base_sequence=7,
        leader_epoch=leader_epoch,
    )
    for index, record in enumerate(records):
        timestamp_ms = abs(record.timestamp_ms)  # aiokafka still takes -1 for no timestamp
        theirs.append(index, timestamp_ms, record.key, record.value, plain(record))
        ours.append(timestamp_ms, record.key, record.value, record.headers)
    assert ours.build() == bytes(theirs.build())


@given(
    st.lists(st.tuples(timestamps, payloads, payloads), min_size=1, max_size=20),
    st.booleans(),
    st.booleans(),
)
def test_a_bulk_of_records_is_as_many_single_ones(
    rows: list[tuple[int, bytes | None, bytes | None]], share_timestamp: bool, have_keys: bool
) -> None:
    times, keys, values = (list(column) for column in zip(*rows, strict=True))
    for kind in BOTH:
        single, bulk = kind(), kind()
        for index in range(len(rows)):
            key = keys[index] if have_keys else None
            single.append(times[0 if share_timestamp else index], key, values[index])
        taken = bulk.extend(
            times[0] if share_timestamp else times, values, keys if have_keys else None
        )
        assert taken == len(rows)
        assert state(bulk) == state(single)
        assert bulk.take() == single.take()


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("sequence", [list, tuple])
def test_a_bulk_goes_on_in_the_next_batch_where_it_did_not_fit(
    kind: Accumulator, sequence: type
) -> None:
    values = sequence([bytes([index]) * 100 for index in range(25)])
    start = 0
    sizes = []
    while start < len(values):
        batch = kind()
        end = batch.extend(NOW, values, start=start, size_bytes_max=1000)
        assert end - start == batch.record_count
        start = end
        sizes.append(batch.size_bytes)
    assert sizes == [61 + 8 * 109, 61 + 8 * 109, 61 + 8 * 109, 61 + 109]


@pytest.mark.parametrize("kind", BOTH)
def test_a_limit_that_is_just_met_is_not_exceeded(kind: Accumulator) -> None:
    batch = kind()
    assert batch.extend(NOW, [b"x" * 100] * 3, size_bytes_max=61 + 2 * 109) == 2
    assert batch.extend(NOW, [b"x" * 100], size_bytes_max=61 + 3 * 109 - 1) == 0
    assert batch.size_bytes == 61 + 2 * 109


@pytest.mark.parametrize("kind", BOTH)
def test_an_empty_batch_takes_one_record_however_large(kind: Accumulator) -> None:
    batch = kind()
    assert batch.extend(NOW, [b"x" * 100, b"y"], size_bytes_max=10) == 1
    assert batch.record_count == 1


@pytest.mark.parametrize("kind", BOTH)
def test_nothing_is_taken_from_an_empty_bulk(kind: Accumulator) -> None:
    batch = kind()
    assert batch.extend(NOW, []) == 0
    assert batch.extend(NOW, [b"a"], start=1) == 1
    assert batch.record_count == 0


@pytest.mark.parametrize("kind", BOTH)
def test_keys_and_timestamps_must_be_as_many_as_values(kind: Accumulator) -> None:
    with pytest.raises(AssertionError):
        kind().extend(NOW, [b"a", b"b"], [b"k"])
    with pytest.raises(AssertionError):
        kind().extend([NOW], [b"a", b"b"])


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("buffer", [bytearray, memoryview])
def test_any_buffer_is_a_payload(kind: Accumulator, buffer: Any) -> None:
    plain, other = kind(), kind()
    plain.append(NOW, b"key", b"value", [("h", b"x")])
    plain.append(NOW, b"key", b"value")
    other.append(NOW, buffer(b"key"), buffer(b"value"), [("h", buffer(b"x"))])
    other.extend(NOW, [buffer(b"value")], [buffer(b"key")])
    assert other.take() == plain.take()


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("key", "value", "header"),
    [
        ("text", b"", ("h", b"")),
        (b"", 5, ("h", b"")),
        (b"", b"", ("h", 5)),
        (b"", b"", (None, b"")),
    ],
)
def test_a_record_that_cannot_be_written_leaves_no_trace(
    kind: Accumulator, key: Any, value: Any, header: Any
) -> None:
    batch = kind()
    batch.append(NOW, b"k", b"v")
    before = state(batch)
    with pytest.raises((TypeError, AttributeError)):
        batch.append(NOW, key, value, [("first", b"1"), header])
    assert state(batch) == before
    batch.append(NOW, b"k", b"v")
    assert batch.record_count == 2


@pytest.mark.parametrize("kind", BOTH)
def test_timestamps_may_go_back_but_not_out_of_range(kind: Accumulator) -> None:
    batch = kind()
    for timestamp in (5, 2**63 - 1, -1, 3):
        batch.append(timestamp, None, b"")
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (5, 2**63 - 1)
    for first, second in ((2**63 - 1, -2), (-2, 2**63 - 1), (-(2**63), 0), (1, -(2**63))):
        apart = kind()
        apart.append(first, None, b"")
        with pytest.raises(AssertionError):
            apart.append(second, None, b"")


@pytest.mark.parametrize("kind", BOTH)
def test_gaps_stay_within_the_offsets_of_a_batch(kind: Accumulator) -> None:
    batch = kind()
    batch.append(NOW, None, b"")
    with pytest.raises(AssertionError):
        batch.leave_gap(-1)
    with pytest.raises(AssertionError):
        batch.leave_gap(2**31 - 1)
    batch.leave_gap(2**31 - 2)
    batch.append(NOW, None, b"")
    with pytest.raises(AssertionError):
        batch.append(NOW, None, b"")
    assert batch.next_offset_delta == 2**31


@pytest.mark.parametrize("kind", BOTH)
def test_a_taken_batch_is_not_reused(kind: Accumulator) -> None:
    batch = kind()
    batch.append(NOW, None, b"value")
    taken = batch.take()
    assert taken[:HEADER_BYTES] == bytes(HEADER_BYTES)
    assert batch.size_bytes == 0
    with pytest.raises(AssertionError):
        batch.append(NOW, None, b"more")
    with pytest.raises(AssertionError):
        batch.take()
    taken += b"may grow"


@pytest.mark.parametrize("kind", BOTH)
def test_a_batch_grows_with_its_records(kind: Accumulator) -> None:
    batch = kind()
    value = bytes(range(256)) * 40
    for _ in range(20):
        batch.append(NOW, None, value)
    assert batch.take().count(value) == 20


def test_a_header_says_what_the_builder_was_told() -> None:
    builder = BatchBuilder(
        producer_id=4_000_000_000,
        producer_epoch=17,
        base_sequence=100,
        is_transactional=True,
        base_offset=1 << 40,
        leader_epoch=6,
    )
    for timestamp in (50, 40, 70, 60):
        builder.append(timestamp, None, b"value")
    assert builder.record_count == 4
    batch = batch_at(builder.build())
    batch.check_crc()
    batch.check_gapless()
    assert (batch.base_offset, batch.last_offset_delta, batch.record_count) == (1 << 40, 3, 4)
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (50, 70)
    assert (batch.producer_id, batch.producer_epoch) == (4_000_000_000, 17)
    assert (batch.base_sequence, batch.last_sequence) == (100, 103)
    assert batch.partition_leader_epoch == 6
    assert batch.is_transactional
    assert not batch.is_control
    assert not batch.is_log_append_time


def test_log_append_time_is_in_the_header_alone() -> None:
    builder = BatchBuilder(log_append_time_ms=9)
    builder.append(50, None, b"value")
    batch = batch_at(builder.build())
    assert batch.is_log_append_time
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (50, 9)


def test_the_size_so_far_is_the_size_of_an_uncompressed_batch() -> None:
    builder = BatchBuilder()
    assert builder.size_bytes == HEADER_BYTES
    builder.append(NOW, b"key", b"value", [("header", None)])
    size_bytes = builder.size_bytes
    assert len(builder.build()) == size_bytes


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_compression_shrinks_what_repeats_and_is_kept_where_it_does_not(codec: Compression) -> None:
    many = BatchBuilder(compression=codec)
    many.extend(NOW, [b"value" * 20] * 100)
    assert len(many.build()) < 2000
    one = BatchBuilder(compression=codec)
    one.append(NOW, None, b"?")
    size_bytes = one.size_bytes
    batch = batch_at(one.build())
    assert batch.size_bytes > size_bytes
    assert batch.compression is codec
    assert batch.has_valid_crc()
    assert records_of(batch) == [Record(0, NOW, None, b"?")]


def test_a_level_reaches_the_codec() -> None:
    sizes = []
    for level in (1, 9):
        builder = BatchBuilder(compression=Compression.GZIP, compression_level=level)
        builder.extend(NOW, [str(number * 7919 % 10007).encode() for number in range(2000)])
        sizes.append(len(builder.build()))
    assert sizes[0] != sizes[1]


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(AssertionError):
        BatchBuilder().build()
    with pytest.raises(AssertionError):
        build_batch([])


def test_a_batch_is_built_once() -> None:
    builder = BatchBuilder()
    builder.append(NOW, None, b"value")
    builder.build()
    with pytest.raises(AssertionError):
        builder.build()


def test_records_must_be_in_order() -> None:
    with pytest.raises(AssertionError):
        build_batch([Record(5, NOW, None, b""), Record(5, NOW, None, b"")])


@given(payloads, payloads, headers)
def test_the_bound_on_a_records_size_holds_and_is_close(
    key: bytes | None, value: bytes | None, record_headers: tuple[RecordHeader, ...]
) -> None:
    builder = BatchBuilder()
    builder.append(NOW, b"first", None)
    before = builder.size_bytes
    builder.append(0, key, value, record_headers)
    actual = builder.size_bytes - before
    bound = record_bytes_max(key, value, record_headers)
    assert actual <= bound <= actual + 29 + 8 * len(record_headers)


@pytest.mark.parametrize("kind", BOTH)
@given(records=record_lists(with_gaps=False))
def test_many_at_once_with_headers_are_the_same_as_one_by_one(
    kind: Accumulator, records: list[Record]
) -> None:
    one_by_one, at_once = kind(), kind()
    for record in records:
        one_by_one.append(record.timestamp_ms, record.key, record.value, plain(record))
    taken = at_once.extend(
        [record.timestamp_ms for record in records],
        [record.value for record in records],
        [record.key for record in records],
        [plain(record) for record in records],
    )
    assert taken == len(records)
    assert state(at_once) == state(one_by_one)
    encoded = at_once.take()
    taken_over = kind.of_encoded(
        encoded, len(records), one_by_one.base_timestamp_ms, one_by_one.max_timestamp_ms
    )
    assert state(taken_over) == state(one_by_one)
    assert taken_over.take() == one_by_one.take()
