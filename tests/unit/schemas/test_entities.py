"""Records and fields of schemas, by their paths."""

import json

from ottla.schemas.avro.avro_schema import parse_avro
from ottla.schemas.entities import Entity, tagged_entities, top_level_fields
from ottla.schemas.json_schema.json_schema import parse_json_schema
from ottla.schemas.protobuf.protobuf_schema import parse_protobuf


def test_avro_has_full_names_and_a_recursive_record_once() -> None:
    inner = {
        "type": "record",
        "name": "n.Inner",
        "fields": [{"name": "x", "type": "int", "confluent:tags": ["PII", "B"]}],
        "confluent:tags": ["A"],
    }
    fields = [
        {"name": "list", "type": {"type": "array", "items": ["null", inner]}},
        {"name": "self", "type": ["null", "Outer"], "confluent:tags": "not a list"},
        {"name": "map", "type": {"type": "map", "values": "n.Inner"}, "confluent:tags": ["C"]},
    ]
    schema = parse_avro(json.dumps({"type": "record", "name": "Outer", "fields": fields}))
    assert tagged_entities(schema) == [
        Entity("Outer.map", True, ("C",)),
        Entity("n.Inner", False, ("A",)),
        Entity("n.Inner.x", True, ("PII", "B")),
    ]
    assert top_level_fields(schema) == ["list", "self", "map"]
    assert top_level_fields(parse_avro('"int"')) == []


def test_json_schema_names_the_kinds_on_the_way() -> None:
    field = {"type": "string", "confluent:tags": ["PII"]}
    inner = {"type": "object", "properties": {"x": field}, "confluent:tags": ["A"]}
    properties = {
        "list": {"type": "array", "items": inner},
        "sum": {"allOf": [True, inner]},
        "none": {"not": {"properties": {"x": field}}},
        "plain": field,
    }
    schema = parse_json_schema(json.dumps({"type": "object", "properties": properties}))
    assert [(one.path, one.is_field) for one in tagged_entities(schema)] == [
        ("object.list.array.object", False),
        ("object.list.array.object.x", True),
        ("object.sum.allof.1.object", False),
        ("object.sum.allof.1.object.x", True),
        ("object.none.not.object.x", True),
        ("object.plain", True),
    ]
    assert top_level_fields(schema) == ["list", "sum", "none", "plain"]
    assert top_level_fields(parse_json_schema("true")) == []


def test_protobuf_leaves_the_package_out() -> None:
    schema = parse_protobuf("""
    syntax = "proto3"; package p.q; import "confluent/meta.proto";
    message A {
      string a = 1 [(confluent.field_meta).tags = "PII"];
      message B { option (confluent.message_meta).tags = "X"; int32 b = 1; }
    }
    """)
    assert tagged_entities(schema) == [Entity("A.a", True, ("PII",)), Entity("A.B", False, ("X",))]
    assert top_level_fields(schema) == ["a"]
    assert tagged_entities(parse_protobuf('syntax = "proto3"; message A { int32 a = 1; }')) == []
    assert top_level_fields(parse_protobuf('syntax = "proto3";')) == []
