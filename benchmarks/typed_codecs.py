"""Values of schemas to Arrow columns and back, beside the Python libraries for these formats.

An order has six fields: long, string, double, timestamp in microseconds, boolean, nullable string.
Each value follows the five bytes of the registry's prefix. A format is a function that yields its
cases from the same rows; FORMATS lists the functions.
"""

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.json

from benchmarks.comparison import MILLION_RECORDS, Case, Peer
from ottla.schemas.arrow import _avro_decode_python, _avro_encode_python
from ottla.schemas.arrow.arrow_codec import ArrowDecoder, ArrowEncoder
from ottla.schemas.arrow.avro_arrow import AvroArrowDecoder, AvroArrowEncoder
from ottla.schemas.arrow.json_arrow import JsonArrowDecoder, JsonArrowEncoder
from ottla.schemas.arrow.protobuf_arrow import ProtobufArrowDecoder, ProtobufArrowEncoder
from ottla.schemas.avro.avro_schema import parse_avro
from ottla.schemas.json_schema.json_schema import parse_json_schema
from ottla.schemas.protobuf.protobuf_schema import parse_protobuf

TITLE = "Values of schemas to Arrow and back, beside fastavro, pyarrow.json and protobuf"
RECORDS: Final = 32_000
PREFIX: Final = b"\0\0\0\0\7"
BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
SIX_COLUMNS: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("price", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("paid", pa.bool_()),
        ("note", pa.string()),
    ]
)
ROWS: Final[list[dict[str, Any]]] = [
    {
        "id": number * 1000,
        "customer": f"customer-{number % 1000}",
        "price": number * 0.5,
        "at": BEGAN + timedelta(seconds=number),
        "paid": number % 3 == 0,
        "note": None if number % 2 else f"a note about {number}",
    }
    for number in range(RECORDS)
]
AVRO: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}

JSON_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "customer": {"type": "string"},
        "price": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "paid": {"type": "boolean"},
        "note": {"type": ["null", "string"]},
    },
}
PROTOBUF: Final = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  string customer = 2;
  double price = 3;
  google.protobuf.Timestamp at = 4;
  bool paid = 5;
  optional string note = 6;
}
"""
FIRST_MESSAGE: Final = b"\0"
"""The message index of Protobuf, after the prefix."""


def cases() -> Iterator[Case]:
    """Yield the work of all formats."""
    for form in FORMATS:
        yield from form()


def decode(decoder: ArrowDecoder, values: pa.Array, prefix: bytes = PREFIX) -> pa.RecordBatch:
    """Decode as a consumer does, after the prefix; every value is sound."""
    found = decoder.decode(values, len(prefix))
    assert not found.errors
    return found.batch


def encode(encoder: ArrowEncoder, batch: pa.RecordBatch, prefix: bytes = PREFIX) -> pa.Array:
    """Encode as a producer does, behind the prefix."""
    return encoder.encode(batch, prefix)


def _avro() -> Iterator[Case]:
    definition = fastavro.parse_schema(AVRO)
    schema = parse_avro(json.dumps(AVRO))
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SIX_COLUMNS)
    values = write_by_fastavro(definition, batch)
    decoder, encoder = AvroArrowDecoder(schema, schema), AvroArrowEncoder(schema, SIX_COLUMNS)
    plain_decoder, plain_encoder = (
        AvroArrowDecoder(schema, schema),
        AvroArrowEncoder(schema, SIX_COLUMNS),
    )
    plain_decoder._decoder = _avro_decode_python.Decoder(plain_decoder._program)  # noqa: SLF001
    plain_encoder._encoder = _avro_encode_python.Encoder(plain_encoder._program)  # noqa: SLF001
    assert decode(decoder, values) == decode(plain_decoder, values) == batch
    assert encode(encoder, batch) == encode(plain_encoder, batch) == values
    assert read_by_fastavro(definition, values) == batch
    reading = Peer("fastavro + pyarrow", partial(read_by_fastavro, definition, values))
    yield _case("Avro to Arrow", partial(decode, decoder, values), reading, asked=3)
    yield _case("Avro to Arrow, plain Python", partial(decode, plain_decoder, values))
    writing = Peer("fastavro + pyarrow", partial(write_by_fastavro, definition, batch))
    yield _case("Arrow to Avro", partial(encode, encoder, batch), writing)
    yield _case("Arrow to Avro, plain Python", partial(encode, plain_encoder, batch))


def _json() -> Iterator[Case]:
    schema = parse_json_schema(json.dumps(JSON_SCHEMA))
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SIX_COLUMNS)
    encoder = JsonArrowEncoder(schema, SIX_COLUMNS)
    decoder = JsonArrowDecoder(schema)
    values = encode(encoder, batch)
    lines = b"\n".join(value[len(PREFIX) :] for value in values.to_pylist())
    assert decode(decoder, values) == batch
    assert read_by_pyarrow(lines).num_rows == RECORDS
    # Without the prefixes, and in one piece: more than a reader of records has.
    reading = Peer("pyarrow.json, lines", partial(read_by_pyarrow, lines))
    yield _case("JSON to Arrow", partial(decode, decoder, values), reading, asked=1)
    yield _case("Arrow to JSON", partial(encode, encoder, batch))
    objects = JsonArrowEncoder(schema, SIX_COLUMNS)
    objects._rows = None  # noqa: SLF001
    yield _case("Arrow to JSON, Python objects", partial(encode, objects, batch))


def _protobuf() -> Iterator[Case]:
    schema = parse_protobuf(PROTOBUF)
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SIX_COLUMNS)
    encoder = ProtobufArrowEncoder(schema, SIX_COLUMNS)
    decoder = ProtobufArrowDecoder(schema, schema)
    prefix = PREFIX + FIRST_MESSAGE
    values = encode(encoder, batch, prefix)
    assert decode(decoder, values, prefix).to_pylist() == ROWS
    message = schema.message_class("Order")
    assert read_by_protobuf(message, values) == batch
    reading = Peer("protobuf + pyarrow", partial(read_by_protobuf, message, values))
    yield _case("Protobuf to Arrow", partial(decode, decoder, values, prefix), reading, asked=3)
    yield _case("Arrow to Protobuf", partial(encode, encoder, batch, prefix))
    objects = ProtobufArrowEncoder(schema, SIX_COLUMNS)
    objects._rows = None  # noqa: SLF001
    yield _case("Arrow to Protobuf, Python objects", partial(encode, objects, batch, prefix))


def _case(
    work: str,
    ours: Callable[[], object],
    theirs: Peer | None = None,
    asked: float | None = None,
) -> Case:
    peers = () if theirs is None else (theirs,)
    return Case(
        work=f"{work}, six fields",
        unit=MILLION_RECORDS,
        ours=ours,
        amount=RECORDS,
        asked=asked,
        peers=peers,
    )


def read_by_fastavro(definition: Any, values: pa.Array) -> pa.RecordBatch:
    """Make the same Arrow batch out of fastavro's records."""
    rows = []
    for value in values.to_pylist():
        content = io.BytesIO(value)
        content.seek(len(PREFIX))
        rows.append(fastavro.schemaless_reader(content, definition, None))
    return pa.RecordBatch.from_pylist(rows, schema=SIX_COLUMNS)


def write_by_fastavro(definition: Any, batch: pa.RecordBatch) -> pa.Array:
    """Write the rows of a batch by fastavro."""
    values = []
    for row in batch.to_pylist():
        content = io.BytesIO(PREFIX)
        content.seek(len(PREFIX))
        fastavro.schemaless_writer(content, definition, row)
        values.append(content.getvalue())
    return pa.array(values, pa.binary())


def read_by_pyarrow(lines: bytes) -> pa.Table:
    """Read lines of JSON by pyarrow."""
    options = pyarrow.json.ParseOptions(explicit_schema=SIX_COLUMNS)
    return pyarrow.json.read_json(io.BytesIO(lines), parse_options=options)


def read_by_protobuf(message: Any, values: pa.Array) -> pa.RecordBatch:
    """Make the same Arrow batch out of Protobuf's messages."""
    rows = []
    for value in values.to_pylist():
        order = message.FromString(value[len(PREFIX) + len(FIRST_MESSAGE) :])
        rows.append(
            {
                "id": order.id,
                "customer": order.customer,
                "price": order.price,
                "at": order.at.ToDatetime(UTC),
                "paid": order.paid,
                "note": order.note if order.HasField("note") else None,
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=SIX_COLUMNS)


FORMATS: Final = (_avro, _json, _protobuf)
