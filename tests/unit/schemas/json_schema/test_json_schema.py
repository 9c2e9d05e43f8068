"""Texts of JSON Schemas: drafts, references, printed forms, limits."""

import json
from typing import Any

import pytest

from ottla.schemas.json_schema.json_schema import (
    EVALUATIONS_MAX,
    PATTERN_CHARACTERS_MAX,
    PATTERNS_MAX,
    SUBSCHEMAS_MAX,
    TEXT_BYTES_MAX,
    Draft,
    JsonSchema,
    parse_json_schema,
)
from ottla.schemas.json_schema.json_text import DEPTH_MAX
from ottla.schemas.parsed_schema import InvalidSchemaError, ParsedSchema
from ottla.schemas.schema import SchemaType


def parsed(document: Any, **references: JsonSchema) -> JsonSchema:
    named = {name.replace("_", "."): schema for name, schema in references.items()}
    return parse_json_schema(json.dumps(document), named)


def test_a_schema_has_the_common_interface() -> None:
    schema: ParsedSchema = parse_json_schema('{"title": "Order", "type": "object"}')
    assert schema.type is SchemaType.JSON
    assert schema.record_name == "Order"
    assert parse_json_schema("true").record_name is None


@pytest.mark.parametrize(
    ("url", "draft"),
    [
        ("http://json-schema.org/draft-04/schema#", Draft.DRAFT_4),
        ("https://json-schema.org/draft-06/schema", Draft.DRAFT_6),
        ("http://json-schema.org/draft-07/schema#", Draft.DRAFT_7),
        ("https://json-schema.org/draft/2019-09/schema", Draft.DRAFT_2019_09),
        ("https://json-schema.org/draft/2020-12/schema", Draft.DRAFT_2020_12),
        ("https://example.com/my-dialect", Draft.DRAFT_7),
    ],
)
def test_the_draft_is_named_by_the_schema_keyword(url: str, draft: Draft) -> None:
    schema = parsed({"$schema": url, "type": "string"})
    assert schema.draft is draft
    assert schema.validator.is_valid("x")
    assert not schema.validator.is_valid(1)


def test_the_draft_without_a_schema_keyword_is_draft_7() -> None:
    assert parsed({"type": "string"}).draft is Draft.DRAFT_7


def test_the_canonical_text_keeps_keys_digits_and_unicode() -> None:
    text = '{ "b" : 1.0,\n "a":[1e3, 0.00000001, -0.0, 12345678901234567890], "é\\u001f\\/": null}'
    canonical = parse_json_schema(text).canonical()
    assert canonical == '{"b":1.0,"a":[1E+3,1E-8,0.0,12345678901234567890],"é\\u001F/":null}'
    assert parse_json_schema(canonical).canonical() == canonical


def test_the_normalized_text_has_sorted_keys_and_is_a_fixed_point() -> None:
    normalized = parse_json_schema(
        '{"b": {"d": 1.0, "c": "x"}, "a": [{"z": 1, "y": 2}]}'
    ).normalized()
    assert normalized == '{"a":[{"y":2,"z":1}],"b":{"c":"x","d":1.0}}'
    assert parse_json_schema(normalized).normalized() == normalized


def test_keys_are_sorted_like_strings_of_java() -> None:
    # U+FF5E is after a surrogate pair in UTF-16, and before it by code points.
    assert parse_json_schema('{"\uff5e":1,"😀":2}').normalized() == '{"😀":2,"\uff5e":1}'


def test_unknown_formats_are_ignored_as_in_confluents_registry() -> None:
    schema = parse_json_schema('{"type": "string"}')
    assert schema.formatted("") == schema.formatted("resolved") == '{"type":"string"}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "an object, true or false"),
        ('{"a": NaN}', "NaN is not a JSON value"),
        ('{"maximum": 1e999}', "out of range"),
        ('{"type": "foo"}', "at #/type"),
        ('{"properties": {"a/b": {"minLength": -1}}}', "at #/properties/a~1b/minLength"),
        ('{"pattern": "("}', "at #/pattern"),
        ('{"$schema":"https://json-schema.org/draft/2020-12/schema","pattern":"("}', "regular"),
        ('{"title": "\\ud800"}', "surrogate pair"),
        ('{"$ref": "#/definitions/a"}', "leads to no schema"),
        ('{"$ref": "#nowhere"}', "leads to no anchor"),
        ('{"$ref": "#"}', "leads back to itself"),
        ('{"allOf": [{"$ref": "#/not"}], "not": {"$ref": "#"}}', "leads back to itself"),
        ('{"$ref": "#/x", "x": {"allOf": 5}}', "allOf"),
        ('{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"http://[/"}', "URI"),
    ],
)
def test_texts_that_are_no_schema_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        parse_json_schema(text)


def many(count: int, **schema: Any) -> dict[str, Any]:
    return {"properties": {f"p{number}": schema for number in range(count)}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'{{"title": "{"x" * TEXT_BYTES_MAX}"}}', f"{TEXT_BYTES_MAX} are the most"),
        ("[" * (DEPTH_MAX + 1), f"more than {DEPTH_MAX} objects"),
        ("[" * 500_000, f"more than {DEPTH_MAX} objects"),
        (json.dumps(many(SUBSCHEMAS_MAX)), f"more than {SUBSCHEMAS_MAX} subschemas"),
        (json.dumps({"pattern": "a" * (PATTERN_CHARACTERS_MAX + 1)}), "regular expression has"),
        (
            json.dumps({"patternProperties": {f"p{n}": {} for n in range(PATTERNS_MAX + 1)}}),
            f"more than {PATTERNS_MAX} different",
        ),
    ],
)
def test_the_limits_are_errors_with_their_numbers(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        parse_json_schema(text)


def test_alternatives_that_multiply_are_refused() -> None:
    steps = {f"d{n}": {"oneOf": [{"$ref": f"#/definitions/d{n + 1}"}] * 2} for n in range(40)}
    document = {"definitions": {**steps, "d40": {}}, "$ref": "#/definitions/d0"}
    with pytest.raises(InvalidSchemaError, match=f"more than {EVALUATIONS_MAX} subschemas apply"):
        parsed(document)


def test_long_chains_of_references_are_followed() -> None:
    steps = {f"d{n}": {"$ref": f"#/definitions/d{n + 1}"} for n in range(5000)}
    document = {"definitions": {**steps, "d5000": {"type": "string"}}, "$ref": "#/definitions/d0"}
    assert not parsed(document).validator.is_valid(1)


def test_a_reference_to_the_network_is_refused_and_named() -> None:
    with pytest.raises(InvalidSchemaError, match=r"'http://127\.0\.0\.1:1/x\.json'.*not asked"):
        parsed({"properties": {"a": {"$ref": "http://127.0.0.1:1/x.json"}}})


def test_pointers_identifiers_and_anchors_lead_into_the_document() -> None:
    schema = parsed(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": "https://example.com/root.json",
            "$defs": {
                "a/b%": {"type": "integer"},
                "named": {"$id": "named.json", "type": "string", "$defs": {"x": {"const": 7}}},
                "anchored": {"$anchor": "here", "type": "boolean"},
            },
            "properties": {
                "pointer": {"$ref": "#/$defs/a~1b%25"},
                "relative": {"$ref": "named.json"},
                "absolute": {"$ref": "https://example.com/named.json#/$defs/x"},
                "anchor": {"$ref": "#here"},
                "self": {"$ref": "#"},
            },
        }
    )
    fine = {"pointer": 1, "relative": "x", "absolute": 7, "anchor": True}
    assert schema.validator.is_valid({**fine, "self": fine})
    for name, wrong in {"pointer": "x", "relative": 1, "absolute": 8, "anchor": 1}.items():
        assert not schema.validator.is_valid({"self": {name: wrong}})


def test_a_registered_reference_is_found_by_its_name_in_each_form() -> None:
    item = parsed({"definitions": {"n": {"type": "integer"}}, "type": "string"})
    for name in ("item.json", "./item.json", "https://example.com/schemas/item.json"):
        schema = parsed(
            {
                "$id": "https://example.com/schemas/root.json",
                "properties": {"a": {"$ref": name}, "b": {"$ref": f"{name}#/definitions/n"}},
            },
            item_json=item,
        )
        assert schema.validator.is_valid({"a": "x", "b": 1})
        assert not schema.validator.is_valid({"a": 1})
        assert not schema.validator.is_valid({"b": "x"})


def test_references_have_their_own_references_and_drafts() -> None:
    draft_4 = {"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://x/inner.json"}
    inner = parsed({**draft_4, "maximum": 5, "exclusiveMaximum": True})
    middle = parsed({"items": {"$ref": "inner.json"}, "type": "array"}, inner_json=inner)
    outer = parsed({"properties": {"a": {"$ref": "middle.json"}}}, middle_json=middle)
    assert outer.validator.is_valid({"a": [4]})
    assert not outer.validator.is_valid({"a": [5]})
    assert outer.reading(outer) == []
    tighter = parsed({**draft_4, "maximum": 4, "exclusiveMaximum": True})
    new = parsed(
        {"properties": {"a": {"$ref": "middle.json"}}},
        middle_json=parsed({"items": {"$ref": "i.json"}, "type": "array"}, i_json=tighter),
    )
    (found,) = new.reading(outer)
    assert (found.rule, found.path) == (
        "EXCLUSIVE_MAXIMUM_DECREASED",
        "#/properties/a/items/exclusiveMaximum",
    )


def test_references_to_true_false_and_meta_schemas_are_legal() -> None:
    schema = parsed(
        {
            "properties": {
                "no": {"$ref": "no.json"},
                "meta": {"$ref": "http://json-schema.org/draft-07/schema#"},
            }
        },
        no_json=parsed(False),
    )
    assert schema.validator.is_valid({"meta": {"type": "string"}})
    assert not schema.validator.is_valid({"no": 1})


def test_a_reference_into_an_unusual_place_of_another_schema_is_resolved_there() -> None:
    other = parsed({"components": {"a": {"$ref": "#/components/b"}, "b": {"type": "integer"}}})
    schema = parsed({"items": {"$ref": "o.json#/components/a"}}, o_json=other)
    assert not schema.validator.is_valid(["x"])
    assert schema.reading(parsed({"items": {"type": "integer"}})) == []


def test_siblings_of_a_reference_count_since_draft_2019_09() -> None:
    document = {"$defs": {"s": {"type": "string"}}, "items": {"$ref": "#/$defs/s", "maxLength": 1}}
    modern = parsed({"$schema": "https://json-schema.org/draft/2019-09/schema", **document})
    assert parsed(document).validator.is_valid(["xx"])
    assert not modern.validator.is_valid(["xx"])
    assert parsed(document).reading(modern) == []
    assert [one.rule for one in modern.reading(parsed(document))] == ["TYPE_CHANGED"]


def test_patterns_are_matched_in_bounded_time() -> None:
    linear = parsed({"pattern": "^(a+)+$"})
    assert not linear.validator.is_valid("a" * 50_000 + "b")
    with_lookahead = parsed({"pattern": "^(?=a)(a+)+$"})
    assert not with_lookahead.validator.is_valid("a" * 50_000 + "b")
    assert with_lookahead.validator.is_valid("aaa")


def test_a_pattern_that_needs_too_much_memory_is_refused_when_it_is_compiled() -> None:
    schema = parsed({"pattern": "((a{100}){100}){100}"})
    with pytest.raises(InvalidSchemaError, match="cannot be compiled"):
        _ = schema.validator


def test_a_property_may_be_named_like_a_keyword() -> None:
    properties = {name: {"type": "string"} for name in ("$ref", "$id", "id", "type", "enum")}
    schema = parsed({"properties": properties, "const": {"$ref": "x", "$id": "y"}})
    assert schema.validator.is_valid({"$ref": "x", "$id": "y"})
    assert not schema.validator.is_valid({"$ref": "x"})
