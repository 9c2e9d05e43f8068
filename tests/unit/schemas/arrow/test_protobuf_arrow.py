"""Protobuf values as Arrow columns and back."""

import datetime as dt
import struct
from decimal import Decimal
from importlib import import_module
from typing import Any

import ptars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.schemas.arrow import _protobuf_decode_python, protobuf_arrow
from ottla.schemas.arrow.arrow_codec import DecodedValues
from ottla.schemas.arrow.protobuf_arrow import (
    ProtobufArrowDecoder,
    ProtobufArrowEncoder,
    arrow_schema_of,
    protobuf_text_of,
)
from ottla.schemas.protobuf.protobuf_schema import ProtobufSchema, parse_protobuf
from tests.examples import examples

pytestmark = pytest.mark.usefixtures("needs_compiled_loops")

EVERYTHING = parse_protobuf("""
syntax = "proto2"; package t;
import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto"; import "confluent/type/decimal.proto";
import "confluent/meta.proto";
enum Closed { ONE = 1; TWO = 2; MINUS = -3; } enum Zero { ZERO = 0; NINE = 9; }
message All {
  optional int32 i32 = 1; optional sint64 s64 = 2; optional fixed32 f32 = 3; optional double d = 4;
  optional string s = 5; optional bytes b = 6; optional bool t = 7; optional Closed e = 8;
  repeated int32 ri = 9; repeated Closed re = 10; repeated string rs = 11;
  optional Inner m = 12; repeated Inner rm = 13; optional All self = 14;
  oneof o { int64 oi = 15; Inner om = 16; string os = 17; }
  map<string, Inner> mm = 18; map<sint32, Zero> me = 19;
  optional google.protobuf.Timestamp ts = 20; optional google.protobuf.Duration du = 21;
  optional google.protobuf.StringValue w = 22; repeated google.protobuf.Int64Value rw = 23;
  optional confluent.type.Decimal dec = 24
    [(confluent.field_meta) = { params { key: "precision" value: "6" } params { key: "scale" value: "2" } }];
  optional group G = 25 { optional uint64 x = 1; }
  optional int32 far = 5000;
  message Inner { optional sfixed64 x = 1; repeated double y = 2; optional Inner z = 3; optional uint32 u = 4; }
}
""")  # noqa: E501
PROTO3 = parse_protobuf("""
syntax = "proto3";
enum Open { ZERO = 0; ONE = 1; }
message A { int32 i = 1; string s = 2; Open e = 3; repeated Open r = 4; optional int32 o = 5; B b = 6;
  map<string, B> m = 7; oneof c { bool t = 8; B cb = 9; } message B { int32 x = 1; } }
""")  # noqa: E501


def compiled_loop() -> Any:
    """Return the compiled loop, which does not exist without a C compiler."""
    return import_module("ottla.schemas.arrow._protobuf_decode")


@pytest.fixture(params=["compiled", "plain"])
def _loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    module = compiled_loop() if request.param == "compiled" else _protobuf_decode_python
    monkeypatch.setattr(protobuf_arrow, "Columns", module.Columns)


def decode(schema: ProtobufSchema, values: list[bytes | None], skip: int = 0) -> DecodedValues:
    found = ProtobufArrowDecoder(schema, schema).decode(pa.array(values, pa.binary()), skip)
    found.batch.validate(full=True)
    return found


def both(schema: ProtobufSchema, values: list[bytes | None]) -> DecodedValues:
    """Decode with both loops, which must agree."""
    found = []
    for module in (compiled_loop(), _protobuf_decode_python):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(protobuf_arrow, "Columns", module.Columns)
            found.append(decode(schema, values))
    assert found[0].errors == found[1].errors
    # NaN differs from itself, so the bytes of the columns are compared.
    assert [_buffers(column) for column in found[0].batch.columns] == [
        _buffers(column) for column in found[1].batch.columns
    ]
    return found[0]


def _buffers(array: pa.Array) -> list[bytes | None]:
    return [None if buffer is None else buffer.to_pybytes() for buffer in array.buffers()]


@pytest.mark.usefixtures("_loop")
def test_presence_decides_between_null_and_default() -> None:
    (row,) = decode(PROTO3, [b""]).batch.to_pylist()
    assert row == {
        "i": 0, "s": "", "e": "ZERO", "r": [], "o": None, "b": None, "m": [], "t": None, "cb": None
    }  # fmt: skip
    message = PROTO3.message_class("A")(o=0, t=False, e=7, b={}, m={"k": {}})
    (row,) = decode(PROTO3, [message.SerializeToString()]).batch.to_pylist()
    assert row == {
        "i": 0, "s": "", "e": "7", "r": [], "o": 0, "b": {"x": 0}, "m": [("k", {"x": 0})],
        "t": False, "cb": None,
    }  # fmt: skip


@pytest.mark.usefixtures("_loop")
def test_tombstones_are_rows_of_nulls_and_wrong_values_leave_no_trace() -> None:
    cls = EVERYTHING.message_class("t.All")
    good = cls(i32=1, rs=["a"], rm=[{"y": [1.5]}]).SerializeToString()
    wrong = good + cls(rs=["zz"], rm=[{"y": [2.5]}]).SerializeToString() + b"\x2a\x01\xff"
    found = decode(EVERYTHING, [good, None, wrong, good[:-1], good])
    assert found.errors == {
        2: "a string is not UTF-8",
        3: "the value ends inside a field",
    }
    rows = found.batch.to_pylist()
    assert rows[0] == rows[4]
    assert rows[0]["rm"][0]["y"] == [1.5]
    assert set(rows[1].values()) == set(rows[2].values()) == set(rows[3].values()) == {None}


@pytest.mark.usefixtures("_loop")
def test_well_known_types_are_arrows_own() -> None:
    message = EVERYTHING.message_class("t.All")()
    message.ts.FromDatetime(dt.datetime(1900, 1, 1, microsecond=7, tzinfo=dt.UTC))
    message.du.FromTimedelta(dt.timedelta(microseconds=-1))
    message.w.value = ""
    message.dec.value, message.dec.scale = (-12345).to_bytes(2, "big", signed=True), 3
    good = EVERYTHING.message_class("t.All")()
    good.CopyFrom(message)
    good.dec.value = (-12340).to_bytes(2, "big", signed=True)
    found = decode(EVERYTHING, [good.SerializeToString(), message.SerializeToString()])
    row = found.batch.to_pylist()[0]
    assert row["ts"] == dt.datetime(1900, 1, 1, microsecond=7, tzinfo=dt.UTC)
    assert row["du"] == dt.timedelta(microseconds=-1)
    assert row["w"] == ""
    assert row["dec"] == Decimal("-12.34")
    assert found.errors == {1: "a decimal does not fit the column's precision and scale"}


@pytest.mark.usefixtures("_loop")
def test_split_messages_are_merged_and_oneofs_keep_the_last_member() -> None:
    cls = EVERYTHING.message_class("t.All")
    parts = [cls(m={"x": 1}), cls(om={"x": 5}), cls(m={"y": [1]}), cls(os="s"), cls(om={"u": 2})]
    value = b"".join(part.SerializeToString() for part in parts)
    row = decode(EVERYTHING, [value]).batch.to_pylist()[0]
    assert row["m"] == {"x": 1, "y": [1.0], "z": None, "u": None}
    assert row["os"] is None
    assert row["om"] == {"x": None, "y": [], "z": None, "u": 2}


@pytest.mark.usefixtures("_loop")
def test_slices_large_arrays_and_a_skipped_prefix() -> None:
    values = [b"\0\0\0\0\1\0" + bytes((8, number)) for number in range(5)] + [b"\0"]
    decoder = ProtobufArrowDecoder(PROTO3, PROTO3)
    for kind in (pa.binary(), pa.large_binary()):
        found = decoder.decode(pa.array([b"x", *values], kind).slice(2), 6)
        assert found.batch.column("i").to_pylist() == [1, 2, 3, 4, None]
        assert found.errors == {4: "the value ends inside a field"}
        assert decoder.decode(pa.array([], kind)).batch.num_rows == 0


@pytest.mark.usefixtures("_loop")
def test_a_value_with_too_many_cells_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = " ".join(f"int32 f{number} = {number};" for number in range(1, 500))
    schema = parse_protobuf(
        f"syntax = 'proto3'; message A {{ repeated B b = 1; }} message B {{ {fields} }}"
    )
    monkeypatch.setattr(_protobuf_decode_python, "CELLS_PER_VALUE_MAX", 10_000)
    count = 40_000 if protobuf_arrow.Columns is compiled_loop().Columns else 100
    found = decode(schema, [b"\x0a\x00" * count])
    assert found.errors == {0: "the value has more than 16777216 cells"}


def test_a_message_with_too_many_columns_is_refused() -> None:
    messages = " ".join(
        f"message M{level} {{ {' '.join(f'M{level + 1} f{n} = {n};' for n in range(1, 11))} }}"
        for level in range(9)
    )
    schema = parse_protobuf(f"syntax = 'proto3'; {messages} message M9 {{ int32 x = 1; }}")
    with pytest.raises(ValueError, match="more than 10000 columns"):
        arrow_schema_of(schema)


def test_deep_groups_of_unknown_fields_are_refused() -> None:
    found = both(PROTO3, [b"\xa3\x06" * 100_000, b"\xa3\x06" * 100 + b"\xa4\x06" * 100])
    assert found.errors == {0: "groups are nested more than 100 deep"}


def _field(number: int, wire: int, content: bytes) -> bytes:
    tag, found = number << 3 | wire, bytearray()
    for value in [tag] if wire != 2 else [tag, len(content)]:
        while value > 0x7F:
            found.append(value & 0x7F | 0x80)
            value >>= 7  # noqa: PLW2901
        found.append(value)
    return bytes(found) + content


_NUMBERS = st.sampled_from([*range(1, 26), 100, 5000])
_VARINTS = st.binary(min_size=0, max_size=10).map(
    lambda data: bytes(byte | 0x80 for byte in data[:9]) + bytes((data[-1] & 1 if data else 5,))
)
_SIMPLE = st.one_of(
    st.tuples(_NUMBERS, st.just(0), _VARINTS),
    st.tuples(_NUMBERS, st.just(1), st.binary(min_size=8, max_size=8)),
    st.tuples(_NUMBERS, st.just(5), st.binary(min_size=4, max_size=4)),
    st.tuples(_NUMBERS, st.just(2), st.text(max_size=5).map(str.encode)),
    st.tuples(_NUMBERS, st.just(2), st.binary(max_size=6)),
).map(lambda field: _field(*field))
_FIELDS = st.recursive(
    st.lists(_SIMPLE, max_size=4).map(b"".join),
    lambda inner: st.lists(
        st.one_of(
            _SIMPLE,
            st.builds(lambda number, data: _field(number, 2, data), _NUMBERS, inner),
            st.builds(lambda data: _field(25, 3, data) + _field(25, 4, b""), inner),
        ),
        max_size=6,
    ).map(b"".join),
    max_leaves=8,
)


@given(st.lists(st.one_of(st.none(), _FIELDS, st.binary(max_size=20)), max_size=6))
@settings(max_examples=examples(100), deadline=None)
def test_both_loops_agree_on_every_byte_string(values: list[bytes | None]) -> None:
    found = both(EVERYTHING, values)
    assert found.batch.num_rows == len(values)


@given(_FIELDS)
@settings(max_examples=examples(100), deadline=None)
def test_rows_are_the_messages_that_protobuf_reads(value: bytes) -> None:
    found = decode(EVERYTHING, [value])
    if found.errors:
        return
    try:
        message = EVERYTHING.message_class("t.All").FromString(value)
    except Exception:  # noqa: BLE001 - Protobuf also checks members that a oneof has dropped
        return
    row = found.batch.to_pylist()[0]
    for name in ("i32", "s64", "f32", "s", "b", "t", "oi", "os", "far"):
        assert row[name] == (getattr(message, name) if message.HasField(name) else None)
    assert struct.pack("<d", row["d"] or 0) == struct.pack("<d", message.d or 0)
    assert row["ri"] == list(message.ri)
    assert row["rs"] == list(message.rs)
    names = EVERYTHING.pool.FindEnumTypeByName("t.Closed").values_by_number
    assert row["re"] == [names[number].name for number in message.re]
    assert (row["m"] is None) == (not message.HasField("m"))
    if message.HasField("m"):
        assert row["m"]["x"] == (message.m.x if message.m.HasField("x") else None)
        assert len(row["m"]["y"]) == len(message.m.y)
    assert len(row["rm"]) == len(message.rm)
    # Protobuf's reader drops entries that have unknown fields.
    assert dict(message.mm).keys() <= dict(row["mm"]).keys()
    wanted = {"x": message.g.x if message.g.HasField("x") else None}
    assert row["g"] == (wanted if message.HasField("g") else None)


TABLE = pa.schema(
    [
        ("id", pa.int64()),
        pa.field("count", pa.int32(), nullable=False),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
        ("took", pa.duration("us")),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("sizes", pa.map_(pa.string(), pa.float64())),
        ("place", pa.struct([("x", pa.float32()), ("names", pa.list_(pa.string()))])),
        ("lines", pa.list_(pa.struct([("ok", pa.bool_())]))),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "id": 1, "count": 2, "name": "n", "raw": b"\xff",
        "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        "took": dt.timedelta(seconds=-1.5), "price": Decimal("-0.01"), "tags": ["x", "y"],
        "sizes": [("a", 1.5)], "place": {"x": 0.5, "names": []},
        "lines": [{"ok": True}, {"ok": None}],
    },
    {
        "id": None, "count": 0, "name": None, "raw": None, "at": None, "took": None, "price": None,
        "tags": [], "sizes": [], "place": None, "lines": [],
    },
]  # fmt: skip


@pytest.mark.usefixtures("_loop")
def test_a_table_makes_its_schema_and_comes_back() -> None:
    schema = parse_protobuf(protobuf_text_of(TABLE, "shop.Order"))
    assert schema.record_name == "shop.Order"
    encoder = ProtobufArrowEncoder(schema, TABLE)
    values = encoder.encode(pa.RecordBatch.from_pylist(ROWS, TABLE), b"\0\0\0\0\1\0")
    found = ProtobufArrowDecoder(schema, schema).decode(values, 6)
    assert found.batch.to_pylist() == ROWS
    assert not found.errors


def test_columns_that_do_not_fit_are_named() -> None:
    schema = parse_protobuf(protobuf_text_of(TABLE, "Order"))
    with pytest.raises(ValueError, match="no field 'nope'"):
        ProtobufArrowEncoder(schema, pa.schema([("nope", pa.int32())]))
    wide = pa.schema([("count", pa.int64())])
    batch = pa.RecordBatch.from_pydict({"count": [1, 2**40]}, wide)
    with pytest.raises(ValueError, match="column 'count', row 1"):
        ProtobufArrowEncoder(schema, wide).encode(batch)
    for column, kind in {"a b": pa.int32(), "t": pa.time64("us")}.items():
        with pytest.raises(ValueError, match=f"column '{column}'"):
            protobuf_text_of(pa.schema([(column, kind)]), "A")


def test_ptars_reads_the_same_columns() -> None:
    schema = parse_protobuf("""
    syntax = "proto3"; import "google/protobuf/timestamp.proto"; enum E { Z = 0; Y = 1; }
    message A { int64 i = 1; sint32 s = 2; string t = 3; double d = 4; bool b = 5; E e = 6;
      google.protobuf.Timestamp at = 7; B m = 8; repeated fixed64 r = 9; repeated B rm = 10;
      optional uint32 o = 11; map<string, int32> z = 12; bytes y = 13; }
    message B { float x = 1; string n = 2; }
    """)
    cls = schema.message_class("A")
    full = cls(i=-1, s=-2, t="ž", d=0.5, b=True, e=1, at={"seconds": -5, "nanos": 1000}, m={"x": 2},
               r=[1, 2**64 - 1], rm=[{"n": "q"}, {}], o=0, z={"k": -1}, y=b"\xff")  # fmt: skip
    values = [full.SerializeToString(), b""]
    config = ptars.PtarsConfig(timestamp_unit="us", enum_repr="string")
    pool = ptars.HandlerPool([cls.DESCRIPTOR.file], config=config)
    wanted = pool.get_for_message(cls.DESCRIPTOR).list_to_record_batch(values)
    assert decode(schema, values).batch.to_pylist() == wanted.to_pylist()
