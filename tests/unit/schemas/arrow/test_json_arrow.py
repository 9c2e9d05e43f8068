"""Columns of JSON schemas: types, decoded and refused values, and encoded tables."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ottla.schemas.arrow.json_arrow import (
    JsonArrowDecoder,
    JsonArrowEncoder,
    arrow_schema_of,
    json_text_of,
)
from ottla.schemas.arrow.json_columns import COLUMNS_MAX
from ottla.schemas.json_schema.json_schema import JsonSchema, parse_json_schema
from ottla.schemas.values import InvalidValueError

TIMESTAMP = pa.timestamp("us", tz="UTC")
INNER = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "string"}}}


def record(**properties: Any) -> JsonSchema:
    return parse_json_schema(json.dumps({"type": "object", "properties": properties}))


def decoder(schema: JsonSchema, *, compiled: bool, validate: bool = False) -> JsonArrowDecoder:
    return JsonArrowDecoder(schema, schema, validate=validate, compiled=compiled)


@pytest.fixture(params=[True, False], ids=["compiled", "plain"])
def compiled(request: pytest.FixtureRequest) -> bool:
    if request.param:
        request.getfixturevalue("needs_compiled_loops")
    return bool(request.param)


def test_each_json_type_has_its_arrow_type() -> None:
    schema = record(
        i={"type": "integer"},
        f={"type": "number"},
        b={"type": "boolean"},
        s={"type": "string"},
        at={"type": "string", "format": "date-time"},
        day={"type": "string", "format": "date"},
        uuid={"type": "string", "format": "uuid"},
        many={"type": "array", "items": {"type": "integer"}},
        inner={"type": "object", "properties": {"x": {"type": "number"}}},
        map={"type": "object", "additionalProperties": {"type": "integer"}},
        maybe={"type": ["null", "integer"]},
        either={"oneOf": [{"type": "null"}, {"type": "string"}]},
        color={"enum": ["red", "green"]},
        one={"const": "x"},
        anything={},
        mixed={"type": ["integer", "string"]},
        tuple={"type": "array", "items": [{"type": "integer"}]},
        free={"type": "object"},
    )
    assert arrow_schema_of(schema) == pa.schema(
        {
            "i": pa.int64(),
            "f": pa.float64(),
            "b": pa.bool_(),
            "s": pa.string(),
            "at": TIMESTAMP,
            "day": pa.date32(),
            "uuid": pa.string(),
            "many": pa.list_(pa.int64()),
            "inner": pa.struct({"x": pa.float64()}),
            "map": pa.map_(pa.string(), pa.int64()),
            "maybe": pa.int64(),
            "either": pa.string(),
            "color": pa.string(),
            "one": pa.string(),
            "anything": pa.string(),
            "mixed": pa.string(),
            "tuple": pa.string(),
            "free": pa.string(),
        }
    )


def test_a_recursive_property_is_a_column_of_json_text() -> None:
    text = """{"definitions": {"n": {"type": "object", "properties":
        {"v": {"type": "integer"}, "next": {"$ref": "#/definitions/n"}}}},
        "$ref": "#/definitions/n"}"""
    schema = parse_json_schema(text)
    assert arrow_schema_of(schema) == pa.schema({"v": pa.int64(), "next": pa.string()})
    found = decoder(schema, compiled=True).decode(pa.array([b'{"v": 1, "next": { "v":2}}']))
    assert found.batch.to_pylist() == [{"v": 1, "next": '{ "v":2}'}]


def test_recursion_through_a_nullable_object_ends_in_json_text() -> None:
    node = {"type": ["object", "null"], "properties": {"l": {"$ref": "#/x"}, "r": {"$ref": "#/x"}}}
    schema = parse_json_schema(json.dumps({"$ref": "#/x", "x": node}))
    assert arrow_schema_of(schema) == pa.schema({"l": pa.string(), "r": pa.string()})


def test_schemas_of_pydantic_and_msgspec_have_columns() -> None:
    inner = {
        "type": "object",
        "properties": {"x": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
    }
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": "#/$defs/Order",
        "$defs": {
            "Order": {
                "type": "object",
                "properties": {
                    "a": {"$ref": "#/$defs/Inner", "description": "d", "default": {}},
                    "b": {"allOf": [{"$ref": "#/$defs/Inner"}], "title": "B"},
                },
            },
            "Inner": inner,
        },
    }
    columns = pa.struct({"x": pa.int64()})
    expected = pa.schema({"a": columns, "b": columns})
    assert arrow_schema_of(parse_json_schema(json.dumps(document))) == expected


def test_a_schema_that_is_no_record_has_one_column(compiled: bool) -> None:
    schema = parse_json_schema('{"type": "array", "items": {"type": "integer"}}')
    found = decoder(schema, compiled=compiled).decode(pa.array([b"[1,2]", b"{}", None, b" [ ] "]))
    assert found.batch.to_pylist() == [
        {"value": [1, 2]}, {"value": None}, {"value": None}, {"value": []}
    ]  # fmt: skip
    assert found.errors == {1: "at #/: the value is not an array"}


def test_schemas_with_too_many_columns_are_refused() -> None:
    schema = record(**{f"p{number}": {"type": "integer"} for number in range(COLUMNS_MAX + 1)})
    with pytest.raises(ValueError, match=f"more than {COLUMNS_MAX} columns"):
        arrow_schema_of(schema)


def test_values_of_each_type_are_decoded(compiled: bool) -> None:
    schema = record(
        i={"type": "integer"}, f={"type": "number"}, b={"type": "boolean"}, s={"type": "string"},
        at={"type": "string", "format": "date-time"}, day={"type": "string", "format": "date"},
        many={"type": "array", "items": {"type": ["integer", "null"]}},
        inner=INNER,
        map={"type": "object", "additionalProperties": {"type": "boolean"}}, any={},
    )  # fmt: skip
    payload = rb"""{"i": -9223372036854775808, "f": 1.5e-7, "b": true,
        "unknown": [1, {"a": "\ud800"}],
        "s": "a\u00e9\n\ud83d\ude00", "day": "1969-12-31",
        "at": "2024-02-29T23:59:59.1234567+01:30",
        "many": [1, null, 3e2], "inner": {"y": "z"}, "map": {"k": true, "\u006c": false},
        "any": {"x": [1.0]}}"""
    found = decoder(schema, compiled=compiled).decode(pa.array([payload, b"{}", None]))
    found.batch.validate(full=True)
    assert found.errors == {}
    assert found.batch.to_pylist()[0] == {
        "i": -(1 << 63),
        "f": 1.5e-7,
        "b": True,
        "s": "aé\n😀",
        "at": datetime(2024, 2, 29, 22, 29, 59, 123456, UTC),
        "day": date(1969, 12, 31),
        "many": [1, None, 300],
        "inner": {"x": None, "y": "z"},
        "map": [("k", True), ("l", False)],
        "any": '{"x": [1.0]}',
    }
    assert set(found.batch.to_pylist()[1].values()) == {None}
    assert set(found.batch.to_pylist()[2].values()) == {None}


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ({"type": "integer"}, '"1"', "not a number"),
        ({"type": "integer"}, "1.5", "not an integer"),
        ({"type": "integer"}, "9223372036854775808", "64 bits"),
        ({"type": "integer"}, "9007199254740994.0", "not an integer that a float holds"),
        ({"type": "integer"}, "null", "null"),
        ({"type": "integer"}, "01", "not JSON"),
        ({"type": "number"}, "1e999", "out of range"),
        ({"type": "number"}, "1" * 2000, "characters"),
        ({"type": "number"}, "NaN", "not a number"),
        ({"type": "boolean"}, "1", "not a boolean"),
        ({"type": "boolean"}, "tru", "not JSON"),
        ({"type": "string"}, "1", "not a string"),
        ({"type": "string"}, r'"\ud800"', "surrogate"),
        ({"type": "string"}, '"\t"', "not JSON"),
        ({"type": "string", "format": "date"}, '"2023-02-29"', "does not exist"),
        ({"type": "string", "format": "date"}, '"yesterday"', "not a date"),
        ({"type": "string", "format": "date-time"}, '"2023-01-01T00:00:00"', "not a date-time"),
        ({"type": "string", "format": "date-time"}, '"2023-01-01T24:00:00Z"', "does not exist"),
        ({"type": "array", "items": {"type": "integer"}}, "[1, true]", "#/x/1: the value is not"),
        ({"type": "array", "items": {"type": "integer"}}, "{}", "not an array"),
        ({"type": "object", "properties": {"y": {"type": "integer"}}}, '{"y": []}', "#/x/y"),
        ({}, "[" * 200, "more than 128"),
    ],
)
def test_a_value_of_another_type_is_a_row_with_an_error(
    schema: Any, value: str, reason: str, compiled: bool
) -> None:
    payloads = pa.array(
        [b'{"x": null, "z": 1}', b'{"z": 2, "x": %s}' % value.encode(), b'{"z": 3}']
    )
    columns = record(x={"anyOf": [schema, {"type": "null"}]}, z={"type": "integer"})
    if value == "null":
        columns = record(x=schema, z={"type": "integer"})
        payloads = pa.array([b'{"z": 1}', b'{"z": 2, "x": null}', b'{"z": 3}'])
    found = decoder(columns, compiled=compiled).decode(payloads)
    found.batch.validate(full=True)
    assert found.batch.column("z").to_pylist() == [1, None, 3]
    assert list(found.errors) == [1]
    assert reason in found.errors[1]


@pytest.mark.parametrize(
    "payload",
    [
        b"", b" ", b"null", b"[]", b"{", b"{}{}", b'{"x"}', b'{"x":1,}', b'{"x":1 "z":2}', b"\xff",
        b'{"x":1}\x00', b'{"x":1, "x":2}', b'{"y":"\xc3"}', b"\xef\xbb\xbf{}", b'{"y":"\\x"}',
        b'{"y": -}', b'{"y": 1.}', b'{"y": 1e}', b'{"y": .5}', b'{"x" 1}', b"{1:2}",
        b'{"y":"\\u12"}',
    ],
)  # fmt: skip
def test_bytes_that_are_no_object_are_a_row_with_an_error(payload: bytes, compiled: bool) -> None:
    found = decoder(record(x={"type": "integer"}), compiled=compiled).decode(
        pa.array([b'{"x":7}', payload, b'{"x":8}'])
    )
    assert found.batch.column("x").to_pylist() == [7, None, 8]
    assert list(found.errors) == [1]


def test_a_prefix_is_skipped_and_slices_keep_their_rows(compiled: bool) -> None:
    values = pa.array([b"xxxxx{}", None, b'\0\0\0\0\1{"x":1}', b"\0\0", b'\0\0\0\0\2{"x":2}'])
    for array in (values.slice(1), values.cast(pa.large_binary()).slice(1)):
        found = decoder(record(x={"type": "integer"}), compiled=compiled).decode(array, skip=5)
        assert found.batch.column("x").to_pylist() == [None, 1, None, 2]
        assert found.errors == {2: "the value has 2 bytes, less than its prefix of 5"}


def test_no_rows_are_an_empty_batch(compiled: bool) -> None:
    found = decoder(record(x={"type": "integer"}), compiled=compiled).decode(
        pa.array([], pa.binary())
    )
    assert found.batch.num_rows == 0


def test_short_objects_of_a_wide_struct_do_not_fill_the_memory(compiled: bool) -> None:
    wide = {"type": "object", "properties": {f"p{n}": {"type": "integer"} for n in range(1000)}}
    columns = record(x={"type": "array", "items": wide})
    payload = b'{"x": [' + b",".join([b"{}"] * 5000) + b"]}"
    found = decoder(columns, compiled=compiled).decode(pa.array([payload, b'{"x": [{}]}']))
    assert "too many properties" in found.errors[0]
    assert list(found.errors) == [0]


def test_validation_finds_values_outside_of_their_limits(compiled: bool) -> None:
    schema = record(x={"type": "integer", "maximum": 5})
    payloads = pa.array([b'{"x":5}', b'{"x":6}', b"{"])
    assert list(decoder(schema, compiled=compiled).decode(payloads).errors) == [2]
    found = decoder(schema, compiled=compiled, validate=True).decode(payloads)
    assert list(found.errors) == [1, 2]
    assert "6 is greater than the maximum of 5" in found.errors[1]
    assert found.batch.column("x").to_pylist() == [5, None, None]


def test_a_table_is_encoded_and_decoded_to_the_same_table() -> None:
    table = pa.RecordBatch.from_pylist(
        [
            {"i": 1, "f": 0.5, "b": True, "s": "é", "at": datetime(2024, 1, 2, 3, 4, 5, 6, UTC),
             "day": date(2024, 1, 2), "many": [1, None], "inner": {"x": None}, "map": [("k", 1)]},
            dict.fromkeys(["i", "f", "b", "s", "at", "day", "many", "inner", "map"]),
        ],
        schema=pa.schema(
            {"i": pa.int64(), "f": pa.float64(), "b": pa.bool_(), "s": pa.string(), "at": TIMESTAMP,
             "day": pa.date32(), "many": pa.list_(pa.int64()),
             "inner": pa.struct({"x": pa.int64()}), "map": pa.map_(pa.string(), pa.int64())}
        ),
    )  # fmt: skip
    text = json_text_of(table.schema, "Table")
    schema = parse_json_schema(text)
    assert schema.record_name == "Table"
    assert arrow_schema_of(schema) == table.schema
    payloads = JsonArrowEncoder(schema, table.schema).encode(table, b"prefix")
    found = JsonArrowDecoder(schema, validate=True).decode(payloads, skip=6)
    assert found.errors == {}
    assert found.batch.equals(table)


def test_nulls_of_optional_properties_are_left_out() -> None:
    table = pa.RecordBatch.from_pylist([{"x": None}], schema=pa.schema({"x": pa.int64()}))
    encoded = JsonArrowEncoder(record(x={"type": "integer"}), table.schema).encode(table)
    assert encoded.to_pylist() == [b"{}"]
    required = parse_json_schema(
        '{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}'
    )
    with pytest.raises(InvalidValueError, match="row 0: column /x: the value is null"):
        JsonArrowEncoder(required, table.schema).encode(table)


def test_columns_that_do_not_fit_the_schema_are_refused_at_once() -> None:
    closed = parse_json_schema(
        '{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"],'
        '"additionalProperties":false}'
    )
    with pytest.raises(ValueError, match="column /y: the schema does not allow"):
        JsonArrowEncoder(closed, pa.schema({"x": pa.int64(), "y": pa.int64()}))
    with pytest.raises(ValueError, match="column /x: its type is string"):
        JsonArrowEncoder(closed, pa.schema({"x": pa.string()}))
    with pytest.raises(ValueError, match="column /x: the schema requires it"):
        JsonArrowEncoder(closed, pa.schema({}))
    with pytest.raises(ValueError, match="JSON has no form"):
        JsonArrowEncoder(record(), pa.schema({"value": pa.duration("s")}))


def test_values_without_a_form_in_json_name_their_row() -> None:
    table = pa.RecordBatch.from_pylist([{"f": 1.0}, {"f": float("nan")}])
    with pytest.raises(InvalidValueError, match="row 1: column /f: JSON has no nan"):
        JsonArrowEncoder(record(f={"type": "number"}), table.schema).encode(table)
    table = pa.RecordBatch.from_pylist([{"a": "{"}])
    with pytest.raises(InvalidValueError, match="row 0: column /a: the text is not JSON"):
        JsonArrowEncoder(record(a={}), table.schema).encode(table)


def test_decimals_texts_and_undeclared_columns_are_written() -> None:
    table = pa.RecordBatch.from_pylist(
        [{"d": Decimal("1.50"), "any": '{"x":1}', "new": b"\1"}],
        schema=pa.schema({"d": pa.decimal128(5, 2), "any": pa.string(), "new": pa.binary()}),
    )
    encoder = JsonArrowEncoder(record(d={"type": "number"}, any={}), table.schema)
    assert encoder.encode(table).to_pylist() == [b'{"d":1.50,"any":{"x":1},"new":"AQ=="}']


def test_types_without_a_json_schema_are_refused() -> None:
    with pytest.raises(ValueError, match="column x: JSON Schema has no form for the type duration"):
        json_text_of(pa.schema({"x": pa.duration("s")}), "T")
