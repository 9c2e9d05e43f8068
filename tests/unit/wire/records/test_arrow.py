import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records import _arrow_python, arrow
from ottla.wire.records.batch import HEADER_BYTES, RecordBatch, batch_at, batches, write_crc
from ottla.wire.records.builder import build_batch
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.control import ControlType, end_txn_marker
from ottla.wire.records.record import Record, RecordHeader, records_of
from tests.examples import examples
from tests.record_strategies import record_lists

try:
    from ottla.wire.records import _arrow
except ImportError:  # without a compiler there is only the fallback
    _arrow = _arrow_python
BOTH = [_arrow.Columns, _arrow_python.Columns]
IDS = ["compiled", "plain"]
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ALL = [*arrow.schema().names, "headers"]

NOW_MS = 1_700_000_000_000
PLAIN = Record(40, NOW_MS, b"key", b"value", (RecordHeader("h", b"x"), RecordHeader("é", None)))
TOMBSTONE = Record(41, NOW_MS - 10, b"key", None)
EMPTY = Record(45, NOW_MS + 300, None, b"", (RecordHeader("", b""),))
RECORDS = [PLAIN, TOMBSTONE, EMPTY]

Row = tuple[Any, ...]


@contextmanager
def reading_with(core: type) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "Columns", core)
        yield


def read(core: type, data: Any, **options: Any) -> pa.RecordBatch:
    """Read everything, by default with headers, and let Arrow validate the result."""
    with reading_with(core):
        found = arrow.to_arrow(data, "orders", 3, **{"columns": ALL} | options)
    found.validate(full=True)
    return found


def rows_of(found: pa.RecordBatch) -> list[Row]:
    """Return rows as tuples, with timestamps as numbers, for a wider range than datetimes."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in found.columns
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def expected_rows(data: bytes | bytearray) -> list[Row]:
    """Return the result of `records_of` for the same bytes."""
    return [
        (
            record.key,
            record.value,
            "orders",
            3,
            record.offset,
            record.timestamp_ms * 1000 if abs(record.timestamp_ms) < 2**53 else None,
            int(batch.is_log_append_time),
            [header._asdict() for header in record.headers] or None,
        )
        for batch in batches(data)
        for record in records_of(batch)
    ]


def outcome(core: type, data: Any, **options: Any) -> Any:
    return ending(lambda: rows_of(read(core, data, **options)))


def ending(work: Callable[[], list[Row]]) -> Any:
    """Return the rows or the protocol error; other exceptions propagate."""
    try:
        return work()
    except ProtocolError as error:
        return error.code, error.detail


def sealed(raw: bytes | bytearray, *fields: tuple[str, int, int]) -> bytearray:
    """Overwrite fields of one batch, and correct its CRC."""
    copy = bytearray(raw)
    for layout, position, number in fields:
        struct.pack_into(layout, copy, position, number)
    write_crc(memoryview(copy))
    return copy


def batch_of(*offsets: int, **options: Any) -> bytearray:
    records = [Record(offset, NOW_MS, None, b"%d" % offset) for offset in offsets]
    return build_batch(records, **options)


@st.composite
def fetched(draw: st.DrawFn) -> bytes:
    """Some batches, one after another, of any codec and kind of timestamp."""
    return b"".join(
        build_batch(
            draw(record_lists()),
            compression=draw(st.sampled_from(Compression)),
            log_append_time_ms=draw(st.none() | st.integers(-1, 2**45)),
        )
        for _ in range(draw(st.integers(0, 4)))
    )


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    assert [(field.name, str(field.type)) for field in arrow.schema(include_headers=True)] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[us, tz=UTC]"),
        ("timestampType", "int32"),
        ("headers", "list<element: struct<key: string, value: binary>>"),
    ]
    assert arrow.schema().names == ALL[:-1]


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@UNHURRIED
@given(data=fetched())
def test_rows_are_the_records_that_records_of_reads(core: type, data: bytes) -> None:
    found = read(core, data)
    assert found.schema.equals(arrow.schema(include_headers=True), check_metadata=True)
    assert rows_of(found) == expected_rows(data)


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@pytest.mark.parametrize("codec", Compression)
def test_each_codec_is_read(core: type, codec: Compression) -> None:
    data = build_batch(RECORDS, compression=codec)
    assert rows_of(read(core, data)) == expected_rows(build_batch(RECORDS))


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@pytest.mark.parametrize("data", [b"", memoryview(b""), bytearray(5), batch_of(1)[:-1]])
def test_nothing_to_read_is_an_empty_batch_of_the_same_schema(core: type, data: Any) -> None:
    found = read(core, data, columns=None)
    assert found.num_rows == 0
    assert found.schema == arrow.schema()


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_a_partial_batch_at_the_end_is_left_out(core: type) -> None:
    whole, cut = build_batch(RECORDS), batch_of(50, 51)
    for size in (0, 11, 12, 16, 17, 60, 61, len(cut) - 1):
        assert rows_of(read(core, whole + cut[:size])) == expected_rows(whole)
    assert read(core, whole + cut).num_rows == 5


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@UNHURRIED
@given(
    data=st.lists(st.sampled_from(Compression), min_size=1, max_size=3),
    start=st.none() | st.integers(0, 16),
    end=st.none() | st.integers(0, 16),
)
def test_records_out_of_the_range_are_left_out(
    core: type, data: list[Compression], start: int | None, end: int | None
) -> None:
    raw = b"".join(
        batch_of(*range(4 * index + 2, 4 * index + 6), compression=codec)
        for index, codec in enumerate(data)
    )
    offsets = read(core, raw, start_offset=start, end_offset=end)["offset"].to_pylist()
    everything = range(2, 4 * len(data) + 2)
    assert offsets == [
        offset
        for offset in everything
        if offset >= (0 if start is None else start) and offset < (99 if end is None else end)
    ]


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_the_greatest_offset_is_in_the_range_of_all_offsets(core: type) -> None:
    data = batch_of(2**63 - 2, 2**63 - 1)
    assert read(core, data)["offset"].to_pylist() == [2**63 - 2, 2**63 - 1]
    beyond = sealed(data, (">q", 0, 2**63 - 1))
    assert outcome(core, beyond)[0] is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@UNHURRIED
@given(data=fetched(), names=st.sets(st.sampled_from(ALL), min_size=1))
def test_only_the_named_columns_are_made(core: type, data: bytes, names: set[str]) -> None:
    found = read(core, data, columns=names)
    assert found.schema.names == [name for name in ALL if name in names]
    assert found == read(core, data).select(found.schema.names)


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_control_batches_are_left_out(core: type) -> None:
    marker = end_txn_marker(ControlType.ABORT, 1, 1000, 0, NOW_MS)
    batch_at(marker).restamp(2, 0)
    found = read(core, batch_of(0, 1) + marker + batch_of(3, 4))
    assert found["offset"].to_pylist() == [0, 1, 3, 4]


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_aborted_batches_can_be_skipped_up_to_their_marker(core: type) -> None:
    aborted = {7}

    def is_aborted(batch: RecordBatch) -> bool:
        if batch.is_control:
            aborted.discard(batch.producer_id)
        return batch.producer_id in aborted

    marker = end_txn_marker(ControlType.ABORT, 1, 7, 0, NOW_MS)
    batch_at(marker).restamp(3, 0)
    mine, other = {"producer_id": 7}, {"producer_id": 8}
    data = batch_of(1, **mine) + batch_of(2, **other) + marker + batch_of(4, **mine)
    found = read(core, data, skip=is_aborted)
    assert found["offset"].to_pylist() == [2, 4]


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_log_append_time_is_the_time_of_every_record(core: type) -> None:
    found = read(core, build_batch(RECORDS, log_append_time_ms=5) + batch_of(50))
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [5000] * 3 + [NOW_MS * 1000]
    assert found["timestampType"].to_pylist() == [1, 1, 1, 0]


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_a_time_too_far_for_microseconds_is_null(core: type) -> None:
    most = (2**63 - 1) // 1000
    times = [0, most, most + 1, -most, -most - 1, -1]
    data = build_batch([Record(*item, None, None) for item in enumerate(times)])
    found = read(core, data)["timestamp"]
    assert found.cast(pa.int64()).to_pylist() == [0, most * 1000, None, -most * 1000, None, -1000]
    late = build_batch(RECORDS, log_append_time_ms=2**63 - 1)
    assert read(core, late)["timestamp"].null_count == 3


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_flipped_bit_is_found_unless_checksums_are_trusted(
    core: type, codec: Compression
) -> None:
    good = batch_of(1, 2)
    bad = batch_of(3, 4, compression=codec)
    bad[17] ^= 1
    assert outcome(core, good + bad)[0] is ErrorCode.CORRUPT_MESSAGE
    assert read(core, good + bad, check_crcs=False).num_rows == 4
    assert read(core, good + bad, end_offset=3).num_rows == 2


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@pytest.mark.parametrize("base_ms", [-1, 0, 1])
@pytest.mark.parametrize(
    "section",
    [
        b"\x0c\0\0\0\1\1\0",  # valid
        b"\x14\0\x80\0\x80\x80\0\1\1\x80\0",  # varints longer than necessary
        b"\x1e\0" + b"\xff" * 9 + b"\1\0\1\1\0",  # the least timestamp delta
        b"\x1e\0\xfe" + b"\xff" * 8 + b"\1\0\1\1\0",  # the greatest timestamp delta
        b"\x1e\0" + b"\x80" * 9 + b"\2\0\1\1\0",  # a timestamp delta of 65 bits
        b"\x14\0\0\x80\x80\x80\x80\x10\1\1\0",  # an offset delta of 33 bits
        b"\x0c\0\0\1\1\1\0",  # a negative offset delta
        b"\x0c\0\0\2\1\1\0",  # an offset delta that is too large
        b"\x0c\0\0\0\3\1\0",  # a key of -2 bytes
        b"\x0c\0\0\0\1\3\0",  # a value of -2 bytes
        b"\x0c\0\0\0\1\2\0",  # a value that takes the header count for itself
        b"\x0c\0\0\0\1\1\1",  # -1 headers
        b"\x10\0\0\0\1\1\2\1\1",  # a header without a key
        b"\x12\0\0\0\1\1\2\2\xff\1",  # a header key that is not text
        b"\x14\0\0\0\1\1\2\4\xc3\xa9\1",  # a header key of one character in two bytes
        b"\x0e\0\0\0\1\1\0\0",  # a byte more than the record has
        b"\x0c\0\0\0\1\1\0\0",  # a byte more than the batch has
        b"\0\0\0\0\0\0\0",  # no attributes
    ],
)
def test_odd_records_are_read_or_refused_as_by_records_of(
    core: type, base_ms: int, section: bytes
) -> None:
    raw = batch_of(0)[:HEADER_BYTES] + section
    data = sealed(raw, (">i", 8, len(raw) - 12), (">q", 27, base_ms))
    assert outcome(core, data) == ending(lambda: expected_rows(data))


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@pytest.mark.parametrize(("count", "last"), [(0, -2), (0, -1), (0, 5), (1, -1), (-1, 0)])
def test_a_header_counts_its_records_or_is_refused(core: type, count: int, last: int) -> None:
    section = b"\x0c\0\0\0\1\1\0" * max(count, 0)
    raw = batch_of(0)[:HEADER_BYTES] + section
    data = sealed(raw, (">i", 8, len(raw) - 12), (">i", 23, last), (">i", 57, count))
    assert outcome(core, data) == ending(lambda: expected_rows(data))


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_an_old_message_set_is_refused_by_its_name(core: type) -> None:
    data = sealed(batch_of(1), (">b", 16, 1))
    assert outcome(core, data)[0] is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_an_arrow_batch_is_finished_before_it_is_too_large(core: type) -> None:
    one = len(batch_of(1)) - HEADER_BYTES
    codecs = [Compression.NONE, Compression.LZ4]
    data = b"".join(batch_of(offset, compression=codecs[offset % 2]) for offset in range(1, 8))
    for limit, sizes in [(1, [1] * 7), (one, [1] * 7), (3 * one, [3, 3, 1]), (9 * one, [7])]:
        with reading_with(core):
            found = list(arrow.arrow_batches(data, "t", 0, arrow_batch_bytes_max=limit))
        assert [batch.num_rows for batch in found] == sizes


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_batches_without_a_wanted_record_take_no_room_for_good(core: type) -> None:
    with_gap = build_batch([Record(0, 0, None, b"x" * 90), Record(9, 0, None, b"x" * 90)])
    with reading_with(core):
        found = arrow.arrow_batches(
            with_gap * 9, "t", 0, start_offset=4, end_offset=6, arrow_batch_bytes_max=300
        )
        assert list(found) == []


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_more_than_arrow_can_count_is_refused(core: type, monkeypatch: pytest.MonkeyPatch) -> None:
    data = batch_of(*range(10)) + batch_of(*range(10, 20))
    monkeypatch.setattr(arrow, "ARROW_BYTES_MAX", len(data) - 2 * HEADER_BYTES)
    assert read(core, data).num_rows == 20
    monkeypatch.setattr(arrow, "ARROW_BYTES_MAX", len(data) - 2 * HEADER_BYTES - 1)
    assert outcome(core, data)[0] is ErrorCode.RECORD_LIST_TOO_LARGE
    monkeypatch.setattr(arrow, "ARROW_BYTES_MAX", len(batch_of(*range(10))))
    one = batch_of(*range(10)), "t" * 100, 0
    assert arrow.to_arrow(*one, columns=["offset"]).num_rows == 10
    with pytest.raises(ProtocolError, match="topic"):
        arrow.to_arrow(*one)


@pytest.mark.parametrize("claim", [4, 10**6, 2**31 - 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_claimed_count_allocates_nothing(
    claim: int, codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def allocate(size: int) -> pa.Buffer:
        sizes.append(size)
        return pa.allocate_buffer(size, resizable=True)

    monkeypatch.setattr(arrow, "_allocate", allocate)
    data = sealed(build_batch(RECORDS, compression=codec), (">i", 23, 2**31 - 1), (">i", 57, claim))
    code, detail = outcome(_arrow.Columns, data)
    assert code is ErrorCode.INVALID_RECORD
    assert detail.startswith("record 3, byte ")
    assert sum(sizes) < 16 * len(build_batch(RECORDS))


def agree(data: bytes | bytearray) -> None:
    """Compare the compiled reader and the fallback on the same bytes, damaged or not."""
    for check_crcs in (True, False):
        compiled, plain = (outcome(core, data, check_crcs=check_crcs) for core in BOTH)
        assert compiled == plain


def test_no_single_wrong_byte_does_more_than_a_protocol_error() -> None:
    raw = bytes(build_batch(RECORDS))
    for position in range(len(raw)):
        for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF, raw[position] ^ 1):
            agree(raw[:position] + bytes([byte]) + raw[position + 1 :] + batch_of(60))


@pytest.mark.usefixtures("needs_compiled_loops")
@settings(UNHURRIED, max_examples=examples(250))
@given(
    records=record_lists(),
    edits=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 3), st.binary(max_size=12))),
    tail=st.sampled_from([b"", batch_of(60), batch_of(60, compression=Compression.LZ4)]),
)
def test_compiled_and_plain_readers_agree_on_any_damage(
    records: list[Record], edits: list[tuple[int, int, bytes]], tail: bytes
) -> None:
    raw = bytes(build_batch(records))
    for position, removed, inserted in edits:
        at = HEADER_BYTES + position % (len(raw) - HEADER_BYTES + 1)
        raw = raw[:at] + inserted + raw[at + removed :]
    agree(sealed(raw, (">i", 8, len(raw) - 12)) + tail)


@pytest.mark.usefixtures("needs_compiled_loops")
@UNHURRIED
@given(noise=st.binary(max_size=60), record_count=st.integers(0, 4))
def test_noise_is_read_alike(noise: bytes, record_count: int) -> None:
    raw = batch_of(1)[:HEADER_BYTES] + noise
    agree(sealed(raw, (">i", 8, len(raw) - 12), (">i", 23, 99), (">i", 57, record_count)))
    agree(noise)
