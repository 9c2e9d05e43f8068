"""Record batches as Arrow, for columnar engines, and Arrow as record batches.

Reading gives the columns of Spark's Kafka source. Spark expects these Arrow types from a Python
data source in every session time zone:

key            binary                 null if the record has no key
value          binary                 null for a tombstone
topic          string
partition      int32
offset         int64
timestamp      timestamp[us, UTC]     null outside the range of microseconds (292,000 years)
timestampType  int32                  0 CreateTime, 1 LogAppendTime
headers        list<struct<key: string, value: binary>>    null if the record has no headers

Writing takes value and, optionally, key, timestamp and headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

try:
    import pyarrow as pa
except ModuleNotFoundError:
    raise ImportError("Arrow tables need pyarrow: pip install 'ottla[arrow]'") from None

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records._arrow_rows_python import (
    NO_EPOCH,
    HeaderBuffers,
    Producer,
    StringBuffers,
    TimestampBuffers,
)
from ottla.wire.records.batch import (
    HEADER_BYTES,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    batches,
)
from ottla.wire.records.compression.codecs import Compression, compress
from ottla.wire.records.record import uncompressed_records

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from ottla.wire.records._arrow_python import ColumnBuffers, Columns
    from ottla.wire.records._arrow_rows_python import Rows
    from ottla.wire.records.batch import Buffer, RecordBatch
else:
    try:
        from ottla.wire.records._arrow import Columns
        from ottla.wire.records._arrow_rows import Rows
    except ImportError:
        from ottla.wire.records._arrow_python import Columns
        from ottla.wire.records._arrow_rows_python import Rows

ARROW_BYTES_MAX = 2**31 - 1
"""The maximum number of bytes that Arrow can count in a column."""
ARROW_BATCH_BYTES_MAX = 32 << 20
"""Of records, uncompressed; small enough for the longest topic name beside the shortest record."""
BATCH_BYTES_MAX = 1 << 20
_OFFSET_MIN = -(2**63)
_OFFSET_MAX = 2**63 - 1
_UNITS_PER_MS = {"ms": 1, "us": 1000, "ns": 1_000_000}

_HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", _HEADERS),
    ]
)
_SCHEMA_WITHOUT_HEADERS = _SCHEMA.remove(_SCHEMA.get_field_index("headers"))
_WRITTEN = ("value", "key", "timestamp", "headers")
_Buffers = tuple[StringBuffers, StringBuffers | None, HeaderBuffers | None, TimestampBuffers | None]
_allocate = partial(pa.allocate_buffer, resizable=True)


def schema(*, include_headers: bool = False) -> pa.Schema:
    """All columns, as Spark's Kafka source has them without and with its option includeHeaders."""
    return _SCHEMA if include_headers else _SCHEMA_WITHOUT_HEADERS


def to_arrow(
    data: Buffer,
    topic: str,
    partition: int,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    columns: Collection[str] | None = None,
    check_crcs: bool = True,
    skip: Callable[[RecordBatch], bool] | None = None,
) -> pa.RecordBatch:
    """Read everything that arrow_batches reads into one Arrow batch, empty if there are no records.

    ProtocolError also if the uncompressed records, or one column, have more than ARROW_BYTES_MAX
    bytes. Compressed data can grow that far, all in memory at once: for untrusted data use
    arrow_batches, which yields it in pieces.
    """
    reading = _reading(start_offset, end_offset, columns, check_crcs, skip)
    chunks = reading.chunks(memoryview(data).cast("B"), ARROW_BYTES_MAX)
    chunk = next(chunks, reading.empty())
    if next(chunks, None) is not None:
        raise _too_large("all records together")
    return _arrow_batch(chunk, reading.schema, topic.encode(), partition)


def arrow_batches(  # noqa: PLR0913 - where from, which rows, which columns
    data: Buffer,
    topic: str,
    partition: int,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    columns: Collection[str] | None = None,
    check_crcs: bool = True,
    skip: Callable[[RecordBatch], bool] | None = None,
    arrow_batch_bytes_max: int = ARROW_BATCH_BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """Read the adjacent record batches of a fetch response.

    Left out are: an incomplete batch at the end, control batches, and records with offsets outside
    the range (a fetch from inside a batch returns the whole batch). Only the named columns are
    made, in the schema's order; None names all but headers.

    `skip` is called with each batch, including control batches, and leaves out the batches for
    which it returns True. It sees them in order and after their checksum, so it may follow
    producers from an aborted transaction to its abort marker.

    An Arrow batch holds whole record batches: several as long as their uncompressed records stay
    below the limit, or a single larger one. No Arrow batch is empty.

    Malformed bytes raise ProtocolError; the Arrow batches before them are valid. check_crcs=False
    leaves out the checksums and no other check. Allocations are in proportion to the bytes present,
    not to the counts that the bytes claim.
    """
    reading = _reading(start_offset, end_offset, columns, check_crcs, skip)
    for chunk in reading.chunks(memoryview(data).cast("B"), arrow_batch_bytes_max):
        yield _arrow_batch(chunk, reading.schema, topic.encode(), partition)


def table_of(rows: list[pa.RecordBatch], columns: Collection[str] | None = None) -> pa.Table:
    """Put Arrow batches, perhaps of several partitions, into one table without a copy."""
    return pa.Table.from_batches(rows, schema() if columns is None else _pruned(columns))


@dataclass(frozen=True, slots=True)
class _Reading:
    """Which batches, records and columns to read."""

    start_offset: int
    last_offset: int
    schema: pa.Schema
    check_crcs: bool
    skip: Callable[[RecordBatch], bool] | None

    def empty(self) -> Columns:
        names = frozenset(self.schema.names)
        return Columns(names, self.start_offset, self.last_offset, _allocate)

    def chunks(self, view: memoryview, payload_bytes_max: int) -> Iterator[Columns]:
        assert 0 < payload_bytes_max <= ARROW_BYTES_MAX
        chunk, position = self.empty(), 0
        while True:
            if self.skip is None:
                position = chunk.add_run(view, position, payload_bytes_max, self.check_crcs)
            batch = next(batches(view[position:]), None)
            if batch is None:
                break
            position += batch.size_bytes
            if not self.wants(batch):
                continue
            payload = uncompressed_records(batch)
            if chunk.payload_bytes and chunk.payload_bytes + len(payload) > payload_bytes_max:
                if chunk.rows:
                    yield chunk
                chunk = self.empty()
            chunk.add_batch(batch, payload)
        if chunk.rows:
            yield chunk

    def wants(self, batch: RecordBatch) -> bool:
        is_wanted = not batch.is_control and (
            batch.base_offset <= self.last_offset and batch.last_offset >= self.start_offset
        )
        if self.check_crcs and (is_wanted or self.skip is not None):
            batch.check_crc()
        if batch.last_offset > _OFFSET_MAX:
            raise ProtocolError(
                f"batch's last offset {batch.last_offset} has more than 64 bits",
                code=ErrorCode.INVALID_RECORD,
            )
        return not (self.skip is not None and self.skip(batch)) and is_wanted


def _reading(
    start_offset: int | None,
    end_offset: int | None,
    columns: Collection[str] | None,
    check_crcs: bool,
    skip: Callable[[RecordBatch], bool] | None,
) -> _Reading:
    return _Reading(
        _OFFSET_MIN if start_offset is None else start_offset,
        _OFFSET_MAX if end_offset is None else end_offset - 1,
        schema() if columns is None else _pruned(columns),
        check_crcs,
        skip,
    )


def _pruned(columns: Collection[str]) -> pa.Schema:
    assert columns, "rows without a column could not be counted"
    assert set(columns) <= set(_SCHEMA.names), columns
    return pa.schema([field for field in _SCHEMA if field.name in columns])


def _arrow_batch(
    chunk: Columns, columns: pa.Schema, topic: bytes, partition: int
) -> pa.RecordBatch:
    assert topic
    if "topic" in columns.names and chunk.rows * len(topic) > ARROW_BYTES_MAX:
        raise _too_large("column topic")
    found = chunk.finish(topic, partition)
    arrays = [
        _array(field.type, found[field.name], _header_arrays(found))
        if field.name == "headers"
        else _array(field.type, found[field.name])
        for field in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _header_arrays(found: dict[str, ColumnBuffers]) -> list[pa.Array]:
    keys = _array(pa.string(), found["headers.key"])
    values = _array(pa.binary(), found["headers.value"])
    return [pa.Array.from_buffers(_HEADERS.value_type, len(keys), [None], children=[keys, values])]


def _array(
    kind: pa.DataType, column: ColumnBuffers, children: list[pa.Array] | None = None
) -> pa.Array:
    length, null_count, buffers = column
    arrow_buffers = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(kind, length, arrow_buffers, null_count, children=children)


def _too_large(what: str) -> ProtocolError:
    return ProtocolError(
        f"{what}: more than {ARROW_BYTES_MAX} bytes, too much for an Arrow batch",
        code=ErrorCode.RECORD_LIST_TOO_LARGE,
    )


def from_arrow(  # noqa: PLR0913 - a header has this many fields
    rows: pa.RecordBatch,
    *,
    timestamp_ms: int,
    batch_bytes_max: int = BATCH_BYTES_MAX,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> list[bytearray]:
    """Write rows as a producer's record batches, the same bytes that BatchBuilder would make.

    Columns: value (binary or string), and if present key (the same), timestamp (of any unit and
    time zone; rounded down to milliseconds) and headers (a list of structs of key and value).
    Any other column, and a type that does not fit, raises ValueError: topic and partition are
    for the caller to act on, and nothing is dropped silently. Null is a tombstone as value, no
    key as key, timestamp_ms as timestamp and no headers as headers; a header's key is never null.

    A batch ends before the row that would make it larger, uncompressed, than batch_bytes_max; a
    larger row is a batch of its own, which the broker may refuse. Every batch
    starts at offset 0. Sequence numbers continue from batch to batch.
    """
    assert HEADER_BYTES < batch_bytes_max <= ARROW_BYTES_MAX
    attributes = compression | (TRANSACTIONAL_BIT if is_transactional else 0)
    producer = Producer(producer_id, producer_epoch, base_sequence, attributes)
    buffers = _buffers(rows)
    if rows.num_rows == 0:
        return []
    source = Rows(rows.num_rows, *buffers, timestamp_ms)
    written: list[bytearray] = []
    start = 0
    while start < rows.num_rows:
        encoded = source.encode(start, batch_bytes_max)
        batch = encoded.buffer
        if compression is not Compression.NONE:
            records = memoryview(batch)[HEADER_BYTES:]
            batch = bytearray(HEADER_BYTES) + compress(compression, records, compression_level)
        producer.sign(batch, encoded, start)
        written.append(batch)
        start += encoded.record_count
    return written


def stream(source: Any) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a table, or of another object with Arrow's stream interface."""
    if not hasattr(source, "__arrow_c_stream__"):
        raise TypeError(f"{type(source).__name__} is no table: it has no __arrow_c_stream__")
    return iter(pa.RecordBatchReader.from_stream(source))


def rows_of(rows: pa.RecordBatch, timestamp_ms: int) -> Rows:
    """Return rows, of which there must be one, to be encoded; see from_arrow for the columns."""
    return Rows(rows.num_rows, *_buffers(rows), timestamp_ms)


def _buffers(rows: pa.RecordBatch) -> _Buffers:
    names = rows.schema.names
    if "value" not in names or len(set(names)) < len(names) or not set(names) <= set(_WRITTEN):
        raise ValueError(f"columns {names}: expected value and at most one each of {_WRITTEN[1:]}")
    column = dict(zip(names, rows.columns, strict=True))
    return (
        strings("value", column["value"]),
        strings("key", column["key"]) if "key" in column else None,
        _headers(column["headers"]) if "headers" in column else None,
        _timestamps(column["timestamp"]) if "timestamp" in column else None,
    )


def strings(name: str, column: pa.Array) -> StringBuffers:
    """Return the buffers of a column of binary or string; ValueError for other types."""
    if pa.types.is_null(column.type):
        column = column.cast(pa.binary())
    is_large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    if not (is_large or pa.types.is_binary(column.type) or pa.types.is_string(column.type)):
        raise ValueError(f"column {name} is {column.type}: expected binary or string")
    validity, ends, content = map(_view, column.buffers())
    return StringBuffers(
        validity if column.null_count else None, ends, content, column.offset, is_large
    )


def _timestamps(column: pa.Array) -> TimestampBuffers:
    if pa.types.is_null(column.type):
        column = column.cast(pa.timestamp("ms"))
    if not pa.types.is_timestamp(column.type):
        raise ValueError(f"column timestamp is {column.type}: expected a timestamp")
    if column.type.unit == "s":
        column = column.cast(pa.timestamp("ms", column.type.tz))
    validity, numbers = map(_view, column.buffers())
    divisor = _UNITS_PER_MS[column.type.unit]
    return TimestampBuffers(
        validity if column.null_count else None, numbers, column.offset, divisor
    )


def _headers(column: pa.Array) -> HeaderBuffers:
    refusal = ValueError(f"column headers is {column.type}: expected {_HEADERS}")
    # Arrow's cast would drop an unknown field, and invent a missing field.
    if not _has_header_fields(column.type):
        raise refusal
    try:
        headers = column.cast(_HEADERS)
    except pa.ArrowException as error:
        raise refusal from error
    keys, values = headers.values.field("key"), headers.values.field("value")
    keys.validate(full=True)
    used = headers.flatten()
    if used.null_count or used.field("key").null_count:
        raise ValueError("column headers: a header has no key")
    return HeaderBuffers(
        _view(headers.buffers()[0]) if headers.null_count else None,
        _view(headers.buffers()[1]),
        headers.offset,
        len(keys),
        strings("headers", keys),
        strings("headers", values),
    )


def _has_header_fields(kind: pa.DataType) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return bool(pa.types.is_null(kind))
    entry = kind.value_type
    return pa.types.is_struct(entry) and {field.name for field in entry} == {"key", "value"}


def _view(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(b"" if buffer is None else buffer).cast("B")
