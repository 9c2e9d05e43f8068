"""Avro to Arrow: the compiled loop, its twin, and fastavro with pyarrow agree."""

import io
import json
import random
import resource
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.schemas.arrow import _avro_decode_python, avro_arrow
from ottla.schemas.arrow.arrow_codec import DecodedValues
from ottla.schemas.arrow.avro_arrow import AvroArrowDecoder
from ottla.schemas.avro.avro_default_bytes import encoded_long
from ottla.schemas.avro.avro_resolution import (
    ZERO_SIZE_ITEMS_MAX,
    ResolutionError,
)
from ottla.schemas.avro.avro_schema import AvroSchema, parse_avro
from ottla.schemas.parsed_schema import InvalidSchemaError
from tests import avro_data
from tests.avro_data import Schema

pytestmark = pytest.mark.usefixtures("needs_compiled_loops")
Values = list[bytes | None] | list[bytes] | pa.Array
SLOW = settings(suppress_health_check=list(HealthCheck))


def parsed(schema: Schema) -> AvroSchema:
    return parse_avro(json.dumps(schema))


def record(*types: Schema, name: str = "Row") -> Schema:
    fields = [{"name": f"field{position}", "type": each} for position, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


def written(schema: Schema, rows: list[Any]) -> list[bytes]:
    definition = fastavro.parse_schema(schema)
    payloads = []
    for row in rows:
        content = io.BytesIO()
        fastavro.schemaless_writer(content, definition, row)
        payloads.append(content.getvalue())
    return payloads


class Twins:
    """The compiled loop and its twin, which must agree on every buffer."""

    def __init__(self, reader: Schema, writer: Schema) -> None:
        self.decoder = AvroArrowDecoder(parsed(reader), parsed(writer))
        assert type(self.decoder._decoder).__module__ == "ottla.schemas.arrow._avro_decode"
        self.twin = _avro_decode_python.Decoder(self.decoder._program)

    def decode(self, values: Values, skip: int = 0) -> DecodedValues:
        array = values if isinstance(values, pa.Array) else pa.array(values, pa.binary())
        found = self.decoder.decode(array, skip)
        validity, offsets, data = array.buffers()
        if offsets is not None and offsets.size:
            place = array.offset, len(array), 8 if array.type == pa.large_binary() else 4, skip
            compiled = self.decoder._decoder.decode(validity, offsets, data or b"", *place)
            plain = self.twin.decode(validity, offsets, data or b"", *place)
            assert plain == ([tuple(map(comparable, each)) for each in compiled[0]], compiled[1])
        found.batch.validate(full=True)
        assert found.batch.schema == self.decoder.schema
        assert found.batch.num_rows == len(array)
        return found


def comparable(part: Any) -> Any:
    return part if part is None or isinstance(part, int) else bytes(part)


def decoded(reader: Schema, writer: Schema, values: Values, skip: int = 0) -> DecodedValues:
    return Twins(reader, writer).decode(values, skip)


def only(schema: Schema, payload: bytes) -> Any:
    """Decode one value that is not a record."""
    found = decoded(schema, schema, [payload])
    assert not found.errors
    return found.batch["value"][0].as_py()


def error(schema: Schema, payload: bytes, reader: Schema = None) -> str:
    found = decoded(reader or schema, schema, [payload])
    assert found.batch.num_rows == 1
    assert all(column.null_count == 1 for column in found.batch.columns)
    return found.errors[0]


@SLOW
@given(st.data())
def test_data_of_an_older_schema_is_decoded_as_fastavro_reads_it(data: st.DataObject) -> None:
    writer = data.draw(avro_data.records())
    reader = data.draw(avro_data.evolved(writer))
    payloads = written(writer, data.draw(st.lists(avro_data.values(writer), max_size=4)))
    definitions = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    rows = [
        avro_data.arrow_value(reader, fastavro.schemaless_reader(io.BytesIO(p), *definitions))
        for p in payloads
    ]
    found = decoded(reader, writer, payloads)
    assert not found.errors
    if found.batch.num_columns:
        assert found.batch.equals(pa.RecordBatch.from_pylist(rows, schema=found.batch.schema))


@SLOW
@given(st.data())
def test_every_byte_string_ends_in_a_row_or_an_error(data: st.DataObject) -> None:
    writer = data.draw(avro_data.records())
    reader = data.draw(st.one_of(st.just(writer), avro_data.evolved(writer)))
    sound = written(writer, data.draw(st.lists(avro_data.values(writer), max_size=2)))
    damaged = [data.draw(damage(payload)) for payload in sound]
    others = data.draw(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=6))
    values = data.draw(st.permutations([*sound, *damaged, *others]))
    twins = Twins(reader, writer)
    found = twins.decode(values)
    alone = [twins.decode([value]) for value in values]
    assert found.errors == {n: one.errors[0] for n, one in enumerate(alone) if one.errors}
    for index, column in enumerate(found.batch.columns):
        one_by_one = pa.concat_arrays([column[:0], *(one.batch.columns[index] for one in alone)])
        # As text, because NaN differs from itself, and Python has not every time of Arrow.
        assert column.to_string(window=1000) == one_by_one.to_string(window=1000)


@st.composite
def damage(draw: st.DrawFn, payload: bytes) -> bytes:
    end = draw(st.integers(0, len(payload)))
    return payload[:end] + draw(st.binary(max_size=3)) + payload[end + draw(st.integers(0, 2)) :]


@given(st.data())
def test_a_slice_and_a_large_array_are_decoded_alike(data: st.DataObject) -> None:
    values = [None, *(bytes(5) + encoded_long(number) for number in range(30))]
    start = data.draw(st.integers(0, 31))
    size = data.draw(st.integers(0, 31))
    kind = data.draw(st.sampled_from([pa.binary(), pa.large_binary()]))
    array = pa.array(values, kind).slice(start, size)
    found = decoded("long", "long", array, 5)
    assert found.batch["value"].to_pylist() == [None, *range(30)][start : start + size]
    assert not found.errors


def test_a_tombstone_is_a_row_of_nulls_and_no_error() -> None:
    schema = record("int", ["null", "string"], {"type": "array", "items": "int"})
    found = decoded(schema, schema, [None, b"\x02\x00\x00", None])
    assert found.batch.to_pylist()[1] == {"field0": 1, "field1": None, "field2": []}
    assert [column.null_count for column in found.batch.columns] == [2, 3, 2]
    assert not found.errors


def test_no_values_and_no_fields_make_empty_batches() -> None:
    assert decoded(record("int"), record("int"), []).batch.num_rows == 0
    found = decoded(record(), record("int"), [b"\x02", b"", b"\x04"])
    assert found.batch.num_rows == 3
    assert list(found.errors) == [1]


def test_a_malformed_row_leaves_nothing_in_its_neighbours() -> None:
    schema = record(
        {"type": "map", "values": {"type": "array", "items": ["null", "string"]}}, "int"
    )
    sound, *_ = written(schema, [{"field0": {"a": ["x", None], "b": []}, "field1": 7}])
    found = decoded(schema, schema, [sound, sound[:-1], b"\x02\x02a\x02\x02", sound])
    assert list(found.errors) == [1, 2]
    assert found.batch["field0"].to_pylist() == [
        [("a", ["x", None]), ("b", [])],
        None,
        None,
        [("a", ["x", None]), ("b", [])],
    ]
    assert len(found.batch["field0"].items) == 4


@pytest.mark.parametrize(
    ("schema", "payload", "reason"),
    [
        ("long", b"", "the bytes end"),
        ("long", b"\xff" * 9 + b"\x02", "more than 64 bits"),
        ("int", encoded_long(2**31), "more than 32 bits"),
        ("string", b"\x01", "negative"),
        ("string", encoded_long(2**62), "the bytes end"),
        ("string", b"\x04\xc3\x28", "UTF-8"),
        ("string", b"\x06\xed\xa0\x80", "UTF-8"),
        ("boolean", b"\x02", "neither 0 nor 1"),
        (["null", "int"], b"\x04", "no branch"),
        (["null", "int"], b"\x01", "no branch"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "no symbol"),
        ({"type": "array", "items": "int"}, encoded_long(2**61), "more items than bytes"),
        ({"type": "array", "items": "int"}, encoded_long(-(2**63)) + b"\x02", "more items"),
        ({"type": "array", "items": "int"}, b"\x01\x01\x02\x00", "negative"),
        ({"type": "array", "items": "null"}, encoded_long(2**40), "more items than bytes"),
        ({"type": "map", "values": "null"}, encoded_long(2**40), "more items than bytes"),
        ({"type": "fixed", "name": "F", "size": 4}, b"\0\0\0", "the bytes end"),
    ],
)
def test_a_malformed_value_is_an_error_with_its_reason(
    schema: Schema, payload: bytes, reason: str
) -> None:
    assert reason in error(schema, payload)


def test_an_error_names_the_path_of_the_bad_field() -> None:
    inner = {"type": "record", "name": "Item", "fields": [{"name": "price", "type": "double"}]}
    schema = record({"type": "array", "items": inner})
    assert error(schema, b"\x02\x00\x00") == (
        "field0.element.price: the bytes end within the value"
    )


def test_items_without_bytes_have_a_limit_of_their_own() -> None:
    schema = {"type": "array", "items": "null"}
    most = encoded_long(ZERO_SIZE_ITEMS_MAX) + b"\0"
    assert only(schema, most) == [None] * ZERO_SIZE_ITEMS_MAX
    assert "more items" in error(schema, encoded_long(ZERO_SIZE_ITEMS_MAX + 1) + b"\0")
    assert "more items" in error(schema, most[:-1] + b"\x02\0")


def test_blocks_with_their_sizes_in_bytes_are_read() -> None:
    schema = {"type": "array", "items": "int"}
    assert only(schema, b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00") == [1, 2, 3]


def test_bytes_after_a_value_are_ignored() -> None:
    assert only("int", b"\x02rest") == 1


def test_a_value_shorter_than_its_prefix_is_an_error() -> None:
    found = decoded("int", "int", [b"\0\0\0\0\1\x02", b"\0\0", b""], 5)
    assert found.batch["value"].to_pylist() == [1, None, None]
    assert list(found.errors) == [1, 2]
    assert "shorter than its prefix" in found.errors[1]


def test_times_of_another_unit_are_converted() -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    found = decoded(micros, millis, [encoded_long(-1), encoded_long(2**62)])
    assert found.batch["value"].cast(pa.int64()).to_pylist() == [-1000, None]
    assert "out of range" in found.errors[1]
    found = decoded(millis, micros, [encoded_long(-1)])
    assert found.batch["value"].cast(pa.int64()).to_pylist() == [-1]


def test_decimals_are_scaled_to_the_reader_or_refused() -> None:
    def decimal(precision: int, scale: int) -> Schema:
        named = {"logicalType": "decimal", "precision": precision, "scale": scale}
        return {"type": "bytes", **named}

    minus_one = b"\x02\xff"
    assert only(decimal(4, 2), minus_one) == Decimal("-0.01")
    assert only(decimal(50, 2), b"\x00") == Decimal("0.00")
    wide = decoded(decimal(60, 4), decimal(4, 2), [minus_one])
    assert wide.batch["value"].to_pylist() == [Decimal("-0.0100")]
    assert "more fraction digits" in error(decimal(4, 2), minus_one, decimal(4, 1))
    assert "more digits" in error(decimal(4, 2), b"\x04\x27\x10")
    assert "more digits" in error(decimal(4, 2), encoded_long(40) + b"\x01" + bytes(39))
    assert only(decimal(4, 2), encoded_long(40) + b"\xff" * 40) == Decimal("-0.01")


def test_a_uuid_of_sixteen_bytes_is_text() -> None:
    schema = {"type": "fixed", "name": "Id", "size": 16, "logicalType": "uuid"}
    uuid = UUID("01234567-89ab-cdef-0123-456789abcdef")
    assert only(schema, uuid.bytes) == str(uuid)


def test_a_symbol_that_the_reader_does_not_know_is_an_error_without_a_default() -> None:
    writer = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    reader = {"type": "enum", "name": "E", "symbols": ["B"]}
    found = decoded(reader, writer, [b"\x02", b"\x00"])
    assert found.batch["value"].to_pylist() == ["B", None]
    assert "neither this symbol nor a default" in found.errors[1]


def test_a_branch_that_the_reader_lacks_is_an_error_only_of_its_values() -> None:
    found = decoded("long", ["int", "string"], [b"\x00\x02", b"\x02\x00"])
    assert found.batch["value"].to_pylist() == [1, None]
    assert found.errors[1] == "value: string cannot be read as long"


def test_schemas_that_never_fit_are_refused_with_the_path() -> None:
    with pytest.raises(ResolutionError, match="field0: string cannot be read as int"):
        decoded(record("int"), record("string"), [])
    with pytest.raises(ResolutionError, match="field1: the writer has no such field"):
        decoded(record("int", "int"), record("int"), [])


def recursive() -> Schema:
    return {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "next", "type": ["null", "Node"]}],
    }


def test_a_recursive_reader_is_refused_and_a_recursive_writer_is_skipped() -> None:
    with pytest.raises(InvalidSchemaError, match="Arrow has no recursive types"):
        decoded(recursive(), recursive(), [])
    writer = record(recursive(), "int")
    reader = {**writer, "fields": writer["fields"][1:]}
    found = decoded(reader, writer, [b"\x02\x02\x00\x04", b"\x02" * 5000])
    assert found.batch["field1"].to_pylist() == [2, None]
    assert "nested deeper" in found.errors[1]


def test_a_schema_that_multiplies_its_columns_is_refused() -> None:
    fields: list[Schema] = [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]
    schema: Schema = {"type": "record", "name": "R0", "fields": fields}
    for level in range(1, 20):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{level - 1}"}]
        schema = {"type": "record", "name": f"R{level}", "fields": fields}
    with pytest.raises(InvalidSchemaError, match="more than 10000 columns"):
        decoded(schema, schema, [])
    # It can be skipped: shared steps are not multiplied, and the work ends with the bytes.
    found = decoded(record(), record(schema), [b"\0"])
    assert list(found.errors) == [0]


def test_the_columns_of_all_types_are_as_documented() -> None:
    def logical(kind: str, name: str) -> Schema:
        return {"type": kind, "logicalType": name}

    decimal = {"logicalType": "decimal", "precision": 39, "scale": 2}
    schema = record(
        logical("int", "date"),
        logical("int", "time-millis"),
        logical("long", "timestamp-nanos"),
        logical("long", "local-timestamp-millis"),
        {"type": "bytes", **decimal},
        {"type": "fixed", "name": "Duration", "size": 12, "logicalType": "duration"},
        {"type": "map", "values": ["null", "int"]},
        ["null", "int", {"type": "array", "items": "string"}],
    )
    items = pa.list_(pa.field("element", pa.string(), nullable=False))
    assert avro_arrow.arrow_schema_of(parsed(schema)).types == [
        pa.date32(),
        pa.time32("ms"),
        pa.timestamp("ns", "UTC"),
        pa.timestamp("ms"),
        pa.decimal256(39, 2),
        pa.binary(12),
        pa.map_(pa.string(), pa.int32()),
        pa.struct([("member0", pa.int32()), ("member1", items)]),
    ]


def test_random_payloads_leave_memory_flat() -> None:
    schema = record(
        "long",
        ["null", "string"],
        {"type": "array", "items": record("null", "int", name="Item")},
        {"type": "map", "values": "bytes"},
    )
    decoder = AvroArrowDecoder(parsed(schema), parsed(schema))
    randomness = random.Random(25)
    peaks = []
    for _ in range(10):
        # Small bytes are short lengths and counts, so that some payloads are sound.
        payloads = [bytes(randomness.choices(range(8), k=48)) for _ in range(10_000)]
        array = pa.array(payloads, pa.binary())
        found = decoder.decode(array)
        assert found.batch.num_rows == 10_000
        assert 0 < len(found.errors) < 10_000
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    # The first rounds make room; afterwards nothing may be left behind.
    assert peaks[-1] - peaks[2] < 8 * 1024


@SLOW
@given(st.data())
def test_a_schema_that_is_called_compatible_decodes_what_the_other_wrote(
    data: st.DataObject,
) -> None:
    writer, other = data.draw(avro_data.records()), data.draw(avro_data.records())
    reader = data.draw(st.sampled_from([known_as(writer, other), writer]))
    reader = data.draw(avro_data.evolved(reader))
    payloads = written(writer, data.draw(st.lists(avro_data.values(writer), max_size=3)))
    if not parsed(reader).reading(parsed(writer)):
        errors = decoded(reader, writer, payloads).errors.values()
        # The comparison ignores logical types, and bytes may be no text.
        allowed = ("time is out of range", "a decimal has", "not valid UTF-8")
        assert [text for text in errors if not any(part in text for part in allowed)] == []


def known_as(writer: Schema, reader: Schema) -> Schema:
    return {**reader, "name": "Other", "aliases": [writer["name"]]}
