"""Classes as schemas in three languages, and their objects there and back."""

import dataclasses
import datetime
import json
from decimal import Decimal
from typing import Annotated, Any, NewType

import jsonschema_rs
import msgspec
import pytest

from ottla.clients.schemas.value_forms import ClassForm
from ottla.schemas.classes.class_types import Bits, FieldNumber, Precision
from ottla.schemas.classes.declaration import schema, schema_of_class
from ottla.schemas.parsed_schema import InvalidSchemaError
from ottla.schemas.parsing import parse_schema
from ottla.schemas.schema import SchemaType
from tests.unit.schemas.classes.shop import AT, KEYS, LETTER, MODEL, ORDER, VALUES, Address, Letter

FORMATS = ["avro", "json", "protobuf"]


@pytest.fixture(params=FORMATS)
def declared(request: pytest.FixtureRequest) -> Any:
    """Declare the classes in one language after another."""
    kinds = [kind for kind, _ in VALUES]
    for kind in kinds:
        schema(format=request.param, namespace="shop")(kind)
    yield request.param
    for kind in kinds:
        schema(format="avro")(kind)


@pytest.mark.parametrize("place", range(len(VALUES)), ids=lambda n: VALUES[n][0].__name__)
def test_objects_come_back_in_every_language(declared: str, place: int) -> None:
    kind, value = VALUES[place]
    made = schema_of_class(kind)
    parsed = parse_schema(made.type, made.text)
    assert parsed.record_name == f"shop.{kind.__name__}"
    form = ClassForm(kind)
    write, indexes = form.writer(parsed)
    assert indexes == ((0,) if declared == "protobuf" else ())
    payload = write(value, b"prefix")
    assert payload.startswith(b"prefix")
    assert form.reader(parsed, parsed, indexes)(payload, 6) == value


def test_the_text_of_a_class_is_stable_in_avro() -> None:
    assert json.loads(schema_of_class(Letter).text) == {
        "type": "record",
        "name": "Letter",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            },
            {
                "name": "home",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "Address",
                        "fields": [
                            {"name": "city", "type": "string"},
                            {"name": "zip", "type": ["null", "string"], "default": None},
                        ],
                    },
                ],
                "default": None,
            },
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
            {
                "name": "color",
                "type": {"type": "enum", "name": "Color", "symbols": ["red", "dark_blue"]},
                "default": "red",
            },
        ],
    }


def test_the_text_of_a_class_is_stable_in_protobuf() -> None:
    @schema(format="protobuf", name="Parcel", namespace="shop")
    class Thing(msgspec.Struct):
        id: int
        at: datetime.datetime
        home: Address | None
        kind: int | str
        late: "bool | None" = None

    assert schema_of_class(Thing).text == (
        'syntax = "proto3";\n\npackage shop;\n\nimport "google/protobuf/timestamp.proto";\n\n'
        "message Parcel {\n  int64 id = 1;\n  google.protobuf.Timestamp at = 2;\n"
        "  optional Address home = 3;\n  oneof kind {\n    int64 kind_int = 4;\n"
        "    string kind_str = 5;\n  }\n  optional bool late = 6;\n}\n"
        "message Address {\n  string city = 1;\n  optional string zip = 2;\n}"
    )


def test_json_schemas_are_closed_and_valid() -> None:
    schema(format="json")(Letter)
    try:
        document = json.loads(schema_of_class(Letter).text)
    finally:
        schema(format="avro")(Letter)
    validator = jsonschema_rs.validator_for(document)
    plain = msgspec.to_builtins(LETTER)
    assert validator.is_valid(plain)
    assert not validator.is_valid(plain | {"extra": 1})
    assert not validator.is_valid(plain | {"color": "green"})
    assert document["properties"]["color"] == {"$ref": "#/definitions/Color"}


def test_a_class_may_contain_itself() -> None:
    value = Tree(1, [Tree(2), Tree(3, [Tree(4)])])
    for name in FORMATS:
        schema(format=name)(Tree)
        made = schema_of_class(Tree)
        parsed = parse_schema(made.type, made.text)
        write, indexes = ClassForm(Tree).writer(parsed)
        assert ClassForm(Tree).reader(parsed, parsed, indexes)(write(value, b""), 0) == value


class Tree(msgspec.Struct):
    value: int
    children: list["Tree"] = []


def broken(hint: Any) -> type:
    return dataclasses.make_dataclass("Broken", [("field", hint)])


@pytest.mark.parametrize(
    ("hint", "reason"),
    [
        (Decimal, r"a Decimal needs a precision: Annotated\[Decimal, Precision\(10, 2\)\]"),
        (Any, r"has no place in a schema: name its types"),
        (list, r"name the types inside, such as list\[int\]"),
        (dict[int, str], "the keys of a dict are str"),
        (complex, "has no place in a schema"),
        (tuple[int, str], "has no place in a schema"),
        (int | datetime.datetime, "cannot have two branches of type long"),
    ],
    ids=str,
)
def test_a_type_without_a_place_is_named_with_its_field(hint: Any, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        schema_of_class(broken(hint))


def test_protobuf_has_no_lists_of_lists() -> None:
    with pytest.raises(InvalidSchemaError, match=r"Broken.field: Protobuf has no list"):
        schema(format="protobuf")(broken(list[list[int]]))


def test_two_classes_of_one_name_are_refused() -> None:
    other = dataclasses.make_dataclass("Address", [("street", str)])
    both = dataclasses.make_dataclass("Both", [("a", Address), ("b", other)])
    with pytest.raises(InvalidSchemaError, match="two classes are called Address"):
        schema_of_class(both)


def test_a_default_of_a_union_decides_the_first_branch() -> None:
    kind = dataclasses.make_dataclass("Kind", [("a", int | str | None, "x")])
    (row,) = json.loads(schema_of_class(kind).text)["fields"]
    assert row == {"name": "a", "type": ["string", "null", "long"], "default": "x"}


def test_marks_are_checked() -> None:
    with pytest.raises(ValueError, match="the scale from 0 to the precision"):
        Precision(2, 3)
    with pytest.raises(ValueError, match="32 or 64"):
        Bits(16)
    with pytest.raises(ValueError, match="not one of avro, json and protobuf"):
        schema(format="xml")
    with pytest.raises(ValueError, match="is not a namespace"):
        schema(namespace="a-b")


def test_a_field_number_may_be_given() -> None:
    kind = dataclasses.make_dataclass(
        "Numbered", [("a", Annotated[int, FieldNumber(7)]), ("b", NewType("Id", int))]
    )
    schema(format="protobuf")(kind)
    text = schema_of_class(kind).text
    assert "int64 a = 7;" in text
    assert "int64 b = 8;" in text
    with pytest.raises(InvalidSchemaError, match="19000 is no field number"):
        schema(format="protobuf")(
            dataclasses.make_dataclass("Wrong", [("a", Annotated[int, FieldNumber(19_000)])])
        )


@pytest.mark.parametrize("name", FORMATS)
def test_an_object_that_does_not_fit_names_the_field(name: str) -> None:
    schema(format=name)(Letter)
    try:
        made = schema_of_class(Letter)
        write, _ = ClassForm(Letter).writer(parse_schema(SchemaType(made.type), made.text))
        wrong = dataclasses.replace(LETTER, home=Address(5))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"city|/home"):
            write(wrong, b"")
    finally:
        schema(format="avro")(Letter)


def test_a_time_without_a_zone_is_refused() -> None:
    made = schema_of_class(Letter)
    write, _ = ClassForm(Letter).writer(parse_schema(made.type, made.text))
    with pytest.raises(ValueError, match=r"at: .* has no time zone"):
        write(dataclasses.replace(LETTER, at=AT.replace(tzinfo=None)), b"")


def test_all_kinds_of_classes_are_tested() -> None:
    assert [type(value) for _, value in VALUES] == [type(ORDER), Letter, type(MODEL), type(KEYS)]
