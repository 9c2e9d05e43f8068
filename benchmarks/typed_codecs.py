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

from benchmarks.comparison import MILLION_RECORDS, Case, Peer
from ottla.schemas.arrow import _avro_decode_python, _avro_encode_python
from ottla.schemas.arrow.arrow_codec import ArrowDecoder, ArrowEncoder
from ottla.schemas.arrow.avro_arrow import AvroArrowDecoder, AvroArrowEncoder
from ottla.schemas.avro.avro_schema import parse_avro

TITLE = "Values of schemas to Arrow and back, beside fastavro with pyarrow"
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


def cases() -> Iterator[Case]:
    """Yield the work of all formats."""
    for form in FORMATS:
        yield from form()


def decode(decoder: ArrowDecoder, values: pa.Array) -> pa.RecordBatch:
    """Decode as a consumer does, after the prefix; every value is sound."""
    found = decoder.decode(values, len(PREFIX))
    assert not found.errors
    return found.batch


def encode(encoder: ArrowEncoder, batch: pa.RecordBatch) -> pa.Array:
    """Encode as a producer does, behind the prefix."""
    return encoder.encode(batch, PREFIX)


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
    reading = partial(read_by_fastavro, definition, values)
    yield _case("Avro to Arrow", partial(decode, decoder, values), reading, asked=3)
    yield _case("Avro to Arrow, plain Python", partial(decode, plain_decoder, values))
    writing = partial(write_by_fastavro, definition, batch)
    yield _case("Arrow to Avro", partial(encode, encoder, batch), writing)
    yield _case("Arrow to Avro, plain Python", partial(encode, plain_encoder, batch))


def _case(
    work: str,
    ours: Callable[[], object],
    theirs: Callable[[], object] | None = None,
    asked: float | None = None,
) -> Case:
    peers = () if theirs is None else (Peer("fastavro + pyarrow", theirs),)
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


FORMATS: Final = (_avro,)
