"""Arrow to Avro: the compiled loop and its twin write alike, and fastavro reads the values."""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.schemas.arrow import _avro_encode_python
from ottla.schemas.arrow.avro_arrow import AvroArrowDecoder, AvroArrowEncoder, avro_text_of
from ottla.schemas.avro.avro_schema import parse_avro
from tests import avro_data
from tests.avro_data import Schema

pytestmark = pytest.mark.usefixtures("needs_compiled_loops")
SLOW = settings(suppress_health_check=list(HealthCheck))


def encoded(schema: Schema, batch: pa.RecordBatch, prefix: bytes = b"") -> list[bytes]:
    """Encode by the compiled loop and by its twin, which must agree."""
    encoder = AvroArrowEncoder(parse_avro(json.dumps(schema)), batch.schema)
    assert type(encoder._encoder).__module__ == "ottla.schemas.arrow._avro_encode"
    twin = AvroArrowEncoder(parse_avro(json.dumps(schema)), batch.schema)
    twin._encoder = _avro_encode_python.Encoder(encoder._program)
    try:
        plain = twin.encode(batch, prefix)
    except ValueError as error:
        with pytest.raises(ValueError) as raised:  # noqa: PT011 - the twin's error
            encoder.encode(batch, prefix)
        assert str(raised.value) == str(error)
        raise
    found = encoder.encode(batch, prefix)
    found.validate(full=True)
    assert found.equals(plain)
    return list(found.to_pylist())


def record(**types: Schema) -> Schema:
    fields = [{"name": name, "type": each} for name, each in types.items()]
    return {"type": "record", "name": "Row", "fields": fields}


def one(schema: Schema, array: pa.Array) -> list[bytes]:
    return encoded(record(x=schema), pa.record_batch({"x": array}))


@SLOW
@given(st.data())
def test_rows_are_written_as_fastavro_writes_them(data: st.DataObject) -> None:
    schema = data.draw(avro_data.records().filter(lambda drawn: bool(drawn["fields"])))
    definition = fastavro.parse_schema(schema)
    written = []
    for row in data.draw(st.lists(avro_data.values(schema), max_size=4)):
        content = io.BytesIO()
        fastavro.schemaless_writer(content, definition, row)
        written.append(content.getvalue())
    parsed = parse_avro(json.dumps(schema))
    batch = AvroArrowDecoder(parsed, parsed).decode(pa.array(written, pa.binary())).batch
    assert encoded(schema, batch) == written
    start = data.draw(st.integers(0, len(written)))
    assert encoded(schema, batch.slice(start), b"\0\0\0\0\7") == [
        b"\0\0\0\0\7" + payload for payload in written[start:]
    ]


def test_types_of_one_family_are_converted_if_their_values_fit() -> None:
    texts = pa.array(["b", "a", None]).dictionary_encode()
    symbols: Schema = {"type": "enum", "name": "E", "symbols": ["a", "b"]}
    assert one(["null", symbols], texts) == [b"\x02\x02", b"\x02\x00", b"\x00"]
    assert one("int", pa.array([1, -1], pa.int64())) == [b"\x02", b"\x01"]
    assert one("double", pa.array([1], pa.int16())) == one("double", pa.array([1.0]))
    nanos = pa.array([1_000_000], pa.timestamp("ns", "Europe/Ljubljana"))
    assert one({"type": "long", "logicalType": "timestamp-millis"}, nanos) == [b"\x02"]
    assert one("bytes", pa.array(["ab"], pa.large_string())) == [b"\x04ab"]
    lists = pa.array([[1, 2], []], pa.large_list(pa.int64()))
    assert one({"type": "array", "items": "long"}, lists) == [b"\x04\x02\x04\x00", b"\x00"]


@pytest.mark.parametrize(
    ("schema", "array", "reason"),
    [
        ("int", pa.array([1, 2**31]), "Row 1, column x: .*not in range"),
        ("int", pa.array([1, None]), "Row 1, column x: the value is null"),
        ({"type": "array", "items": "int"}, pa.array([[1], [2, None]]), "Row 1, column x.element"),
        (
            {"type": "enum", "name": "E", "symbols": ["a"]},
            pa.array(["a", "b"]),
            "Row 1, column x: the text is no symbol",
        ),
        (
            {"type": "fixed", "name": "Id", "size": 16, "logicalType": "uuid"},
            pa.array(["01234567-89ab-cdef-0123-456789abcdef", "01234567+89ab"]),
            "Row 1, column x: the text is no UUID",
        ),
        (
            ["int", "string"],
            pa.array(
                [{"member0": 1, "member1": None}, {"member0": 1, "member1": "a"}],
                pa.struct([("member0", pa.int32()), ("member1", pa.string())]),
            ),
            "Row 1, column x: more than one member",
        ),
        (
            ["int", "string"],
            pa.array([{"member0": None}], pa.struct([("member0", pa.int32())])),
            "Row 0, column x: no member",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_with_column_and_row(
    schema: Schema, array: pa.Array, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        one(schema, array)


def test_a_field_without_a_column_is_written_as_its_default_or_null() -> None:
    schema: dict[str, Any] = record(x="int", y="string", z=["string", "null"])
    schema["fields"][1]["default"] = "abc"
    batch = pa.record_batch({"x": pa.array([1], pa.int32())})
    assert encoded(schema, batch) == [b"\x02\x06abc\x02"]
    del schema["fields"][1]["default"]
    with pytest.raises(ValueError, match="y: there is no such column, and the field has no"):
        encoded(schema, batch)


def test_columns_that_cannot_be_written_are_refused_before_the_first_row() -> None:
    with pytest.raises(ValueError, match="Column x: string cannot be written as int32"):
        one("int", pa.array(["1"]))
    with pytest.raises(ValueError, match="Column z is twice or not in the schema"):
        encoded(record(x="int"), pa.record_batch({"x": [1], "z": [2]}))
    encoder = AvroArrowEncoder(parse_avro('"int"'), pa.schema([("value", pa.int32())]))
    with pytest.raises(ValueError, match="The batch has other columns"):
        encoder.encode(pa.record_batch({"other": [1]}))


def test_the_schema_of_columns_reads_what_they_hold() -> None:
    item = pa.struct([pa.field("price", pa.decimal128(9, 2), nullable=False)])
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("items", pa.list_(pa.field("element", item, nullable=False))),
            pa.field("a", pa.struct([("b_c", pa.struct([("d", pa.binary(2))]))])),
            pa.field("a_b", pa.struct([("c", pa.struct([("d", pa.date32())]))])),
            pa.field("tags", pa.map_(pa.string(), pa.large_string())),
        ]
    )
    row = {
        "id": 1,
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "items": [{"price": Decimal("1.25")}],
        "a": {"b_c": {"d": b"xy"}},
        "a_b": None,
        "tags": [("k", None)],
    }
    text = avro_text_of(schema, "shop.Order")
    parsed = parse_avro(text)
    assert parsed.record_name == "shop.Order"
    assert json.loads(text)["fields"][1]["default"] is None
    payloads = encoded(json.loads(text), pa.RecordBatch.from_pylist([row], schema=schema))
    found = AvroArrowDecoder(parsed, parsed).decode(pa.array(payloads, pa.binary()))
    assert found.batch.to_pylist() == [row]


def test_names_and_types_that_avro_lacks_are_refused_with_a_way_out() -> None:
    with pytest.raises(ValueError, match=r"Column a-b: .*rename the column"):
        avro_text_of(pa.schema([("a-b", pa.int32())]), "Row")
    with pytest.raises(ValueError, match=r"Column a: Avro has no type for duration\[s\]; cast"):
        avro_text_of(pa.schema([("a", pa.duration("s"))]), "Row")
