"""Which schemas can read data of which others, by the names of Confluent's rules."""

import json
from typing import Any

import pytest

from ottla.schemas.avro import avro_compatibility
from ottla.schemas.avro.avro_schema import AvroSchema, parse_avro
from ottla.schemas.avro.avro_values import AvroReader, InvalidValueError

MISSING_DEFAULT = "READER_FIELD_MISSING_DEFAULT_VALUE"
NULL_INT = ["null", "int"]


def record(*fields: dict[str, Any], name: str = "R", **attributes: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **attributes}


def field(name: str, of_type: Any = "int", **attributes: Any) -> dict[str, Any]:
    return {"name": name, "type": of_type, **attributes}


def enum(*symbols: str, name: str = "E", **attributes: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **attributes}


def fixed(size: int, name: str = "F", **attributes: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **attributes}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def a_map(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def parse(schema: Any) -> AvroSchema:
    return parse_avro(json.dumps(schema))


def reasons(reader: Any, writer: Any) -> list[tuple[str, str]]:
    return [(each.rule, each.path) for each in parse(reader).reading(parse(writer))]


LIST = record(field("value"), field("next", ["null", "R"]))
DATE = {"type": "int", "logicalType": "date"}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    attributes = {"precision": precision, "scale": scale}
    return {"type": "bytes", "logicalType": "decimal", **attributes}


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        pytest.param("long", "int", id="int is read as long"),
        pytest.param("double", "long", id="long is read as double"),
        pytest.param("double", "float", id="float is read as double"),
        pytest.param("string", "bytes", id="bytes are read as string"),
        pytest.param("bytes", "string", id="string is read as bytes"),
        pytest.param(array("long"), array("int"), id="items are promoted"),
        pytest.param(a_map("double"), a_map("int"), id="values of a map are promoted"),
        pytest.param(record(), record(field("a")), id="a field is removed"),
        pytest.param(record(field("a", default=1)), record(), id="a field with default is added"),
        pytest.param(
            record(field("a", NULL_INT, default=None)), record(), id="a nullable field is added"
        ),
        pytest.param(
            record(field("b", aliases=["a"])), record(field("a")), id="a field is renamed by alias"
        ),
        pytest.param(
            record(name="New", aliases=["R"]), record(name="R"), id="a record is renamed by alias"
        ),
        pytest.param(record(name="a.R"), record(name="b.R"), id="a record gets another namespace"),
        pytest.param(enum("A", "B"), enum("B"), id="a symbol is added"),
        pytest.param(enum("A", default="A"), enum("A", "B"), id="the default reads other symbols"),
        pytest.param(["null", "int"], "int", id="a type becomes nullable"),
        pytest.param(["null", "long"], "int", id="a type becomes nullable and wider"),
        pytest.param(["int", "string", "null"], ["null", "int"], id="a branch is added"),
        pytest.param("int", ["int"], id="a union of one type is the type"),
        pytest.param("double", ["int", "float"], id="all branches are promoted"),
        pytest.param(LIST, LIST, id="a recursive record"),
        pytest.param(
            record(field("value", "long"), field("next", ["null", "R"])), LIST,
            id="a recursive record with a promotion",
        ),
        pytest.param("int", DATE, id="a logical type does not matter"),
        pytest.param(decimal(9, 3), decimal(4, 2), id="precision and scale do not matter"),
        pytest.param(fixed(4), fixed(4), id="the same fixed type"),
        pytest.param([], [], id="empty unions"),
        pytest.param(
            record(field("a"), field("b")), record(field("b"), field("a")), id="order of fields"
        ),
    ],
)  # fmt: skip
def test_compatible(reader: Any, writer: Any) -> None:
    assert reasons(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        pytest.param("int", "long", [("TYPE_MISMATCH", "")], id="long is not read as int"),
        pytest.param("float", "double", [("TYPE_MISMATCH", "")], id="double is not a float"),
        pytest.param("string", "int", [("TYPE_MISMATCH", "")], id="int is not a string"),
        pytest.param("int", "boolean", [("TYPE_MISMATCH", "")], id="boolean is not an int"),
        pytest.param("string", enum("A"), [("TYPE_MISMATCH", "")], id="an enum is not a string"),
        pytest.param("bytes", fixed(2), [("TYPE_MISMATCH", "")], id="fixed is not bytes"),
        pytest.param(a_map("int"), array("int"), [("TYPE_MISMATCH", "")], id="array and map"),
        pytest.param(record(), a_map("int"), [("TYPE_MISMATCH", "")], id="a map is no record"),
        pytest.param(
            array("int"), array("string"), [("TYPE_MISMATCH", "/items")], id="items"
        ),
        pytest.param(
            a_map(NULL_INT), a_map(["null", "string"]), [("MISSING_UNION_BRANCH", "/values/1")],
            id="values of a map",
        ),
        pytest.param(
            record(field("a"), field("b")), record(field("a")), [(MISSING_DEFAULT, "/fields/1")],
            id="a field without default is added",
        ),
        pytest.param(
            record(field("a"), field("b", "string")), record(field("b"), field("a", "long")),
            [("TYPE_MISMATCH", "/fields/0/type"), ("TYPE_MISMATCH", "/fields/1/type")],
            id="two fields change",
        ),
        pytest.param(
            record(field("b", aliases=["x"])), record(field("a")),
            [(MISSING_DEFAULT, "/fields/0")], id="a field is renamed without its alias",
        ),
        pytest.param(record(name="S"), record(), [("NAME_MISMATCH", "/name")], id="record name"),
        pytest.param(enum("A", name="G"), enum("A"), [("NAME_MISMATCH", "/name")], id="enum name"),
        pytest.param(fixed(1, "G"), fixed(1), [("NAME_MISMATCH", "/name")], id="fixed name"),
        pytest.param(
            record(name="S", aliases=["other.R"]), record(), [("NAME_MISMATCH", "/name")],
            id="an alias is a full name",
        ),
        pytest.param(
            enum("A"), enum("A", "B"), [("MISSING_ENUM_SYMBOLS", "/symbols")], id="a symbol is gone"
        ),
        pytest.param(
            enum("A"), enum("A", "B", default="A"), [("MISSING_ENUM_SYMBOLS", "/symbols")],
            id="the default of the writer does not help",
        ),
        pytest.param(fixed(2), fixed(3), [("FIXED_SIZE_MISMATCH", "/size")], id="a size"),
        pytest.param("int", NULL_INT, [("TYPE_MISMATCH", "/0")], id="a type is not nullable now"),
        pytest.param(
            ["null", "string"], "int", [("MISSING_UNION_BRANCH", "")], id="no branch for a type"
        ),
        pytest.param(
            ["int", "string"], ["null", "string", "boolean"],
            [("MISSING_UNION_BRANCH", "/0"), ("MISSING_UNION_BRANCH", "/2")], id="branches gone",
        ),
        pytest.param([], "int", [("MISSING_UNION_BRANCH", "")], id="an empty union reads nothing"),
        pytest.param(
            record(field("value", "string"), field("next", ["null", "R"])), LIST,
            [("TYPE_MISMATCH", "/fields/0/type"), ("MISSING_UNION_BRANCH", "/fields/1/type/1")],
            id="a recursive record",
        ),
        pytest.param(
            record(field("a", record(field("x"), field("y"), name="I"))),
            record(field("a", record(field("x"), name="I"))),
            [(MISSING_DEFAULT, "/fields/0/type/fields/1")], id="a record inside a record",
        ),
    ],
)  # fmt: skip
def test_incompatible(reader: Any, writer: Any, expected: list[tuple[str, str]]) -> None:
    assert reasons(reader, writer) == expected


@pytest.mark.parametrize(
    ("reader", "writer", "payload"),
    [
        ("int", "long", b"\x02"),
        (record(field("a"), field("b")), record(field("a")), b"\x02"),
        (record(name="S"), record(), b""),
        (enum("A"), enum("A", "B"), b"\x02"),
        (fixed(2), fixed(1), b"a"),
        (["null", "string"], "int", b"\x02"),
        (["null", "string"], ["int", "null"], b"\x00\x02"),
        ("int", NULL_INT, b"\x00"),
    ],
)
def test_incompatible_data_is_refused(reader: Any, writer: Any, payload: bytes) -> None:
    decoder = AvroReader(parse(writer), parse(reader))
    with pytest.raises(InvalidValueError, match=r"reader|symbol"):
        decoder.read(payload)


def test_a_message_says_a_way_out() -> None:
    (reason,) = parse(record(field("a"))).reading(parse(record()))
    assert reason.message == (
        "The reader's field a is not in the writer's record and has no default; "
        "add a default, or an alias if the field was renamed"
    )


def test_a_missing_branch_says_what_is_wrong_inside() -> None:
    reader = ["null", record(field("a"), field("b"))]
    (reason,) = parse(reader).reading(parse(["null", record(field("a"))]))
    assert "at /fields/1 inside: The reader's field b is not in" in reason.message


def test_a_writers_field_is_read_once() -> None:
    reader = record(field("a"), field("b", aliases=["a"]))
    assert reasons(reader, record(field("a"))) == [(MISSING_DEFAULT, "/fields/1")]


def doubled(depth: int, last: str) -> AvroSchema:
    """A schema with 2 ** depth paths to its last type."""
    fields = [field("last", record(field("v", last), name="T0"))]
    for level in range(1, depth):
        inner = record(field("x", f"T{level - 1}"), field("y", f"T{level - 1}"), name=f"T{level}")
        fields.append(field(f"f{level}", inner))
    return parse(record(*fields))


def test_many_paths_to_a_type_are_one_reason() -> None:
    (reason,) = doubled(60, "int").reading(doubled(60, "string"))
    assert reason.path == "/fields/0/type/fields/0/type"


def ring(count: int, first: str) -> AvroSchema:
    """Records that each contain the next, and the last the first."""
    fields = []
    for level in range(count):
        following = field("to", ["null", f"T{(level + 1) % count}"])
        inner = record(following, field("v", "int" if level else first), name=f"T{level}")
        fields.append(field(f"f{level}", inner))
    return parse(record(*fields))


def test_recursive_records_that_differ_far_inside() -> None:
    assert not ring(50, "long").reading(ring(50, "int"))
    found = [each.rule for each in ring(50, "int").reading(ring(50, "string"))]
    assert sorted(found) == ["MISSING_UNION_BRANCH"] * 50 + ["TYPE_MISMATCH"]


def test_the_number_of_pairs_is_limited() -> None:
    count = avro_compatibility.PAIRS_MAX // 300
    spaces = [record(name=f"n{index}.Same") for index in range(count)]
    (reason,) = parse(spaces).reading(parse(spaces))
    assert "make the unions smaller" in reason.message
