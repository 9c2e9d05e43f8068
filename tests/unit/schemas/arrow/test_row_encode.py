"""The compiled loop that writes JSON and Protobuf, against the encoders in Python."""

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.schemas.arrow.json_arrow_encoder import JsonArrowEncoder, json_text_of
from ottla.schemas.arrow.protobuf_arrow import ProtobufArrowEncoder, protobuf_text_of
from ottla.schemas.json_schema.json_schema import JsonSchema, parse_json_schema
from ottla.schemas.protobuf.protobuf_schema import ProtobufSchema, parse_protobuf

pytestmark = pytest.mark.usefixtures("needs_compiled_loops")

PREFIX = b"\0\0\0\0\7"
Encoder = JsonArrowEncoder | ProtobufArrowEncoder

_TIMES = st.datetimes(timezones=st.just(dt.UTC))
_SPANS = st.timedeltas(dt.timedelta(-(10**6)), dt.timedelta(10**6))
_REALS = st.floats(allow_nan=False, allow_infinity=False)
_SINGLES = st.floats(allow_nan=False, allow_infinity=False, width=32)
COMMON: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): _SINGLES,
    pa.float64(): _REALS,
    pa.string(): st.text(),
    pa.large_string(): st.text(max_size=5),
    pa.string_view(): st.text(max_size=5),
    pa.binary(): st.binary(),
    pa.large_binary(): st.binary(max_size=5),
    pa.dictionary(pa.int8(), pa.string()): st.text(max_size=2),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): _TIMES,
    pa.timestamp("us", "Europe/Vienna"): _TIMES,
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("s", "UTC"): _TIMES.map(lambda at: at.replace(microsecond=0)),
    pa.decimal128(38, 0): st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    pa.decimal128(9, 3): st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-3)),
}
JSON_ONLY = {
    pa.time64("us"): st.times(),
    pa.time32("s"): st.times().map(lambda at: at.replace(microsecond=0)),
}
PROTOBUF_ONLY = {pa.duration("us"): _SPANS}
LISTS = (pa.list_, pa.large_list)


def fields(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    flags = st.booleans()
    return st.lists(st.tuples(kinds, flags), min_size=1, max_size=4).map(
        lambda found: [
            pa.field(f"f{place}", kind, nullable) for place, (kind, nullable) in enumerate(found)
        ]
    )


def _element(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.Field]:
    return st.builds(lambda kind, nullable: pa.field("e", kind, nullable), kinds, st.booleans())


def json_kinds() -> st.SearchStrategy[pa.DataType]:
    return st.recursive(
        st.sampled_from([*COMMON, *JSON_ONLY]),
        lambda inner: st.one_of(
            st.builds(lambda make, item: make(item), st.sampled_from(LISTS), _element(inner)),
            fields(inner).map(pa.struct),
            _element(inner).map(lambda item: pa.map_(pa.string(), item)),
        ),
        max_leaves=5,
    )


def protobuf_kinds() -> st.SearchStrategy[pa.DataType]:
    # Lists and maps have no lists and maps inside.
    plain = st.sampled_from([*COMMON, *PROTOBUF_ONLY])
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            fields(inner).map(pa.struct),
            st.builds(
                lambda make, item: make(item),
                st.sampled_from(LISTS),
                _element(st.one_of(plain, fields(inner).map(pa.struct))),
            ),
            st.builds(
                pa.map_,
                st.sampled_from([pa.string(), pa.int64(), pa.bool_()]),
                _element(st.one_of(plain, fields(inner).map(pa.struct))),
            ),
        ),
        max_leaves=4,
    )


def values_of(field: pa.Field) -> st.SearchStrategy[Any]:
    """Return values of a field; with nulls, where it may have them."""
    kind = field.type
    if pa.types.is_struct(kind):
        found: st.SearchStrategy[Any] = st.fixed_dictionaries(
            {inner.name: values_of(inner) for inner in kind}
        )
    elif pa.types.is_map(kind):
        pair = st.tuples(values_of(kind.key_field), values_of(kind.item_field))
        found = st.lists(pair, max_size=4, unique_by=lambda entry: entry[0])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = st.lists(values_of(kind.value_field), max_size=4)
    else:
        found = {**COMMON, **JSON_ONLY, **PROTOBUF_ONLY}[kind]
    return st.one_of(st.none(), found) if field.nullable else found


@st.composite
def batches(draw: st.DrawFn, kinds: st.SearchStrategy[pa.DataType]) -> pa.RecordBatch:
    """Return a slice of a batch, so that its columns have offsets."""
    schema = pa.schema(draw(fields(kinds)))
    row = st.fixed_dictionaries({field.name: values_of(field) for field in schema})
    whole = pa.RecordBatch.from_pylist(draw(st.lists(row, min_size=1, max_size=5)), schema)
    return whole.slice(draw(st.integers(0, whole.num_rows - 1)))


def encoded(encoder: Encoder, batch: pa.RecordBatch) -> tuple[pa.Array | None, pa.Array | str]:
    """Return the values of the loop, and the values or the error of Python."""
    assert encoder._rows is not None
    try:
        wanted: pa.Array | str = encoder._encode_objects(batch, PREFIX)
    except ValueError as error:
        wanted = str(error)
    found = encoder._rows.encode(batch, PREFIX)
    if found is not None:
        found.validate(full=True)
    return found, wanted


def bare(values: pa.Array) -> Iterator[bytes]:
    for value in values.to_pylist():
        assert value.startswith(PREFIX)
        yield value[len(PREFIX) :]


@given(batches(json_kinds()))
@settings(deadline=None)
def test_json_is_what_python_writes(batch: pa.RecordBatch) -> None:
    schema = parse_json_schema(json_text_of(batch.schema, "T"))
    found, wanted = encoded(JsonArrowEncoder(schema, batch.schema), batch)
    if found is None:
        # Integers above 64 signed bits are left to Python.
        assert "uint64" in str(batch.schema)
    else:
        assert not isinstance(wanted, str)
        assert [*map(_exact, bare(found))] == [*map(_exact, bare(wanted))]


def _exact(text: bytes) -> Any:
    """Parse JSON; the text of a number counts but for its exponent."""
    return json.loads(text, parse_float=lambda number: ("float", float(number)))


@given(batches(protobuf_kinds()))
@settings(deadline=None)
def test_messages_are_what_protobuf_writes(batch: pa.RecordBatch) -> None:
    schema = parse_protobuf(protobuf_text_of(batch.schema, "T"))
    found, wanted = encoded(ProtobufArrowEncoder(schema, batch.schema), batch)
    assert not isinstance(wanted, str)
    assert found is not None
    read = schema.message_class("T").FromString
    for mine, theirs in zip(bare(found), bare(wanted), strict=True):
        assert len(mine) == len(theirs)
        one, other = (read(each).SerializeToString(deterministic=True) for each in (mine, theirs))
        assert one == other
        if "map<" not in str(batch.schema):
            assert mine == theirs


PROTO2 = parse_protobuf("""
syntax = "proto2"; import "google/protobuf/wrappers.proto";
enum Closed { ONE = 1; MINUS = -3; }
message A { optional int32 i = 1; repeated int32 packed = 2 [packed = true]; repeated sint64 plain = 3;
  optional Closed e = 4; repeated Closed es = 5; optional fixed32 f = 6; optional sfixed64 g = 7;
  optional sint32 z = 8; optional google.protobuf.StringValue w = 9; repeated google.protobuf.Int64Value ws = 10;
  oneof o { string left = 11; string right = 12; } optional uint64 big = 5000; }
""")  # noqa: E501
ALL = pa.schema(
    {
        "big": pa.uint64(), "i": pa.int64(), "packed": pa.list_(pa.int32()),
        "plain": pa.list_(pa.int64()), "e": pa.string(), "es": pa.list_(pa.string()),
        "f": pa.uint32(), "g": pa.int64(), "z": pa.int32(), "w": pa.string(),
        "ws": pa.list_(pa.int64()), "left": pa.string(),
    }
)  # fmt: skip


def test_fields_of_every_kind_are_written_as_protobuf_writes_them() -> None:
    rows = [
        {"big": 2**64 - 1, "i": -1, "packed": [0, -1, None, 300], "plain": [None, -1, 2**62],
         "e": "MINUS", "es": ["ONE", "MINUS"], "f": 2**32 - 1, "g": -2, "z": -(2**31), "w": "",
         "ws": [0, 5], "left": ""},
        {"i": 0, "packed": [*range(200)], "w": "x" * 200, "ws": [None]},
        {"packed": []},
    ]  # fmt: skip
    batch = pa.RecordBatch.from_pylist(rows, ALL)
    found, wanted = encoded(ProtobufArrowEncoder(PROTO2, ALL), batch)
    assert found == wanted


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ({"i": pa.int64()}, {"i": 2**31}, "column 'i', row 1: .*out of range"),
        ({"e": pa.string()}, {"e": "TWO"}, "column 'e', row 1: 'TWO' is no value of Closed"),
        ({"f": pa.int64()}, {"f": -1}, "column 'f', row 1: .*out of range"),
    ],
)
def test_a_row_that_fits_no_message_has_the_error_of_python(
    kind: dict[str, pa.DataType], value: Any, reason: str
) -> None:
    batch = pa.RecordBatch.from_pylist([{}, value], pa.schema(kind))
    encoder = ProtobufArrowEncoder(PROTO2, batch.schema)
    assert encoded(encoder, batch)[0] is None
    with pytest.raises(ValueError, match=reason):
        encoder.encode(batch)


def test_columns_without_a_step_are_written_by_python() -> None:
    both = pa.schema({"left": pa.string(), "right": pa.string()})
    encoder = ProtobufArrowEncoder(PROTO2, both)
    assert encoder._rows is None
    (value,) = encoder.encode(pa.RecordBatch.from_pylist([{"left": "a", "right": "b"}], both))
    assert PROTO2.message_class("A").FromString(value.as_py()).WhichOneof("o") == "right"
    precise = pa.schema({"at": pa.timestamp("ns", "UTC")})
    schema = parse_json_schema(json_text_of(precise, "T"))
    assert JsonArrowEncoder(schema, precise)._rows is None


REQUIRED = parse_json_schema(
    '{"type":"object","properties":{"x":{"type":"array","items":{"type":"number"}},'
    '"k":{"type":"object","additionalProperties":{"type":"integer"}}},"required":["x"]}'
)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"x": None}, "row 1: column /x: the value is null, but required"),
        ({"x": [1.0, None]}, "row 1: column /x/item: the value is null"),
        ({"x": [float("inf")]}, "row 1: column /x/item: JSON has no inf"),
        ({"x": [], "k": [("a", None)]}, "row 1: column /k/value: the value is null"),
    ],
)
def test_a_row_that_fits_no_json_schema_has_the_error_of_python(row: Any, reason: str) -> None:
    schema = pa.schema({"x": pa.list_(pa.float64()), "k": pa.map_(pa.string(), pa.int64())})
    batch = pa.RecordBatch.from_pylist([{"x": [0.0]}, row], schema)
    encoder = JsonArrowEncoder(REQUIRED, schema)
    assert encoded(encoder, batch)[0] is None
    with pytest.raises(ValueError, match=reason):
        encoder.encode(batch)


@pytest.mark.parametrize("count", [2, 40])
def test_the_last_of_equal_keys_counts(count: int) -> None:
    schema = pa.schema({"x": pa.list_(pa.float64()), "k": pa.map_(pa.string(), pa.int64())})
    pairs = [("a", 1), *((f"k{n}", n) for n in range(count)), ("a", 2)]
    batch = pa.RecordBatch.from_pylist([{"x": [], "k": pairs}], schema)
    (value,) = JsonArrowEncoder(REQUIRED, schema).encode(batch).to_pylist()
    assert json.loads(value)["k"] == dict(pairs)
    assert value.count(b'"a"') == 1


def test_a_schema_of_single_values_is_written_without_an_object() -> None:
    schema = parse_json_schema('{"type":["integer","null"]}')
    batch = pa.RecordBatch.from_pydict({"value": pa.array([7, None], pa.int64())})
    found, wanted = encoded(JsonArrowEncoder(schema, batch.schema), batch)
    assert found == wanted
    assert [*bare(found)] == [b"7", b"null"]


def _json(schema: pa.Schema) -> JsonSchema:
    return parse_json_schema(json_text_of(schema, "T"))


def _protobuf(schema: pa.Schema) -> ProtobufSchema:
    return parse_protobuf(protobuf_text_of(schema, "T"))


def test_no_rows_are_no_values() -> None:
    schema = pa.schema({"x": pa.list_(pa.string()), "y": pa.float64()})
    batch = pa.RecordBatch.from_pylist([], schema)
    assert len(JsonArrowEncoder(_json(schema), schema).encode(batch)) == 0
    assert len(ProtobufArrowEncoder(_protobuf(schema), schema).encode(batch)) == 0
