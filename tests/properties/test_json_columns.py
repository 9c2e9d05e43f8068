"""Properties of JSON columns: the compiled loop, its twin, and msgspec read the same values."""

import json
import math
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.schemas.arrow.json_arrow import JsonArrowDecoder, arrow_schema_of
from ottla.schemas.json_schema.json_schema import JsonSchema, parse_json_schema

pytestmark = pytest.mark.usefixtures("needs_compiled_loops")

NAMES = ["a", "b", "ä", 'q"\\']
SCALARS: list[dict[str, Any]] = [
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "string"},
    {"type": ["string", "null"]},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "date-time"},
    {},
]


def extended(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    properties = st.dictionaries(st.sampled_from(NAMES), inner, min_size=1)
    return st.one_of(
        inner.map(lambda one: {"type": "array", "items": one}),
        inner.map(lambda one: {"type": "object", "additionalProperties": one}),
        properties.map(lambda some: {"type": "object", "properties": some}),
    )


types = st.recursive(st.sampled_from(SCALARS), extended, max_leaves=6)
schemas = st.dictionaries(st.sampled_from(NAMES), types, min_size=1).map(
    lambda some: parse_json_schema(json.dumps({"type": "object", "properties": some}))
)
dates = st.sampled_from(["2024-02-29", "0000-03-01", "9999-12-31", "2023-13-01", "0000-01-31"])
times = st.sampled_from(["T00:00:00Z", "t23:59:59.999999999-23:59", "T12:00:00+00:00", "T1Z", ""])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
    dates,
    st.tuples(dates, times).map("".join),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from([*NAMES, "z"]), inner)
    ),
    max_leaves=12,
)


@st.composite
def fitting(draw: st.DrawFn, schema: Any) -> Any:
    """A value that mostly fits the schema."""
    if draw(st.integers(0, 20)) == 0:
        return draw(values)
    kind = schema.get("type")
    if "properties" in schema:
        names = draw(st.lists(st.sampled_from(list(schema["properties"])), unique=True))
        return {name: draw(fitting(schema["properties"][name])) for name in names}
    if kind == "object":
        names = draw(st.lists(st.text(max_size=3), unique=True, max_size=3))
        return {name: draw(fitting(schema["additionalProperties"])) for name in names}
    if kind == "array":
        return draw(st.lists(fitting(schema["items"]), max_size=3))
    by_type = {
        "integer": st.integers(-(2**63), 2**63 - 1),
        "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-999, 999),
        "boolean": st.booleans(),
        "string": {"date": dates, "date-time": st.tuples(dates, times).map("".join)}.get(
            schema.get("format"), st.text()
        ),
    }
    return draw(by_type.get(kind, scalars) if isinstance(kind, str) else values)


@st.composite
def texts(draw: st.DrawFn, schema: JsonSchema) -> bytes:
    value = draw(fitting(schema.document))
    separators = draw(st.sampled_from([(",", ":"), (" , ", "\t: ")]))
    return json.dumps(value, ensure_ascii=draw(st.booleans()), separators=separators).encode()


def decoded(schema: JsonSchema, payloads: list[bytes]) -> tuple[list[Any], dict[int, str]]:
    """Decode with both loops, which must agree, and return their rows and errors."""
    array = pa.array(payloads, pa.binary())
    compiled, plain = (
        JsonArrowDecoder(schema, compiled=is_compiled).decode(array)
        for is_compiled in (True, False)
    )
    compiled.batch.validate(full=True)
    plain.batch.validate(full=True)
    assert dict(compiled.errors) == dict(plain.errors)
    # Year 0 is no year of Python: dates are compared as numbers.
    raw = [
        one.batch.to_struct_array().cast(as_numbers(one.batch.schema)) for one in (compiled, plain)
    ]
    rows = raw[0].to_pylist()
    assert repr(rows) == repr(raw[1].to_pylist())
    return rows, dict(compiled.errors)


def as_numbers(schema: pa.Schema) -> pa.DataType:
    def convert(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(kind):
            return pa.struct([pa.field(one.name, convert(one.type)) for one in kind])
        if pa.types.is_list(kind):
            return pa.list_(convert(kind.value_type))
        if pa.types.is_map(kind):
            return pa.map_(pa.string(), convert(kind.item_type))
        if pa.types.is_timestamp(kind):
            return pa.int64()
        return pa.int32() if pa.types.is_date(kind) else kind

    return convert(pa.struct(list(schema)))


@given(schemas.flatmap(lambda one: st.tuples(st.just(one), st.lists(texts(one), max_size=5))))
def test_both_loops_read_what_msgspec_reads(case: tuple[JsonSchema, list[bytes]]) -> None:
    schema, payloads = case
    rows, errors = decoded(schema, payloads)
    for row, payload in enumerate(payloads):
        if row in errors:
            assert set(rows[row].values()) == {None}
        else:
            assert_same(schema.document, arrow_schema_of(schema), rows[row], payload)


def assert_same(document: Any, columns: pa.Schema, row: Any, payload: bytes) -> None:
    value = msgspec.json.decode(payload)
    for name, found in row.items():
        check(document["properties"][name], columns.field(name).type, found, value.get(name))


def check(schema: Any, kind: pa.DataType, found: Any, value: Any) -> None:
    if value is None or found is None:
        assert found is None
        assert value is None
    elif pa.types.is_struct(kind):
        for name, one in schema["properties"].items():
            check(one, kind.field(name).type, found[name], value.get(name))
    elif pa.types.is_list(kind):
        assert len(found) == len(value)
        for one, other in zip(found, value, strict=True):
            check(schema["items"], kind.value_type, one, other)
    elif pa.types.is_map(kind):
        assert [name for name, _ in found] == list(value)
        for name, one in found:
            check(schema["additionalProperties"], kind.item_type, one, value[name])
    elif schema == {}:
        assert msgspec.json.decode(found) == value
    elif not pa.types.is_timestamp(kind) and not pa.types.is_date(kind):
        assert found == value
        assert math.copysign(1, found) == math.copysign(1, value) if kind == pa.float64() else True


@given(schemas, st.lists(st.binary(max_size=40), max_size=4))
def test_any_bytes_are_rows_or_errors(schema: JsonSchema, payloads: list[bytes]) -> None:
    rows, _ = decoded(schema, payloads)
    assert len(rows) == len(payloads)


@given(
    schemas.flatmap(lambda one: st.tuples(st.just(one), texts(one))),
    st.lists(
        st.tuples(st.integers(0, 400), st.sampled_from(b'"\\{}[],:0-+.eEuntf \x00\xc3')), max_size=3
    ),
)
def test_damaged_texts_are_rows_or_the_same_errors(
    case: tuple[JsonSchema, bytes], damage: list[tuple[int, int]]
) -> None:
    schema, text = case
    damaged = bytearray(text)
    for place, byte in damage:
        if place < len(damaged):
            damaged[place] = byte
    _, errors = decoded(schema, [bytes(damaged), text[: len(text) // 2]])
    try:
        json.loads(bytes(damaged).decode(), parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        assert 0 in errors


NUMBER = parse_json_schema('{"type": "object", "properties": {"x": {"type": "number"}}}')


@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
)
def test_numbers_are_rounded_correctly(text: str) -> None:
    rows, errors = decoded(NUMBER, [f'{{"x":{text}}}'.encode()])
    if math.isinf(float(text)):
        assert list(errors) == [0]
    else:
        assert rows == [{"x": float(text)}]
