"""One pair of schemas for each named change, under both policies."""

import json
from typing import Any

import pytest

from ottla.schemas.json_schema.json_compatibility import (
    COMPARISON_DEPTH_MAX,
    LIMIT_RULE,
    json_changes,
)
from ottla.schemas.json_schema.json_schema import JsonSchema, parse_json_schema
from ottla.schemas.parsed_schema import CompatibilityPolicy

STRICT, LENIENT = CompatibilityPolicy.STRICT, CompatibilityPolicy.LENIENT
STR, INT, NUM = {"type": "string"}, {"type": "integer"}, {"type": "number"}


def schema(document: Any) -> JsonSchema:
    return parse_json_schema(json.dumps(document))


def closed(*required: str, **properties: Any) -> dict[str, Any]:
    return {**opened(*required, **properties), "additionalProperties": False}


def opened(*required: str, **properties: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


def array(**keywords: Any) -> dict[str, Any]:
    return {"type": "array", **keywords}


def modern(document: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}


def rules(old: Any, new: Any, policy: CompatibilityPolicy = STRICT) -> set[str]:
    return {change.rule for change in json_changes(schema(old), schema(new), policy)}


def refused(old: Any, new: Any, policy: CompatibilityPolicy = STRICT) -> set[str]:
    return {one.rule for one in schema(new).reading(schema(old), policy)}


# The reverse of a loosening is the incompatible change in the last column.
LIMITS = [
    ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 9}, "MAX_LENGTH"),
    ({"type": "string", "minLength": 5}, {"type": "string", "minLength": 2}, "MIN_LENGTH"),
    ({"type": "number", "maximum": 5}, {"type": "number", "maximum": 5.5}, "MAXIMUM"),
    ({"type": "number", "minimum": 5}, {"type": "number", "minimum": -1}, "MINIMUM"),
    (
        {"type": "number", "exclusiveMaximum": 5},
        {"type": "number", "exclusiveMaximum": 6},
        "EXCLUSIVE_MAXIMUM",
    ),
    (
        {"type": "number", "exclusiveMinimum": 5},
        {"type": "number", "exclusiveMinimum": 4},
        "EXCLUSIVE_MINIMUM",
    ),
    (
        {"type": "object", "maxProperties": 5},
        {"type": "object", "maxProperties": 6},
        "MAX_PROPERTIES",
    ),
    (
        {"type": "object", "minProperties": 5},
        {"type": "object", "minProperties": 4},
        "MIN_PROPERTIES",
    ),
    (array(maxItems=3), array(maxItems=4), "MAX_ITEMS"),
    (array(minItems=3), array(minItems=2), "MIN_ITEMS"),
    (
        modern(array(contains=INT, maxContains=3)),
        modern(array(contains=INT, maxContains=4)),
        "MAX_CONTAINS",
    ),
    (
        modern(array(contains=INT, minContains=3)),
        modern(array(contains=INT, minContains=2)),
        "MIN_CONTAINS",
    ),
]


@pytest.mark.parametrize(("tight", "loose", "name"), LIMITS, ids=[row[2] for row in LIMITS])
def test_limits_may_be_loosened_and_not_tightened(tight: Any, loose: Any, name: str) -> None:
    up, down = f"{name}_INCREASED", f"{name}_DECREASED"
    if name.removeprefix("EXCLUSIVE_").startswith("MIN"):
        up, down = down, up
    assert rules(tight, loose) == {up}
    assert refused(tight, loose) == set()
    assert refused(loose, tight) == {down}


@pytest.mark.parametrize(("tight", "name"), [(row[0], row[2]) for row in LIMITS[:-2]])
def test_limits_may_be_removed_and_not_added(tight: Any, name: str) -> None:
    keyword = next(key for key in tight if key not in {"type", "$schema"})
    without = {key: value for key, value in tight.items() if key != keyword}
    assert rules(tight, without) == {f"{name}_REMOVED"}
    assert refused(tight, without) == set()
    assert refused(without, tight) == {f"{name}_ADDED"}


LOOSENINGS: list[tuple[Any, Any, str, str]] = [
    (INT, NUM, "TYPE_EXTENDED", "TYPE_NARROWED"),
    (STR, {}, "", "TYPE_CHANGED"),
    (False, STR, "", "TYPE_CHANGED"),
    (STR, {"type": ["string", "null"]}, "SUM_TYPE_EXTENDED", "TYPE_CHANGED"),
    (STR, {"oneOf": [{"type": "null"}, STR]}, "SUM_TYPE_EXTENDED", "TYPE_CHANGED"),
    ({"type": ["string", "null"]}, {"type": ["string", "null", "integer"]}, "SUM_TYPE_EXTENDED",
     "SUM_TYPE_NARROWED"),
    ({"oneOf": [STR, INT]}, {"oneOf": [STR, NUM, {"type": "null"}]}, "SUM_TYPE_EXTENDED",
     "SUM_TYPE_NARROWED"),
    ({"oneOf": [STR, INT]}, {"anyOf": [STR, INT]}, "COMBINED_TYPE_EXTENDED",
     "COMBINED_TYPE_CHANGED"),
    ({"allOf": [NUM, {"minimum": 1}]}, {"allOf": [NUM]}, "PRODUCT_TYPE_NARROWED",
     "PRODUCT_TYPE_EXTENDED"),
    ({"allOf": [NUM, {"minimum": 1}]}, NUM, "PRODUCT_TYPE_NARROWED", "TYPE_CHANGED"),
    ({"enum": [1, "a"]}, {"enum": ["a", 1, None]}, "ENUM_ARRAY_EXTENDED", "ENUM_ARRAY_NARROWED"),
    ({"const": "a"}, {"enum": ["a", "b"]}, "ENUM_ARRAY_EXTENDED", "ENUM_ARRAY_NARROWED"),
    ({"not": NUM}, {"not": INT}, "NOT_TYPE_NARROWED", "NOT_TYPE_EXTENDED"),
    ({"type": "string", "pattern": "^a"}, STR, "PATTERN_REMOVED", "PATTERN_ADDED"),
    ({"type": "integer", "multipleOf": 4}, {"type": "integer", "multipleOf": 2},
     "MULTIPLE_OF_REDUCED", "MULTIPLE_OF_EXPANDED"),
    ({"type": "integer", "multipleOf": 4}, INT, "MULTIPLE_OF_REMOVED", "MULTIPLE_OF_ADDED"),
    (opened("a", a=STR), opened(a=STR), "REQUIRED_ATTRIBUTE_REMOVED", "REQUIRED_ATTRIBUTE_ADDED"),
    (closed(), opened(), "ADDITIONAL_PROPERTIES_ADDED", "ADDITIONAL_PROPERTIES_REMOVED"),
    ({"type": "object", "additionalProperties": STR}, opened(), "ADDITIONAL_PROPERTIES_EXTENDED",
     "ADDITIONAL_PROPERTIES_NARROWED"),
    (modern({"type": "object", "unevaluatedProperties": False}), modern({"type": "object"}),
     "UNEVALUATED_PROPERTIES_ADDED", "UNEVALUATED_PROPERTIES_REMOVED"),
    (modern({"type": "object", "unevaluatedProperties": STR}), modern({"type": "object"}),
     "UNEVALUATED_PROPERTIES_EXTENDED", "UNEVALUATED_PROPERTIES_NARROWED"),
    ({"type": "object", "dependencies": {"a": ["b"]}}, {"type": "object"},
     "DEPENDENCY_ARRAY_REMOVED", "DEPENDENCY_ARRAY_ADDED"),
    ({"type": "object", "dependencies": {"a": ["b", "c"]}},
     {"type": "object", "dependencies": {"a": ["b"]}}, "DEPENDENCY_ARRAY_NARROWED",
     "DEPENDENCY_ARRAY_EXTENDED"),
    ({"type": "object", "dependencies": {"a": {"required": ["b"]}}}, {"type": "object"},
     "DEPENDENCY_SCHEMA_REMOVED", "DEPENDENCY_SCHEMA_ADDED"),
    (array(uniqueItems=True), array(), "UNIQUE_ITEMS_REMOVED", "UNIQUE_ITEMS_ADDED"),
    (array(items=STR), array(), "SCHEMA_REMOVED", "SCHEMA_ADDED"),
    (array(items=[STR], additionalItems=False), array(items=[STR]), "ADDITIONAL_ITEMS_ADDED",
     "ADDITIONAL_ITEMS_REMOVED"),
    (array(items=[STR], additionalItems=STR), array(items=[STR]), "ADDITIONAL_ITEMS_EXTENDED",
     "ADDITIONAL_ITEMS_NARROWED"),
    (array(items=[STR, STR]), array(items=[STR]), "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
     "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"),
    (array(items=[STR], additionalItems=False), array(items=[STR, STR], additionalItems=False),
     "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    (array(items=[STR, STR], additionalItems=STR), array(items=[STR], additionalItems=STR),
     "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ""),
    (modern(array(prefixItems=[STR], items=False)), modern(array(prefixItems=[STR])),
     "ADDITIONAL_ITEMS_ADDED", "ADDITIONAL_ITEMS_REMOVED"),
    (modern(array(unevaluatedItems=False)), modern(array()), "UNEVALUATED_ITEMS_ADDED",
     "UNEVALUATED_ITEMS_REMOVED"),
    (opened(a=STR), opened(), "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
     "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    (closed(a=STR), closed(a=STR, b=INT), "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
     "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    ({"type": "object", "propertyNames": {"pattern": "^a"}}, {"type": "object"}, "SCHEMA_REMOVED",
     "SCHEMA_ADDED"),
    ({"type": "string", "title": "a", "default": "x"}, {"type": "string", "description": "b"}, "",
     ""),
    (opened(), opened(a={}), "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", ""),
    (closed(a=False), closed(), "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", ""),
]  # fmt: skip


@pytest.mark.parametrize(("tight", "loose", "forth", "back"), LOOSENINGS)
def test_a_loosening_is_compatible_and_its_reverse_is_not(
    tight: Any, loose: Any, forth: str, back: str
) -> None:
    assert refused(tight, loose) == set()
    assert forth in rules(tight, loose) | {""}
    assert back in refused(loose, tight) | {""}
    assert bool(back) == bool(refused(loose, tight))


LENIENT_CHANGES = [
    (opened(), opened(a=STR), "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
    (
        opened(),
        opened("a", a={**STR, "default": ""}),
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
    ),
    (closed(a=STR), closed(), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
    (
        {**opened(a=STR), "additionalProperties": INT},
        {**opened(), "additionalProperties": INT},
        "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    (opened(), closed(), "ADDITIONAL_PROPERTIES_REMOVED"),
    (opened(), {**opened(), "additionalProperties": STR}, "ADDITIONAL_PROPERTIES_NARROWED"),
    (
        modern({"type": "object"}),
        modern({"type": "object", "unevaluatedProperties": False}),
        "UNEVALUATED_PROPERTIES_REMOVED",
    ),
]


@pytest.mark.parametrize(("old", "new", "rule"), LENIENT_CHANGES)
def test_the_policy_lenient_allows_changes_of_the_content_model(
    old: Any, new: Any, rule: str
) -> None:
    assert rule in refused(old, new, STRICT)
    assert rule not in refused(old, new, LENIENT)
    assert rule in rules(old, new, LENIENT)


def test_a_required_property_without_a_default_is_incompatible_in_each_model() -> None:
    for policy in CompatibilityPolicy:
        assert refused(opened(), opened("a", a=STR), policy) == {
            "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
        }
        assert refused(closed(), closed("a", a=STR), policy) == {
            "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
        }
        assert refused(opened(), {"type": "object", "required": ["a"]}, policy) == {
            "REQUIRED_ATTRIBUTE_ADDED"
        }
        assert refused(opened(), opened("a", a={}), policy) == {
            "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
        }


def test_a_required_property_with_a_default_is_compatible_where_it_was_declared_or_closed() -> None:
    with_default = {**STR, "default": "x"}
    assert refused(opened(a=with_default), opened("a", a=with_default)) == set()
    assert refused(closed(), closed("a", a=with_default)) == set()
    referenced = {**closed("a", a={"$ref": "#/definitions/d"}), "definitions": {"d": with_default}}
    assert refused(closed(), referenced) == set()


def test_a_property_covered_by_a_pattern_may_come_and_go() -> None:
    partially = {"type": "object", "patternProperties": {"^a": STR}, "additionalProperties": False}
    with_property = {**partially, "properties": {"abc": STR}}
    assert rules(partially, with_property) == {
        "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    }
    assert refused(partially, with_property) == refused(with_property, partially) == set()
    other = {**partially, "properties": {"abc": INT}}
    assert "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL" in refused(partially, other)


def test_patterns_of_properties_are_compared() -> None:
    def patterns(**keywords: Any) -> dict[str, Any]:
        return {"type": "object", "patternProperties": {"^a": STR}, **keywords}

    changed = {"type": "object", "patternProperties": {"^a": INT}}
    assert refused(patterns(), changed) == {"TYPE_CHANGED"}
    assert refused({"type": "object"}, patterns()) == {"ADDITIONAL_PROPERTIES_NARROWED"}
    assert refused(patterns(), {"type": "object"}) == set()
    assert refused(patterns(additionalProperties=False), closed()) == {"TYPE_CHANGED"}
    assert refused(closed(), patterns(additionalProperties=False)) == set()


def test_an_exclusive_limit_may_become_inclusive() -> None:
    assert (
        refused({"type": "number", "exclusiveMinimum": 5}, {"type": "number", "minimum": 5})
        == set()
    )
    assert refused({"type": "number", "minimum": 5}, {"type": "number", "exclusiveMinimum": 5}) == {
        "EXCLUSIVE_MINIMUM_ADDED"
    }
    draft_4 = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "number"}
    old = {**draft_4, "maximum": 5, "exclusiveMaximum": True}
    assert refused(old, {"type": "number", "exclusiveMaximum": 5}) == set()


def test_conditions_are_compared_part_by_part() -> None:
    old = {"if": STR, "then": {"maxLength": 3}, "else": INT}
    assert refused(old, {**old, "then": {"maxLength": 4}}) == set()
    assert refused(old, {**old, "then": {"maxLength": 2}}) == {"MAX_LENGTH_DECREASED"}
    assert refused(old, {**old, "if": INT}) == {"COMBINED_TYPE_CHANGED"}


def test_parts_of_a_union_are_matched_in_any_order() -> None:
    a, b = closed("a", a=STR), closed("b", b=STR)
    assert refused({"oneOf": [a, b]}, {"oneOf": [b, a]}) == set()
    assert refused({"oneOf": [a, b]}, {"oneOf": [b, INT]}) == {"COMBINED_TYPE_SUBSCHEMAS_CHANGED"}
    # Both old parts fit the second new part: the matching must not take the first that fits.
    assert (
        refused({"anyOf": [INT, STR]}, {"anyOf": [{"type": ["integer", "string"]}, INT]}) == set()
    )


def test_the_paths_lead_to_the_change() -> None:
    old = opened(a={"type": "object", "properties": {"b": array(items=INT)}})
    new = opened(a={"type": "object", "properties": {"b": array(items=STR)}})
    (found,) = schema(new).reading(schema(old))
    assert (found.rule, found.path) == ("TYPE_CHANGED", "#/properties/a/properties/b/items")
    (found,) = schema(INT).reading(schema(STR))
    assert (found.rule, found.path) == ("TYPE_CHANGED", "#/")


def test_the_message_about_the_open_model_says_what_to_do() -> None:
    (found,) = schema(opened(a=STR)).reading(schema(opened()))
    assert "additionalProperties: false" in found.message
    assert "LENIENT" in found.message


def test_recursive_schemas_are_compared_to_the_end() -> None:
    def tree(value: Any) -> dict[str, Any]:
        node = opened(value=value, next={"$ref": "#/definitions/node"})
        return {"definitions": {"node": node}, "$ref": "#/definitions/node"}

    assert refused(tree(INT), tree(NUM)) == set()
    assert refused(tree(NUM), tree(INT)) == {"TYPE_NARROWED"}


def test_a_cycle_that_is_incompatible_deep_inside_is_found_from_each_side() -> None:
    def pair(value: Any) -> dict[str, Any]:
        a = opened(b={"$ref": "#/definitions/b"})
        b = {"oneOf": [opened("a", a={"$ref": "#/definitions/a"}), opened("v", v=value)]}
        return {"definitions": {"a": a, "b": b}, "anyOf": [{"$ref": "#/definitions/b"}, INT]}

    assert refused(pair(STR), pair(STR)) == set()
    assert refused(pair(STR), pair(INT)) == {"COMBINED_TYPE_SUBSCHEMAS_CHANGED"}


def test_schemas_that_connect_wrote_for_bytes_are_equivalent() -> None:
    old = {"type": "string", "connect.type": "bytes"}
    assert refused(old, {"type": "number", "connect.type": "bytes"}) == set()


def test_a_comparison_that_is_too_large_is_one_clear_incompatibility() -> None:
    parts = [opened(**{f"p{number}": STR}) for number in range(320)]
    (found,) = schema({"anyOf": parts}).reading(schema({"anyOf": parts}))
    assert found.rule == LIMIT_RULE
    assert "use fewer alternatives" in found.message


def test_long_chains_of_definitions_are_compared_to_the_end() -> None:
    depth = 10 * COMPARISON_DEPTH_MAX
    chain = {f"d{n}": opened(x={"$ref": f"#/definitions/d{n + 1}"}) for n in range(depth)}

    def deep(last: Any) -> dict[str, Any]:
        return {"definitions": {**chain, f"d{depth}": last}, "$ref": "#/definitions/d0"}

    assert refused(deep(INT), deep(NUM)) == set()
    assert refused(deep(NUM), deep(INT)) == {"TYPE_NARROWED"}


def test_changes_on_many_paths_are_bounded() -> None:
    def doubling(value: Any) -> dict[str, Any]:
        step = {
            f"d{n}": opened(
                a={"$ref": f"#/definitions/d{n + 1}"}, b={"$ref": f"#/definitions/d{n + 1}"}
            )
            for n in range(40)
        }
        return {"definitions": {**step, "d40": value}, "$ref": "#/definitions/d0"}

    assert refused(doubling(STR), doubling(INT)) == {"TYPE_CHANGED"}
