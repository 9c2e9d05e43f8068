import mmap
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.records import _arrow_rows_python, arrow
from ottla.wire.records._arrow_rows_python import StringBuffers
from ottla.wire.records.batch import RecordBatch, batch_at
from ottla.wire.records.builder import build_batch
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.record import Record, RecordHeader, records_of
from tests.record_strategies import record_lists

try:
    from ottla.wire.records import _arrow_rows
except ImportError:  # without a compiler there is only the fallback
    _arrow_rows = _arrow_rows_python
BOTH = [_arrow_rows.Rows, _arrow_rows_python.Rows]
IDS = ["compiled", "plain"]
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

NOW_MS = 1_700_000_000_000
HEADERS_TYPE = arrow.schema(include_headers=True).field("headers").type
NOT_TEXT = pa.StructArray.from_arrays(
    [pa.array([b"\xff"]).view(pa.string()), pa.array([b"v"])], ["key", "value"]
)
gapless_records = record_lists(with_gaps=False).map(
    lambda records: [record._replace(offset=index) for index, record in enumerate(records)]
)


@contextmanager
def writing_with(rows: type) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "Rows", rows)
        yield


def write(core: type, rows: pa.RecordBatch, **options: Any) -> list[bytearray]:
    with writing_with(core):
        return arrow.from_arrow(rows, **{"timestamp_ms": NOW_MS} | options)


def read(batch: bytes | bytearray) -> list[Record]:
    return records_of(batch_at(batch))


def table_of(records: list[Record], text: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array([record.key for record in records], text or pa.binary()),
            "value": pa.array([record.value for record in records], text or pa.binary()),
            "timestamp": pa.array([record.timestamp_ms for record in records], pa.timestamp("ms")),
            "headers": pa.array(
                [[header._asdict() for header in record.headers] or None for record in records],
                HEADERS_TYPE,
            ),
        }
    )


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@UNHURRIED
@given(records=gapless_records, codec=st.sampled_from(Compression))
def test_a_batch_has_the_bytes_that_the_builder_gives_it(
    core: type, records: list[Record], codec: Compression
) -> None:
    options: dict[str, Any] = {
        "compression": codec,
        "producer_id": 4000,
        "producer_epoch": 3,
        "base_sequence": 17,
        "is_transactional": True,
    }
    assert write(core, table_of(records), **options) == [build_batch(records, **options)]


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@UNHURRIED
@given(records=gapless_records, start=st.integers(0, 8), count=st.integers(0, 8))
def test_a_slice_is_written_like_a_copy_of_it(
    core: type, records: list[Record], start: int, count: int
) -> None:
    part = records[start : start + count]
    expected = [record._replace(offset=index) for index, record in enumerate(part)]
    written = write(core, table_of(records).slice(start, count))
    assert written == ([build_batch(expected)] if expected else [])


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@UNHURRIED
@given(records=gapless_records)
def test_what_is_written_is_read_back(core: type, records: list[Record]) -> None:
    columns = ["key", "value", "timestamp", "headers"]
    (written,) = write(core, table_of(records))
    found = arrow.to_arrow(written, "t", 0, columns=columns)
    assert found == table_of(records).cast(found.schema)
    assert write(core, found) == [written]


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@UNHURRIED
@given(records=gapless_records, batch_bytes_max=st.integers(62, 700))
def test_batches_are_as_large_as_they_may_be(
    core: type, records: list[Record], batch_bytes_max: int
) -> None:
    written = write(
        core, table_of(records), batch_bytes_max=batch_bytes_max, base_sequence=2**31 - 2
    )
    headers = [RecordBatch(memoryview(batch)) for batch in written]
    done = 0
    for header in headers:
        assert header.base_sequence == (2**31 - 2 + done) % 2**31
        assert header.size_bytes <= batch_bytes_max or header.record_count == 1
        rest = [record._replace(offset=record.offset - done) for record in records[done:]]
        assert header.raw == build_batch(
            rest[: header.record_count], base_sequence=header.base_sequence
        )
        if header.record_count < len(rest):
            assert len(build_batch(rest[: header.record_count + 1])) > batch_bytes_max
        done += header.record_count
    assert done == len(records)


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
def test_keys_and_values_may_be_binary_or_text(core: type, kind: pa.DataType) -> None:
    records = [Record(0, 5, b"k", b""), Record(1, 5, None, "é".encode()), Record(2, 5, b"", None)]
    rows = table_of(records).cast(
        pa.schema(
            [
                ("key", kind),
                ("value", kind),
                ("timestamp", pa.timestamp("s")),
                ("headers", HEADERS_TYPE),
            ]
        ),
        safe=False,
    )
    rows = rows.drop_columns(["timestamp"])
    assert write(core, rows, timestamp_ms=5) == [build_batch(records)]
    assert write(core, rows.slice(1), timestamp_ms=5) == [
        build_batch([record._replace(offset=record.offset - 1) for record in records[1:]])
    ]


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_a_column_of_nothing_but_nulls_needs_no_type(core: type) -> None:
    nulls = pa.nulls(2)
    rows = pa.record_batch({"value": nulls, "key": nulls, "timestamp": nulls, "headers": nulls})
    (written,) = write(core, rows)
    assert read(written) == [Record(0, NOW_MS, None, None), Record(1, NOW_MS, None, None)]
    assert write(core, rows.select(["value"])) == [written]


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Prague"])
@pytest.mark.parametrize(
    ("unit", "numbers", "milliseconds"),
    [
        ("s", [0, -3, 1_700_000_000], [0, -3000, 1_700_000_000_000]),
        ("ms", [0, -1, 2**62], [0, -1, 2**62]),
        ("us", [999, 1000, -1, -1000, -1001], [0, 1, -1, -1, -2]),
        ("ns", [999_999, 1_000_000, -1, -1_000_001], [0, 1, -1, -2]),
    ],
)
def test_timestamps_are_rounded_down(
    core: type, zone: str | None, unit: str, numbers: list[int], milliseconds: list[int]
) -> None:
    column = pa.array([None, *numbers], pa.timestamp(unit, zone))
    rows = pa.record_batch({"value": pa.nulls(len(column)), "timestamp": column})
    (written,) = write(core, rows)
    assert [record.timestamp_ms for record in read(written)] == [NOW_MS, *milliseconds]
    assert batch_at(written).max_timestamp_ms == max(NOW_MS, *milliseconds)
    (sliced,) = write(core, rows.slice(2))
    assert [record.timestamp_ms for record in read(sliced)] == milliseconds[1:]


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_times_too_far_apart_for_one_batch_are_in_two(core: type) -> None:
    times = [-(2**63), -1, 0, 2**63 - 1, -1]
    column = pa.array(times, pa.timestamp("ms"))
    written = write(core, pa.record_batch({"value": pa.nulls(5), "timestamp": column}))
    found = [[record.timestamp_ms for record in read(batch)] for batch in written]
    assert found == [[-(2**63), -1], [0, 2**63 - 1, -1]]


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_headers_may_hide_behind_nulls_and_slices(core: type) -> None:
    keys = pa.array(["", None, "a", "b", "c", None], pa.string())
    values = pa.array([b"", b"1", None, b"3", b"4", b"5"], pa.binary())
    entries = pa.StructArray.from_arrays([keys, values], ["key", "value"]).slice(1)
    lists = pa.ListArray.from_arrays([0, 1, 3, 3, 4, 5], entries)
    rows = pa.record_batch({"value": pa.nulls(5), "headers": lists})
    (written,) = write(core, rows.slice(1, 3))
    assert [record.headers for record in read(written)] == [
        (RecordHeader("a", None), RecordHeader("b", b"3")),
        (),
        (RecordHeader("c", b"4"),),
    ]
    with pytest.raises(ValueError, match="a header has no key"):
        write(core, rows)
    mask = pa.array([True, False, False, True, True])
    masked = pa.ListArray.from_arrays([0, 1, 3, 3, 4, 5], entries, mask=mask)
    (written,) = write(core, rows.set_column(1, "headers", masked))
    assert [len(record.headers) for record in read(written)] == [0, 2, 0, 0, 0]


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_headers_may_be_large(core: type) -> None:
    kind = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    headers = pa.array([[{"key": "k", "value": b"v"}], [], None], kind)
    (written,) = write(core, pa.record_batch({"value": pa.nulls(3), "headers": headers}))
    assert [record.headers for record in read(written)] == [(RecordHeader("k", b"v"),), (), ()]


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"key": pa.array([b"k"])}, "expected value"),
        ({"value": pa.array([b"v"]), "topic": pa.array(["t"])}, "topic"),
        ({"value": pa.array([1])}, "column value is int64"),
        ({"value": pa.array([b"v"]), "key": pa.array([0.5])}, "column key is double"),
        ({"value": pa.array([b"v"]), "timestamp": pa.array([1])}, "column timestamp is int64"),
        ({"value": pa.array([b"v"]), "headers": pa.array(["h"])}, "column headers is string"),
        ({"value": pa.array([b"v"]), "headers": pa.array([["h"]])}, "column headers is list"),
        ({"value": pa.array([b"v"]), "headers": pa.array([[{"key": "k"}]])}, "headers is list"),
        (
            {"value": pa.array([b"v"]), "headers": pa.array([[{"key": "k", "value": 1}]])},
            "headers is list",
        ),
        (
            {"value": pa.array([b"v"]), "headers": pa.ListArray.from_arrays([0, 1], NOT_TEXT)},
            "Invalid UTF8",
        ),
        (
            {"value": pa.array([b"v"]), "timestamp": pa.array([2**62], pa.timestamp("s"))},
            "out of bounds",
        ),
        (
            {"value": pa.array([b"v"]), "headers": pa.array([[None]], HEADERS_TYPE)},
            "a header has no key",
        ),
        (
            {"value": pa.array([b"v"]), "headers": pa.array([[{"value": b"v"}]], HEADERS_TYPE)},
            "a header has no key",
        ),
    ],
)
def test_columns_that_cannot_be_written_are_refused(
    core: type, columns: dict[str, pa.Array], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        write(core, pa.record_batch(columns))


def test_two_columns_of_one_name_are_refused() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"1"]), pa.array([b"2"])], ["value", "value"])
    with pytest.raises(ValueError, match="at most one"):
        arrow.from_arrow(rows, timestamp_ms=0)


def test_no_rows_are_no_batches_but_must_have_the_right_columns() -> None:
    rows = pa.record_batch({"value": pa.array([], pa.binary())})
    assert arrow.from_arrow(rows, timestamp_ms=0) == []
    with pytest.raises(ValueError, match="column value is int64"):
        arrow.from_arrow(pa.record_batch({"value": pa.array([], pa.int64())}), timestamp_ms=0)


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@pytest.mark.parametrize(
    ("ends", "content", "validity"),
    [
        ([0, 2, 1, 4], b"abcd", None),
        ([0, 2, 3, 5], b"abcd", None),
        ([-1, 2, 3, 4], b"abcd", None),
        ([0, 2, 3], b"abcd", None),
        ([0, 2, 3, 4], b"abcd", b""),
    ],
)
def test_buffers_that_cannot_be_arrows_are_refused(
    core: type, ends: list[int], content: bytes, validity: bytes | None
) -> None:
    values = StringBuffers(
        None if validity is None else memoryview(validity),
        memoryview(b"".join(end.to_bytes(4, "little", signed=True) for end in ends)),
        memoryview(content),
        0,
        is_large=False,
    )
    with pytest.raises(ValueError, match="Arrow buffer"):
        core(3, values, None, None, None, 0)


@pytest.mark.parametrize("core", BOTH, ids=IDS)
def test_a_row_too_large_for_a_record_is_refused(core: type) -> None:
    size = 2**31 - 61  # the record's own fields exceed the limit
    with mmap.mmap(-1, size) as untouched, memoryview(untouched) as content:
        ends = b"".join(end.to_bytes(8, "little") for end in (0, 0, size))
        rows = core(2, StringBuffers(None, memoryview(ends), content, 0, True), None, None, None, 0)
        assert rows.encode(0, 2**31 - 1).record_count == 1
        with pytest.raises(ValueError, match="row 1 is too large"):
            rows.encode(1, 2**31 - 1)
        del rows


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@UNHURRIED
@given(records=gapless_records, data=st.data())
def test_rows_can_be_chosen_and_put_in_order(
    core: type, records: list[Record], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(records) - 1), min_size=1, max_size=20))
    with writing_with(core):
        rows = arrow.rows_of(table_of(records), NOW_MS)
        order = memoryview(array("i", chosen))
        start = data.draw(st.integers(0, len(chosen) - 1))
        encoded = rows.encode(start, 2**31 - 1, order)
        picked = arrow.rows_of(table_of([records[row] for row in chosen]), NOW_MS)
    assert encoded == picked.encode(start, 2**31 - 1)


@pytest.mark.parametrize("core", BOTH, ids=IDS)
@pytest.mark.parametrize("wrong", [[-1], [2], [0, 2], [0, -1]])
def test_rows_that_are_not_there_are_not_read(core: type, wrong: list[int]) -> None:
    with writing_with(core):
        rows = arrow.rows_of(pa.record_batch({"value": [b"0", b"1"]}), NOW_MS)
    with pytest.raises(AssertionError, match="there is no such row"):
        rows.encode(0, 2**31 - 1, memoryview(array("i", wrong)))
