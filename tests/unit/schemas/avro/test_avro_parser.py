"""Texts of Avro schemas become types, or one error with the place and the reason."""

import json
from typing import Any

import pytest

from ottla.schemas.avro import avro_parser
from ottla.schemas.avro.avro_schema import AvroSchema, parse_avro
from ottla.schemas.avro.avro_types import (
    NO_DEFAULT,
    Enum,
    Fixed,
    LogicalType,
    Primitive,
    Record,
    Union,
)
from ottla.schemas.parsed_schema import InvalidSchemaError


def record(*fields: dict[str, Any], **attributes: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **attributes}


def parse(schema: Any, **references: AvroSchema) -> AvroSchema:
    return parse_avro(json.dumps(schema), references)


def root_of(schema: Any) -> Record:
    root = parse(schema).root
    assert isinstance(root, Record)
    return root


def nested(levels: int) -> str:
    return '{"type":"array","items":' * levels + '"int"' + "}" * levels


def test_a_record_has_its_fields_names_aliases_and_properties() -> None:
    root = root_of(
        record(
            {"name": "a", "type": "int", "default": 1, "doc": "d", "order": "IGNORE", "x": [1]},
            {"name": "b", "type": "string", "aliases": ["old", "old"]},
            namespace="n.s",
            aliases=["Before", "other.Name"],
            version=7,
        )
    )
    assert root.full_name == "n.s.R"
    assert root.aliases == ("n.s.Before", "other.Name")
    assert root.properties == {"version": 7}
    first, second = root.fields
    assert (first.default, first.doc, first.order) == (1, "d", "ignore")
    assert first.properties == {"x": [1]}
    assert (second.default, second.aliases) == (NO_DEFAULT, ("old",))


def test_a_name_may_be_used_before_its_definition() -> None:
    root = root_of(
        record(
            {"name": "a", "type": ["null", "n.E"]},
            {"name": "b", "type": {"type": "enum", "name": "n.E", "symbols": ["A"]}},
        )
    )
    union = root.fields[0].type
    assert isinstance(union, Union)
    assert union.branches[1] is root.fields[1].type


def test_a_record_may_contain_itself() -> None:
    root = root_of(record({"name": "next", "type": ["null", "R"], "default": None}))
    union = root.fields[0].type
    assert isinstance(union, Union)
    assert union.branches[1] is root


def test_a_name_without_a_namespace_is_found_from_inside_a_namespace() -> None:
    inner = record({"name": "top", "type": ["null", "R"]}) | {"name": "a.Inner"}
    assert root_of(record({"name": "inner", "type": inner})).fields[0].name == "inner"


def test_references_are_types_and_their_references_too() -> None:
    bottom = parse({"type": "enum", "name": "n.Color", "symbols": ["RED"]})
    middle = parse(record({"name": "c", "type": "n.Color"}) | {"name": "n.Car"}, any_name=bottom)
    top = parse(record({"name": "car", "type": "n.Car"}), **{"n.Car": middle})
    assert top.named["n.Color"] is bottom.root
    assert top.referenced_names == {"n.Car", "n.Color"}
    assert top.record_name == "R"


def test_an_equal_definition_of_a_reference_is_the_reference() -> None:
    color = {"type": "enum", "name": "Color", "symbols": ["RED"]}
    reference = parse(color)
    again = parse(record({"name": "c", "type": color | {"doc": "another"}}), Color=reference)
    assert isinstance(again.root, Record)
    assert again.root.fields[0].type is reference.root
    with pytest.raises(InvalidSchemaError, match=r"/fields/0/type: .*Color is already defined"):
        parse(record({"name": "c", "type": color | {"symbols": ["BLUE"]}}), Color=reference)


@pytest.mark.parametrize(
    ("schema", "logical"),
    [
        ({"type": "int", "logicalType": "date"}, LogicalType("date")),
        ({"type": "string", "logicalType": "uuid"}, LogicalType("uuid")),
        ({"type": "long", "logicalType": "timestamp-nanos"}, LogicalType("timestamp-nanos")),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            LogicalType("decimal", 5, 2),
        ),
        ({"type": "long", "logicalType": "date"}, None),
        ({"type": "int", "logicalType": "mine"}, None),
        ({"type": "int", "logicalType": 5}, None),
        ({"type": "bytes", "logicalType": "decimal"}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": "9"}, None),
    ],
)
def test_a_logical_type_that_does_not_fit_is_only_a_property(
    schema: dict[str, Any], logical: LogicalType | None
) -> None:
    root = parse(schema).root
    assert isinstance(root, Primitive)
    assert root.logical == logical
    assert root.properties == {key: schema[key] for key in schema if key != "type"}


@pytest.mark.parametrize(
    ("size", "attributes", "logical"),
    [
        (12, {"logicalType": "duration"}, "duration"),
        (11, {"logicalType": "duration"}, None),
        (16, {"logicalType": "uuid"}, "uuid"),
        (8, {"logicalType": "decimal", "precision": 18}, "decimal"),
        (8, {"logicalType": "decimal", "precision": 19}, None),
    ],
)
def test_a_logical_type_needs_the_size_of_a_fixed_type(
    size: int, attributes: dict[str, Any], logical: str | None
) -> None:
    root = parse({"type": "fixed", "name": "F", "size": size, **attributes}).root
    assert isinstance(root, Fixed)
    assert (root.logical.name if root.logical else None) == logical


@pytest.mark.parametrize(
    ("of_type", "default"),
    [
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("float", 1),
        ("double", "NaN"),
        ("bytes", "\u00ff"),
        (["null", "string"], "text"),
        (["int", "null"], None),
        ({"type": "array", "items": "int"}, [1, 2]),
        ({"type": "map", "values": "string"}, {"a": "b"}),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A"),
        (record({"name": "x", "type": "int", "default": 3}) | {"name": "I"}, {}),
    ],
)
def test_a_default_fits_its_type(of_type: Any, default: Any) -> None:
    root_of(record({"name": "f", "type": of_type, "default": default}))


@pytest.mark.parametrize(
    ("of_type", "default"),
    [
        ("int", 2**31),
        ("int", 1.0),
        ("int", True),
        ("long", 2**63),
        ("string", None),
        ("boolean", "true"),
        ("double", "number"),
        (["null", "string"], 5),
        ({"type": "array", "items": "int"}, [1, "x"]),
        ({"type": "array", "items": "int"}, {}),
        (record({"name": "x", "type": "int"}) | {"name": "I"}, {}),
    ],
)
def test_a_default_of_another_type_is_refused(of_type: Any, default: Any) -> None:
    schema = record({"name": "f", "type": of_type, "default": default})
    with pytest.raises(InvalidSchemaError, match="/fields/0/default: "):
        parse(schema)


def test_a_default_that_contains_itself_is_refused() -> None:
    with pytest.raises(InvalidSchemaError, match="contains itself"):
        parse(record({"name": "again", "type": "R", "default": {}}))


def test_a_default_that_grows_exponentially_is_refused() -> None:
    fields: list[Any] = []
    for level in range(25):
        inner = f"T{level - 1}" if level else "int"
        default: Any = {} if level else 0
        parts = [{"name": name, "type": inner, "default": default} for name in "xy"]
        of_type = {"type": "record", "name": f"T{level}", "fields": parts}
        fields.append({"name": f"f{level}", "type": of_type, "default": {}})
    with pytest.raises(InvalidSchemaError, match="more than 100000 values"):
        parse(record(*fields))


def test_stored_texts_may_have_bad_defaults_and_namespaces() -> None:
    text = json.dumps(record({"name": "f", "type": "int", "default": "x"}, namespace="a-b"))
    with pytest.raises(InvalidSchemaError):
        parse_avro(text)
    assert parse_avro(text, is_checked=False).record_name == "a-b.R"


def test_comments_are_allowed_but_not_inside_strings() -> None:
    parsed = parse_avro('/* one */ {"type": "int", // two\n "x": "// no \\" comment"}')
    assert parsed.canonical() == '{"type":"int","x":"// no \\" comment"}'


def test_the_default_of_an_enum_is_a_symbol() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "B"}
    root = parse(enum).root
    assert isinstance(root, Enum)
    assert root.default == "B"
    with pytest.raises(InvalidSchemaError, match="/default: The default C is not a symbol"):
        parse(enum | {"default": "C"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "The text is not JSON"),
        ("int", "The text is not JSON"),
        ('{"type":"int"} x', "The text is not JSON"),
        ("5", "A type is a name, an object or a list"),
        ('"unknown.Type"', "The type unknown.Type is not defined here"),
        ('{"name":"x"}', 'The attribute "type" must be a string'),
        ('{"type":["int"]}', 'The attribute "type" must be a string'),
        ('{"type":"array"}', 'The array has no attribute "items"'),
        ('{"type":"map"}', 'The map has no attribute "values"'),
        ('["int","int"]', "at /1: The union has the type int twice"),
        ('["int",["null"]]', "at /1: A union may not be directly inside a union"),
        ('{"type":"record","fields":[]}', 'The attribute "name" must be a string'),
        ('{"type":"record","name":"R"}', 'The record R has no list "fields"'),
        ('{"type":"record","name":"1R","fields":[]}', "The name 1R is not valid"),
        ('{"type":"record","name":"R","namespace":"a..b","fields":[]}', "is not valid"),
        ('{"type":"record","name":"int","fields":[]}', "may not have the primitive name int"),
        ('{"type":"record","name":"R","fields":[{"name":"a"}]}', "/fields/0: .* has no type"),
        ('{"type":"record","name":"R","fields":[7]}', "/fields/0: A field is an object"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a-b","type":"int"}]}',
            "/fields/0/name: The field name a-b is not valid",
        ),
        (
            '{"type":"record","name":"R","fields":'
            '[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
            "/fields/1: The record has the field a twice",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int","order":"up"}]}',
            "/fields/0/order: ",
        ),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "The symbol A is there twice"),
        ('{"type":"enum","name":"E","symbols":["A",5]}', "/symbols/1: "),
        ('{"type":"enum","name":"E"}', 'has no list "symbols"'),
        ('{"type":"fixed","name":"F","size":-1}', "/size: "),
        ('{"type":"fixed","name":"F","size":true}', "/size: "),
        ('{"type":"fixed","name":"F","size":4294967296}', "/size: "),
        ('{"type":"enum","name":"E","symbols":[],"aliases":"A"}', "/aliases: "),
        ('{"type":"int","x":"\\ud800"}', "half of a surrogate pair"),
        ('"\ud800"', "not valid Unicode"),
        ('{"type":"int","x":NaN}', "NaN is not a number of JSON"),
        ('{"type":"int","x":' + "9" * 5000 + "}", "invalid number"),
        ("[" * 100_000, "more than 200 levels"),
        (nested(200), "more than 200 levels"),
    ],
)
def test_a_wrong_text_ends_in_one_error_with_place_and_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        parse_avro(text)


def test_the_limits_of_a_text() -> None:
    assert parse_avro(nested(199)).canonical() == nested(199)
    with pytest.raises(InvalidSchemaError, match="the limit is 1048576"):
        parse_avro('"int"' + " " * avro_parser.TEXT_BYTES_MAX)
    many = [{"name": f"f{index}", "type": "int"} for index in range(avro_parser.TYPES_MAX)]
    with pytest.raises(InvalidSchemaError, match="more than 20000 types"):
        parse(record(*many))


def test_a_chain_of_names_used_before_their_definition_is_limited() -> None:
    fields = [{"name": f"f{index}", "type": _linked(index)} for index in range(300)]
    with pytest.raises(InvalidSchemaError, match="deeper than 200 levels"):
        parse(record(*fields))


def _linked(index: int) -> dict[str, Any]:
    inner = f"T{index + 1}" if index < 299 else "int"
    link = {"name": "next", "type": inner}
    return {"type": "record", "name": f"T{index}", "fields": [link]}
