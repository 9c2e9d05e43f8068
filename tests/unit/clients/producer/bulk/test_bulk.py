"""Bulk encoding: compiled code and fallback sort, read and encode alike; order is kept."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clients.producer.bulk import _bulk_python, bulk
from ottla.clients.records.partitioner import partition_for_key
from ottla.wire.records._arrow_rows_python import StringBuffers
from ottla.wire.records.batch import batch_at
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.loops import RecordAccumulator
from ottla.wire.records.record import records_of

try:
    from ottla.clients.producer.bulk import _bulk
except ImportError:  # without a compiler there is only the fallback
    _bulk = _bulk_python
BOTH = [_bulk, _bulk_python]
NOW_MS = 1_700_000_000_000
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
ROWS = st.lists(
    st.one_of(
        st.none(),
        st.binary(max_size=20),
        st.text(max_size=5),
        st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9)),
        st.fixed_dictionaries(
            {"value": st.none() | st.binary(max_size=9)},
            optional={
                "key": st.none() | st.binary(max_size=9),
                "headers": HEADERS,
                "timestamp": st.none() | st.integers(0, 2**41),
                "partition": st.none() | st.integers(0, 2),
            },
        ),
    ),
    max_size=60,
)


@pytest.fixture(params=BOTH, ids=["compiled", "python"])
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("group_arrow_rows", "group_rows", "picked", "read_columns"):
        monkeypatch.setattr(bulk, name, getattr(request.param, name))
    found: ModuleType = request.param
    return found


def target(partition_count: int = 3, batch_bytes_max: int = 200, **more: Any) -> bulk.Target:
    return bulk.Target(partition_count, batch_bytes_max, lambda: NOW_MS, **more)


def decoded(records: RecordAccumulator) -> list[tuple[Any, ...]]:
    builder = BatchBuilder.of_encoded(
        records.take(), records.record_count, records.base_timestamp_ms, records.max_timestamp_ms
    )
    return [
        (record.key, record.value, list(record.headers), record.timestamp_ms)
        for record in records_of(batch_at(builder.build()))
    ]


def sent(pieces: Iterator[bulk.Piece]) -> dict[int | None, list[tuple[Any, ...]]]:
    found: dict[int | None, list[tuple[Any, ...]]] = {}
    for piece in pieces:
        assert 0 <= piece.first_row <= piece.last_row
        found.setdefault(piece.partition, []).extend(decoded(piece.records))
    return found


def expected_of(rows: list[Any], partition_count: int) -> dict[int | None, list[tuple[Any, ...]]]:
    """Return the records per partition, as if each row were sent alone."""
    found: dict[int | None, list[tuple[Any, ...]]] = {}
    for row in rows:
        record = row if isinstance(row, dict) else {"value": row}
        if isinstance(row, tuple):
            record = {"key": row[0], "value": row[1]}
        value = record.get("value")
        value = value.encode() if isinstance(value, str) else value
        key, partition = record.get("key"), record.get("partition")
        if partition is None and key is not None:
            partition = partition_for_key(key, partition_count)
        timestamp = record.get("timestamp")
        cells = (key, value, list(record.get("headers") or ()), timestamp)
        if timestamp is None:
            cells = (*cells[:3], NOW_MS)
        found.setdefault(partition, []).append(cells)
    return found


@settings(deadline=None)
@given(ROWS)
def test_rows_of_any_form_come_to_the_same_records_in_order(rows: list[Any]) -> None:
    for module in BOTH:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("group_rows", "picked", "read_columns"):
                patch.setattr(bulk, name, getattr(module, name))
            patch.setattr(bulk, "ROWS_MAX", 7)
            found = sent(bulk.pieces_of_records(iter(rows), target(), None, None))
        assert found == expected_of(rows, 3)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=9),
            st.none() | st.binary(max_size=9),
            st.none() | st.integers(0, 2),
            st.none() | st.integers(0, 2**41),
            HEADERS,
        ),
        min_size=1,
        max_size=40,
    ),
    st.booleans(),
    st.integers(0, 3),
)
def test_arrow_comes_to_the_same_as_rows(
    rows: list[tuple[Any, ...]], is_large: bool, skipped: int
) -> None:
    binary = pa.large_binary() if is_large else pa.binary()
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "key": pa.array([row[0] for row in rows], binary),
            "value": pa.array([row[1] for row in rows], binary),
            "partition": pa.array([row[2] for row in rows], pa.int64()),
            "timestamp": pa.array([row[3] for row in rows], pa.timestamp("ms")),
            "headers": pa.array(
                [[{"key": key, "value": value} for key, value in row[4]] for row in rows], headers
            ),
        }
    ).slice(skipped)
    names = ("key", "value", "partition", "timestamp", "headers")
    wanted = expected_of([dict(zip(names, row, strict=True)) for row in rows[skipped:]], 3)
    for module in BOTH:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("group_arrow_rows", "group_rows"):
                patch.setattr(bulk, name, getattr(module, name))
            assert sent(bulk.pieces_of_arrow(table, target())) == wanted


def test_no_batch_is_larger_than_allowed_but_for_a_single_row(twin: ModuleType) -> None:
    rows = [b"x" * 50] * 20 + [b"y" * 1000] + [b"z"]
    pieces = list(bulk.pieces_of_records(rows, target(batch_bytes_max=300), None, None))
    sizes = [(piece.records.size_bytes, piece.records.record_count) for piece in pieces]
    assert sum(count for _, count in sizes) == 22
    assert [count for size, count in sizes if size > 300] == [1]
    assert [piece.first_row for piece in pieces[1:]] == [
        piece.last_row + 1 for piece in pieces[:-1]
    ]


def test_nothing_is_read_before_it_is_asked_for(twin: ModuleType) -> None:
    read = 0

    def rows() -> Iterator[bytes]:
        nonlocal read
        for _ in range(1_000_000):
            read += 1
            yield b"x" * 1000

    pieces = bulk.pieces_of_records(rows(), target(batch_bytes_max=100_000), None, None)
    next(pieces)
    assert read * 1000 <= bulk.READ_BYTES_MAX + 1000


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ((b"k", b"v", b"more"), r"row 5: a tuple of 3 items; expected \(key, value\)"),
        ({"valeu": b"v"}, r"row 5: 'valeu' is no field of a record"),
        ({"value": b"v", "partition": 3}, r"row 5: there is no partition 3, the topic has 3"),
        ({"value": b"v", "partition": -2}, r"row 5: there is no partition -2"),
    ],
)
def test_a_row_that_is_wrong_is_named(twin: ModuleType, row: Any, says: str) -> None:
    rows = [b"fine"] * 5 + [row]
    with pytest.raises(ValueError, match=says):
        list(bulk.pieces_of_records(rows, target(), None, None))


def test_what_is_neither_bytes_nor_text_needs_a_serializer(twin: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"row 1: a value is int, and no serializer"):
        list(bulk.pieces_of_records([b"", 7], target(), None, None))
    found = sent(
        bulk.pieces_of_records([7, ("k", 8)], target(), None, lambda value, _: b"%d" % value)
    )
    assert sorted(record[1] for records in found.values() for record in records) == [b"7", b"8"]


def test_a_partitioner_of_the_applications_own_is_asked(twin: ModuleType) -> None:
    def choose(key: bytes | None) -> int | None:
        return None if key is None else len(key) % 3

    chosen = target(choose=choose)
    rows = [(b"12", b"a"), (b"1", b"b"), b"c", {"value": b"d", "key": b"1", "partition": 0}]
    wanted = {
        2: [(b"12", b"a", [], NOW_MS)],
        1: [(b"1", b"b", [], NOW_MS)],
        None: [(None, b"c", [], NOW_MS)],
        0: [(b"1", b"d", [], NOW_MS)],
    }
    assert sent(bulk.pieces_of_records(rows, chosen, None, None)) == wanted
    table = pa.table(
        {
            "key": pa.array([b"12", b"1", None, b"1"]),
            "value": pa.array([b"a", b"b", b"c", b"d"]),
            "partition": pa.array([None, None, None, 0], pa.int8()),
        }
    )
    assert sent(bulk.pieces_of_arrow(table, chosen)) == wanted


def test_a_table_with_columns_that_are_not_ours_is_refused() -> None:
    with pytest.raises(ValueError, match="columns"):
        list(bulk.pieces_of_arrow(pa.table({"value": [b"v"], "colour": ["red"]}), target()))
    with pytest.raises(ValueError, match="column partition is string"):
        list(bulk.pieces_of_arrow(pa.table({"value": [b"v"], "partition": ["x"]}), target()))
    with pytest.raises(TypeError, match="list is no table"):
        list(bulk.pieces_of_arrow([b"v"], target()))


def test_an_empty_table_and_an_empty_list_are_nothing(twin: ModuleType) -> None:
    empty = pa.table({"value": pa.array([], pa.binary()), "partition": pa.array([], pa.int32())})
    assert list(bulk.pieces_of_arrow(empty, target())) == []
    assert list(bulk.pieces_of_records([], target(), None, None)) == []


def test_arrow_buffers_that_cannot_be_right_are_refused(twin: ModuleType) -> None:
    ends = memoryview(b"".join(n.to_bytes(4, "little") for n in (0, 9, 4)))
    wrong = [
        StringBuffers(None, ends, memoryview(b"12345678"), 0, is_large=False),
        StringBuffers(None, ends[:8], memoryview(b"123456789"), 0, is_large=False),
        StringBuffers(memoryview(b""), ends, memoryview(b"123456789"), 0, is_large=False),
    ]
    for column in wrong:
        with pytest.raises(ValueError, match="an Arrow buffer is too short"):
            twin.group_arrow_rows(column, None, 2, 3, 0)
    with pytest.raises(ValueError, match="an Arrow buffer is too short"):
        twin.group_arrow_rows(None, memoryview(bytes(4)).cast("i"), 2, 3, 0)
