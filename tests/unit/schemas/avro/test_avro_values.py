"""Avro data as Python values, and the limits of hostile payloads."""

import dataclasses
import datetime
import decimal
import enum
import json
import uuid
from typing import Any

import pytest

from ottla.schemas.avro.avro_plan import plan_reading
from ottla.schemas.avro.avro_schema import AvroSchema, parse_avro
from ottla.schemas.avro.avro_values import AvroReader, AvroWriter, InvalidValueError
from tests.avro_twins import both_read

UTC = datetime.UTC
MOMENT = datetime.datetime(2026, 3, 4, 5, 6, 7, 891234, tzinfo=UTC)


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, of_type: Any = "int", **attributes: Any) -> dict[str, Any]:
    return {"name": name, "type": of_type, **attributes}


def logical(of_type: str, name: str, **attributes: Any) -> dict[str, Any]:
    return {"type": of_type, "logicalType": name, **attributes}


def parse(schema: Any) -> AvroSchema:
    return parse_avro(json.dumps(schema))


def write(schema: Any, value: Any) -> bytes:
    return AvroWriter(parse(schema)).write(value)


def read(writer: Any, reader: Any, payload: bytes) -> Any:
    return AvroReader(parse(writer), parse(reader)).read(payload)


def evolved(writer: Any, reader: Any, value: Any) -> Any:
    return read(writer, reader, write(writer, value))


def round_trip(schema: Any, value: Any) -> Any:
    return evolved(schema, schema, value)


DECIMAL = logical("bytes", "decimal", precision=6, scale=2)


@pytest.mark.parametrize(
    ("of_type", "value"),
    [
        (logical("int", "date"), datetime.date(1969, 12, 31)),
        (logical("int", "time-millis"), datetime.time(1, 2, 3, 4000)),
        (logical("long", "time-micros"), datetime.time(23, 59, 59, 999999)),
        (logical("long", "timestamp-millis"), MOMENT.replace(microsecond=891000)),
        (logical("long", "timestamp-micros"), MOMENT),
        (logical("long", "timestamp-micros"), datetime.datetime.max.replace(tzinfo=UTC)),
        (logical("long", "timestamp-micros"), datetime.datetime.min.replace(tzinfo=UTC)),
        (logical("long", "local-timestamp-millis"), datetime.datetime(1, 1, 1)),  # noqa: DTZ001
        (logical("long", "local-timestamp-micros"), MOMENT.replace(tzinfo=None)),
        (logical("string", "uuid"), uuid.UUID(int=1)),
        ({"name": "U", "size": 16} | logical("fixed", "uuid"), uuid.UUID(int=2**127)),
        (DECIMAL, decimal.Decimal("-1234.56")),
        (DECIMAL, decimal.Decimal("0.00")),
        ({"name": "D", "size": 3} | DECIMAL | {"type": "fixed"}, decimal.Decimal("1234.56")),
        ({"name": "L", "size": 12} | logical("fixed", "duration"), b"123456789012"),
        (logical("long", "timestamp-nanos"), 1_700_000_000_123_456_789),
    ],
)
def test_logical_types_are_python_types(of_type: Any, value: Any) -> None:
    found = round_trip(of_type, value)
    assert found == value
    assert type(found) is type(value)


def test_a_datetime_without_a_zone_is_in_utc_and_others_are_converted() -> None:
    of_type = logical("long", "timestamp-micros")
    assert round_trip(of_type, MOMENT.replace(tzinfo=None)) == MOMENT
    east = MOMENT.astimezone(datetime.timezone(datetime.timedelta(hours=9)))
    assert round_trip(of_type, east) == MOMENT
    assert round_trip(logical("long", "timestamp-nanos"), MOMENT) == 1772600767891234000


def test_raw_numbers_texts_and_bytes_are_written_as_they_are() -> None:
    assert round_trip(logical("int", "date"), 0) == datetime.date(1970, 1, 1)
    assert round_trip(logical("string", "uuid"), str(uuid.UUID(int=7))) == uuid.UUID(int=7)
    assert round_trip(DECIMAL, b"\x01") == decimal.Decimal("0.01")
    assert round_trip(DECIMAL, 12) == 12


def test_fields_are_in_the_order_of_the_reader_with_defaults() -> None:
    writer = record(field("gone", "string"), field("b"), field("old", "float"))
    reader = record(
        field("items", {"type": "array", "items": "int"}, default=[1, 2]),
        field("new", "double", aliases=["old"]),
        field("data", "bytes", default="\u00ff"),
        field("b", "long"),
        field("when", ["null", logical("int", "date")], default=None),
        field("day", logical("int", "date"), default=1),
    )
    decoder = AvroReader(parse(writer), parse(reader))
    payload = write(writer, {"gone": "x", "b": 5, "old": 0.5})
    first = decoder.read(payload)
    assert list(first.items()) == [
        ("items", [1, 2]),
        ("new", 0.5),
        ("data", b"\xff"),
        ("b", 5),
        ("when", None),
        ("day", datetime.date(1970, 1, 2)),
    ]
    first["items"].append(3)
    assert decoder.read(payload)["items"] == [1, 2]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int", "double", 5, 5.0),
        ("long", ["null", "float"], 5, 5.0),
        ("bytes", "string", b"text", "text"),
        ("string", "bytes", "text", b"text"),
        (["null", "string"], "string", "x", "x"),
        (["null", "int"], ["string", "long", "null"], 7, 7),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "E", "symbols": ["A", "Z"], "default": "Z"},
            "B",
            "Z",
        ),
        (DECIMAL, DECIMAL | {"precision": 9, "scale": 4}, decimal.Decimal("1.5"), 1.5),
        (DECIMAL, "bytes", decimal.Decimal("0.01"), b"\x01"),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), MOMENT,
         MOMENT.replace(microsecond=891000)),
        (logical("long", "timestamp-micros"), logical("long", "timestamp-nanos"), 5, 5000),
        ("long", logical("long", "timestamp-millis"), 0,
         datetime.datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)  # fmt: skip
def test_values_of_another_schema(writer: Any, reader: Any, value: Any, expected: Any) -> None:
    found = evolved(writer, reader, value)
    assert found == expected


def test_a_recursive_record_is_read_with_another_schema() -> None:
    writer = record(field("v"), field("next", ["null", "R"]))
    reader = record(field("next", ["null", "R"]), field("v", "long"), field("n", default=0))
    value = {"v": 1, "next": {"v": 2, "next": None}}
    assert evolved(writer, reader, value) == {
        "next": {"next": None, "v": 2, "n": 0}, "v": 1, "n": 0,
    }  # fmt: skip


class Color(enum.Enum):
    RED = "red"
    BLUE = "BLUE"


@dataclasses.dataclass
class Point:
    x: int
    y: float


def test_records_are_written_from_objects_and_defaults() -> None:
    schema = record(field("x"), field("y", "double"), field("z", "string", default="z"))
    assert round_trip(schema, Point(1, 2)) == {"x": 1, "y": 2.0, "z": "z"}
    assert round_trip({"type": "enum", "name": "E", "symbols": ["RED", "BLUE"]}, Color.RED) == "RED"


POINT = record(field("x"), field("y", "double"), name="n.Point")
NAMED = record(field("name", "string"), name="n.Named")
SYMBOLS = {"type": "enum", "name": "E", "symbols": ["A"]}


@pytest.mark.parametrize(
    ("union", "value", "index"),
    [
        (["null", "int"], None, 0),
        (["int", "long"], 2**40, 1),
        (["int", "long"], 5, 0),
        (["float", "string"], 5, 0),
        (["long", "double"], 5.0, 1),
        (["boolean", "int"], True, 0),
        (["int", "boolean"], True, 1),
        ([SYMBOLS, "string"], "A", 0),
        ([SYMBOLS, "string"], "B", 1),
        (["string", "bytes"], b"x", 1),
        (["bytes", {"type": "fixed", "name": "F", "size": 2}], b"xx", 0),
        ([{"type": "fixed", "name": "F", "size": 2}, "bytes"], b"xxx", 1),
        (["string", logical("long", "timestamp-micros")], MOMENT, 1),
        (["string", logical("int", "date")], MOMENT.date(), 1),
        (["null", logical("string", "uuid")], uuid.UUID(int=1), 1),
        ([POINT, NAMED], {"name": "x"}, 1),
        ([NAMED, POINT], {"x": 1, "y": 2}, 1),
        ([NAMED, POINT], Point(1, 2), 1),
        ([NAMED, POINT], ("n.Point", {"x": 1, "y": 2}), 1),
        ([NAMED, POINT], {"-type": "n.Point", "x": 1, "y": 2}, 1),
        (["int", "long"], ("long", 5), 1),
        (["null", {"type": "array", "items": "int"}], (1, 2), 1),
        (["null", {"type": "map", "values": "int"}], {"a": 1}, 1),
    ],
)
def test_the_branch_of_a_union(union: Any, value: Any, index: int) -> None:
    assert write(union, value)[0] == index * 2


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ("int", 2**31, "an int of 32 bits"),
        ("int", True, "an int of 32 bits"),
        ("long", -(2**63) - 1, "an int of 64 bits"),
        ("long", 1.0, "an int of 64 bits"),
        ("float", 1e300, "a float that fits"),
        ("double", 10**400, "a float that fits"),
        ("double", "1", "a float that fits"),
        ("boolean", 1, "must be a bool"),
        ("string", b"x", "must be a str"),
        ("string", "\ud800", "surrogates not allowed"),
        ("bytes", "x", "must be bytes"),
        ("null", 0, "must be None"),
        ({"type": "fixed", "name": "F", "size": 2}, b"x", "the size of the fixed type"),
        (SYMBOLS, "B", "not a symbol"),
        ({"type": "array", "items": "int"}, "text", "must be a list"),
        ({"type": "array", "items": "int"}, [1, "x"], r"\(at /1\)"),
        ({"type": "map", "values": "int"}, {"a": 1, "b": "x"}, r"\(at /b\)"),
        ({"type": "map", "values": "int"}, {1: 1}, "must be a str"),
        (record(field("a")), {}, r"missing and has no default \(at /a\)"),
        (record(field("a")), None, "must be a dict"),
        (record(field("a", record(field("b"), name="I"))), {"a": {"b": "x"}}, r"\(at /a/b\)"),
        (["null", "int"], "x", "No branch of the union takes a value of type str: null, int"),
        (DECIMAL, decimal.Decimal("12345.67"), "more digits than the precision 6"),
        (DECIMAL, decimal.Decimal("1E+999999"), "more digits than the precision 6"),
        (DECIMAL, decimal.Decimal("0.001"), "more than 2 decimal places"),
        (DECIMAL, decimal.Decimal("NaN"), "not a number"),
        (DECIMAL, 1.5, "must be a Decimal"),
        (logical("int", "date"), "2026-01-01", "an int of 32 bits"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_place(
    schema: Any, value: Any, reason: str
) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        write(schema, value)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["next"] = value
    with pytest.raises(InvalidValueError, match="more than 200 levels"):
        write(record(field("next", ["null", "R"])), value)


TREE = record(field("inside", {"type": "array", "items": "R"}))
HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"


@pytest.mark.parametrize(
    ("schema", "payload", "reason"),
    [
        ("int", b"", "ends before"),
        ("int", b"\xff\xff\xff\xff\xff\x01", "too large for its type"),
        ("long", b"\xff" * 9 + b"\x7f", "more than ten bytes"),
        ("long", b"\x80", "ends before"),
        ("string", b"\x01", "A length is negative"),
        ("string", HUGE, "larger than the payload"),
        ("bytes", b"\x08abc", "larger than the payload"),
        ("string", b"\x02\xff", "can't decode"),
        ("double", b"1234567", "ends before"),
        ("boolean", b"\x02", "neither 0 nor 1"),
        ({"type": "fixed", "name": "F", "size": 2**30}, b"x", "ends before"),
        (SYMBOLS, b"\x02", "symbol is out of range"),
        (SYMBOLS, b"\x01", "symbol is out of range"),
        (["null", "int"], b"\x04", "branch is out of range"),
        (["null", "int"], b"\x01", "branch is out of range"),
        ("null", b"x", "bytes after the value"),
        ({"type": "array", "items": "int"}, HUGE, r"ends before .*\(at /0\)"),
        ({"type": "array", "items": "null"}, HUGE, "too many values without bytes"),
        ({"type": "array", "items": record()}, HUGE + b"\x00", "too many values without bytes"),
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\x01\x00", "out of range"),
        ({"type": "map", "values": "null"}, HUGE, "ends before"),
        (record(field("next", ["null", "R"])), b"\x02" * 500_000, "more than 200 levels"),
        (TREE, b"\x02" * 500_000, "more than 200 levels"),
        (record(field("again", "R")), b"", "more than 200 levels"),
        (record(field("a"), field("b", "string")), b"\x02\x09", r"\(at /b\)"),
        (logical("int", "date"), b"\xfe\xff\xff\xff\x0f", "years 1 to 9999"),
        (logical("long", "timestamp-millis"), HUGE, "years 1 to 9999"),
        (logical("long", "timestamp-micros"), HUGE, "years 1 to 9999"),
        (logical("int", "time-millis"), b"\x01", "not within a day"),
        (logical("string", "uuid"), b"\x02x", "badly formed"),
        (DECIMAL, b"\xd0\x0f" + b"\x01" * 1000, "A decimal has 1000 bytes"),
    ],
)
def test_a_hostile_payload_ends_in_one_error(schema: Any, payload: bytes, reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        read(schema, schema, payload)


def test_a_small_payload_does_not_become_many_defaults() -> None:
    writer = {"type": "array", "items": record(field("a"))}
    wide = {"type": "array", "items": "int"}
    reader = {
        "type": "array",
        "items": record(field("a"), field("b", wide, default=list(range(50_000)))),
    }
    payload = write(writer, [{"a": 1}] * 100)
    with pytest.raises(InvalidValueError, match="too many values without bytes"):
        read(writer, reader, payload)


def test_a_block_with_its_size_in_bytes_is_read() -> None:
    payload = b"\x03\x04\x02\x04\x02\x06\x00"
    assert read({"type": "array", "items": "int"}, {"type": "array", "items": "int"}, payload) == [
        1, 2, 3,
    ]  # fmt: skip


def test_payloads_are_any_buffer_from_any_start_and_prefixes_are_kept() -> None:
    schema = parse("string")
    payload = AvroWriter(schema).write("text" * 300, b"\x00\x00\x00\x00\x07")
    reader = AvroReader(schema)
    for buffer in (payload, bytearray(payload), memoryview(payload)):
        assert reader.read(buffer, 5) == "text" * 300
    for start in (-1, len(payload) + 1):
        with pytest.raises(InvalidValueError):
            reader.read(payload, start)
    with pytest.raises(InvalidValueError):
        reader.read(memoryview(payload)[::2])


FIRST_DAY, LAST_DAY = -719_162, 2_932_896
DAY_MICROSECONDS = 86_400_000_000


@pytest.mark.usefixtures("needs_compiled_loops")
@pytest.mark.parametrize(("name", "unit"), [("timestamp-micros", 1), ("timestamp-millis", 1000)])
@pytest.mark.parametrize("day", [FIRST_DAY, LAST_DAY + 1])
def test_both_loops_read_the_same_timestamps_at_the_ends_of_the_calendar(
    name: str, unit: int, day: int
) -> None:
    schema = parse(logical("long", name))
    plan = plan_reading(schema.root, schema.root)
    for near in range(-2, 3):
        assert both_read(plan, write("long", day * DAY_MICROSECONDS // unit + near))


class LaterDatetime(datetime.datetime):
    """A subclass, as libraries of tables have them."""


def test_subclasses_of_datetime_are_written() -> None:
    later = LaterDatetime(2026, 3, 4, 5, 6, 7, 891234, tzinfo=UTC)
    assert round_trip(logical("long", "timestamp-micros"), later) == MOMENT
