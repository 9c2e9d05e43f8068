"""Fields of schemas, their differences, and their lines."""

import json

import pytest

from ottla.cli.schemas.schema_fields import FieldChange, changes, field_at, fields_of, line_of
from ottla.schemas.parsing import parse_schema
from ottla.schemas.schema import SchemaType

AVRO = """{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "long"},
  {"name": "lines", "type": {"type": "array", "items":
    {"type": "record", "name": "Line", "fields": [
      {"name": "text", "type": "string", "doc": "a } and a \\" and a , here"},
      {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
      {"name": "next", "type": ["null", "Line"], "default": null}
    ]}}}
]}"""
JSON = """{"type": "object", "required": ["a"],
 "properties": {
  "a": {"type": "string", "format": "date"},
  "properties": {"$ref": "#/$defs/x"},
  "loop": {"$ref": "#"}},
 "$defs": {"x": {"properties": {"a/b": {"type": "integer", "minimum": 3}}}}}"""
PROTO = """syntax = "proto3";
package shop;
message Order {
  string customer = 1;
  message Line {
    oneof price { int64 cents = 1; }
    optional string note = 2;
  }
  repeated Line lines = 2;
  enum State { OPEN = 0; }
}
"""


@pytest.mark.parametrize(
    ("schema_type", "text", "expected"),
    [
        (
            SchemaType.AVRO,
            AVRO,
            {
                "id": "long",
                "lines": "array<record Line>",
                "lines[].text": "string",
                "lines[].price": "decimal(9,0)",
                "lines[].next": "null | record Line = null",
            },
        ),
        (
            SchemaType.JSON,
            JSON,
            {
                "a": "string date (required)",
                "properties": "x",
                "properties.a/b": "integer minimum=3",
                "loop": "#",
            },
        ),
        (
            SchemaType.PROTOBUF,
            PROTO,
            {
                "Order.1": "string customer",
                "Order.2": "repeated shop.Order.Line lines",
                "Order.Line.1": "int64 cents (oneof price)",
                "Order.Line.2": "optional string note",
                "Order.State = 0": "OPEN",
            },
        ),
    ],
)
def test_fields_have_a_path_and_a_type(
    schema_type: SchemaType, text: str, expected: dict[str, str]
) -> None:
    assert fields_of(parse_schema(schema_type, text)) == expected


def test_a_schema_without_fields_is_one_value() -> None:
    assert fields_of(parse_schema(SchemaType.AVRO, '["null", "string"]')) == {
        "(value)": "null | string"
    }
    assert fields_of(parse_schema(SchemaType.JSON, '{"enum": [1, 2]}')) == {"(value)": "enum(1, 2)"}


def test_a_renamed_field_of_protobuf_is_one_change() -> None:
    before = parse_schema(SchemaType.PROTOBUF, PROTO)
    after = parse_schema(SchemaType.PROTOBUF, PROTO.replace("customer", "buyer"))
    assert changes(before, after) == [
        FieldChange("changed", "Order.1", "string customer", "string buyer")
    ]


@pytest.mark.parametrize(
    ("schema_type", "text", "path", "field", "line"),
    [
        (SchemaType.AVRO, AVRO, "/fields/0/type", "id", 2),
        (SchemaType.AVRO, AVRO, "/fields/1/type/items/fields/1", "lines.price", 6),
        (SchemaType.AVRO, AVRO, "", "", 1),
        (SchemaType.JSON, JSON, "#/properties/properties", "properties", 4),
        (SchemaType.JSON, JSON, "#/", "", 1),
        (SchemaType.PROTOBUF, PROTO, "#/Order/Line/2", "Order.Line.note", 7),
        (SchemaType.PROTOBUF, PROTO, "#/Order/9", "Order.9", 3),
    ],
)
def test_a_path_leads_to_a_field_and_a_line(
    schema_type: SchemaType, text: str, path: str, field: str, line: int
) -> None:
    assert field_at(schema_type, parse_schema(schema_type, text), path) == field
    assert line_of(schema_type, text, field) == line


def test_the_line_of_a_missing_field_is_that_of_its_record() -> None:
    assert line_of(SchemaType.AVRO, AVRO, "lines.gone") == 3
    assert line_of(SchemaType.AVRO, json.dumps(json.loads(AVRO)), "lines.price") == 1
