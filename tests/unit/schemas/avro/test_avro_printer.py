"""The texts of Avro schemas, as Confluent's registry stores them."""

import json
from typing import Any

import pytest

from ottla.schemas.avro.avro_schema import AvroSchema, parse_avro


def compact(schema: Any) -> str:
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


CAR: dict[str, Any] = {
    "fields": [
        {"default": None, "doc": "the color", "type": ["null", "n.Color"], "name": "color"},
        {"x": 1, "aliases": ["b", "a"], "order": "descending", "name": "id", "type": "long"},
        {"name": "same", "type": {"type": "string"}, "order": "ascending"},
    ],
    "aliases": ["Z", "other.A"],
    "connect.version": 1,
    "connect.name": {"b": 1, "a": 2},
    "doc": "A car",
    "namespace": "n",
    "name": "Car",
    "type": "record",
}
COLOR = '{"type":"enum","name":"Color","namespace":"n","symbols":["RED"],"default":"RED"}'


def car() -> AvroSchema:
    return parse_avro(json.dumps(CAR, indent=4), {"colors": parse_avro(COLOR)})


def test_the_canonical_text_has_the_attributes_in_the_order_of_avro_for_java() -> None:
    assert car().canonical() == (
        '{"type":"record","name":"Car","namespace":"n","doc":"A car","fields":['
        '{"name":"color","type":["null","Color"],"doc":"the color","default":null},'
        '{"name":"id","type":"long","order":"descending","aliases":["b","a"],"x":1},'
        '{"name":"same","type":"string"}],'
        '"connect.version":1,"connect.name":{"b":1,"a":2},"aliases":["Z","other.A"]}'
    )


def test_the_normalized_text_sorts_properties_and_aliases() -> None:
    assert car().normalized() == (
        '{"type":"record","name":"Car","namespace":"n","doc":"A car","fields":['
        '{"name":"color","type":["null","Color"],"doc":"the color","default":null},'
        '{"name":"id","type":"long","order":"descending","aliases":["a","b"],"x":1},'
        '{"name":"same","type":"string"}],'
        '"connect.name":{"a":2,"b":1},"connect.version":1,"aliases":["Z","other.A"]}'
    )


def test_the_resolved_text_has_the_references_inside() -> None:
    resolved = car().formatted("resolved")
    assert '["null",{"type":"enum","name":"Color","symbols":["RED"],"default":"RED"}]' in resolved
    assert parse_avro(resolved).formatted("resolved") == resolved


@pytest.mark.parametrize("output_format", ["", "default", "unknown"])
def test_any_other_format_is_the_canonical_text(output_format: str) -> None:
    assert car().formatted(output_format) == car().canonical()


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ('{"type":"string"}', '"string"'),
        ('{"avro.java.string":"String","type":"string"}', None),
        ('{"type":"error","name":"E","fields":[]}', '{"type":"error","name":"E","fields":[]}'),
        (
            '{"name":"a.b.F","size":3,"type":"fixed"}',
            '{"type":"fixed","name":"F","namespace":"a.b","size":3}',
        ),
        (
            '{"type":"record","name":"a.R","fields":[{"name":"f","type":'
            '{"type":"fixed","name":"F","namespace":"","size":1}}]}',
            '{"type":"record","name":"R","namespace":"a","fields":[{"name":"f","type":'
            '{"type":"fixed","name":"F","namespace":"","size":1}}]}',
        ),
        ('{"type":"int","x":"é\\u0001\\"\\n/"}', '{"type":"int","x":"é\\u0001\\"\\n/"}'),
        ('{"type":"int","x":"\\u001f\\u007f"}', '{"type":"int","x":"\\u001F\x7f"}'),
        ('{"type":"int","x":[1.0,1e7,1.5e-5,0.001,-0.0,100]}', None),
    ],
)
def test_small_texts(text: str, canonical: str | None) -> None:
    expected = {
        '{"avro.java.string":"String","type":"string"}': (
            '{"type":"string","avro.java.string":"String"}'
        ),
        '{"type":"int","x":[1.0,1e7,1.5e-5,0.001,-0.0,100]}': (
            '{"type":"int","x":[1.0,1.0E7,1.5E-5,0.001,-0.0,100]}'
        ),
    }
    assert parse_avro(text).canonical() == (canonical or expected[text])


def test_the_second_use_of_a_type_is_its_name() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "namespace": "n",
        "fields": [
            {"name": "a", "type": {"type": "fixed", "name": "F", "size": 1}},
            {"name": "b", "type": "n.F"},
            {"name": "c", "type": {"type": "fixed", "name": "o.array", "size": 1}},
            {"name": "d", "type": "o.array"},
        ],
    }
    fields = json.loads(parse_avro(json.dumps(schema)).canonical())["fields"]
    assert [fields[1]["type"], fields[3]["type"]] == ["F", "o.array"]


def test_a_decimal_is_normalized_with_its_precision_first() -> None:
    text = '{"scale":2,"a":1,"precision":9,"logicalType":"decimal","type":"bytes"}'
    assert parse_avro(text).normalized() == (
        '{"type":"bytes","logicalType":"decimal","precision":9,"scale":2,"a":1}'
    )


def test_normalized_defaults_are_floats_where_the_type_is() -> None:
    fields = [
        {"name": "a", "type": "double", "default": 0},
        {"name": "b", "type": {"type": "array", "items": "float"}, "default": [1, 2.5]},
        {"name": "c", "type": "float", "default": "NaN"},
    ]
    schema = {"type": "record", "name": "R", "fields": fields, "doc": ""}
    parsed = parse_avro(json.dumps(schema))
    assert [each["default"] for each in json.loads(parsed.canonical())["fields"]] == [
        0, [1, 2.5], "NaN",
    ]  # fmt: skip
    assert '"default":0.0' in parsed.normalized()
    assert '"default":[1.0,2.5]' in parsed.normalized()
    assert '"doc"' not in parsed.normalized()


def test_references_nested_deeper_than_python_calls_are_printed() -> None:
    schema = parse_avro('{"type":"fixed","name":"T0","size":1}')
    for level in range(1, 1500):
        field = {"name": "f", "type": f"T{level - 1}"}
        text = compact({"type": "record", "name": f"T{level}", "fields": [field]})
        schema = parse_avro(text, {"below": schema})
    assert schema.formatted("resolved").count('"record"') == 1499
    assert schema.canonical().count("T") == 2
    assert not schema.reading(schema)
