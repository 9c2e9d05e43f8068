"""Property of JSON Schema's compatibility: a compatible reader accepts the writer's values.

The judge is the package `jsonschema`. The exceptions are documented in Confluent's rules: `oneOf`
may match twice, a required property with a default may be missing, and the policy LENIENT.
"""

import json
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.schemas.json_schema.json_schema import JsonSchema, parse_json_schema
from tests.examples import examples

NAMES = st.sampled_from(["a", "ab", "b"])
PATTERNS = st.sampled_from(["^a", "b$"])
SMALL = st.integers(0, 3)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), SMALL, st.sampled_from([0.5, 2.0, "", "a", "ab", "abc"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def some(keywords: dict[str, st.SearchStrategy[Any]], **fixed: Any) -> Any:
    """Return schemas with some of the keywords."""
    return st.fixed_dictionaries({}, optional=keywords).map(lambda found: {**fixed, **found})


def schemas_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    kinds = st.sampled_from(["string", "integer", "number", "null", "boolean", "object", "array"])
    by_name = st.dictionaries(NAMES, inner, max_size=2)
    objects = {
        "properties": by_name,
        "required": st.lists(NAMES, unique=True, min_size=1, max_size=2),
        "additionalProperties": st.one_of(st.booleans(), inner),
        "patternProperties": st.dictionaries(PATTERNS, inner, max_size=1),
        "propertyNames": some({"maxLength": SMALL}),
        "minProperties": SMALL,
        "maxProperties": SMALL,
        "dependencies": st.dictionaries(NAMES, st.lists(NAMES, unique=True) | inner, max_size=1),
    }
    # The judge fails for `additionalItems` beside `items: false`: they come with a list only.
    tuples = {
        "items": st.lists(inner, min_size=1, max_size=2),
        "additionalItems": st.one_of(st.booleans(), inner),
    }
    arrays = {
        "items": inner,
        "contains": inner,
        "minItems": SMALL,
        "maxItems": SMALL,
        "uniqueItems": st.booleans(),
    }
    return st.one_of(
        some(objects, type="object"),
        some(arrays, type="array"),
        some({**arrays, **tuples}, type="array"),
        some({**objects, **arrays}),
        st.lists(inner, min_size=1, max_size=2).map(lambda parts: {"anyOf": parts}),
        st.lists(inner, min_size=1, max_size=2).map(lambda parts: {"allOf": parts}),
        inner.map(lambda one: {"not": one}),
        st.tuples(inner, inner).map(lambda pair: {"if": pair[0], "then": pair[1]}),
        st.lists(kinds, unique=True, min_size=1, max_size=3).map(lambda names: {"type": names}),
    )


strings = {"minLength": SMALL, "maxLength": SMALL, "pattern": PATTERNS}
limits = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]
numbers = {**dict.fromkeys(limits, SMALL), "multipleOf": st.sampled_from([0.5, 1, 2])}
leaves = st.one_of(
    st.booleans(),
    some(strings, type="string"),
    some(numbers, type="number"),
    some(numbers, type="integer"),
    some({**strings, **numbers}),
    st.lists(JSON, min_size=1, max_size=3).map(lambda found: {"enum": found}),
    JSON.map(lambda found: {"const": found}),
)
documents = st.recursive(leaves, schemas_of, max_leaves=5)


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """The document with one change somewhere: unrelated schemas are rarely compatible."""
    if draw(st.integers(0, 3)) == 0:
        return draw(documents)
    if isinstance(document, dict) and document:
        key = draw(st.sampled_from(sorted(document)))
        if draw(st.booleans()) and key not in {"if", "items"}:
            return {name: value for name, value in document.items() if name != key}
        return {**document, key: draw(changed_value(key, document[key]))}
    return document


@st.composite
def changed_value(draw: st.DrawFn, key: str, value: Any) -> Any:
    if key in {"properties", "patternProperties"}:
        found = {**value}
        if found and draw(st.booleans()):
            name = draw(st.sampled_from(sorted(found)))
            found[name] = draw(changed(found[name]))
        else:
            found[draw(NAMES if key == "properties" else PATTERNS)] = draw(documents)
        return found
    if key in {"anyOf", "allOf"}:
        return draw(st.permutations([draw(changed(value[0])), *value[1:], draw(documents)]))
    if key in {"items", "contains", "not", "if", "then", "additionalProperties", "additionalItems"}:
        return draw(changed(value)) if isinstance(value, dict) else value
    if key in {"enum", "required"}:
        return value + [name for name in [draw(NAMES)] if name not in value]
    is_limit = isinstance(value, int) and not isinstance(value, bool)
    return draw(st.integers(1, 4)) if is_limit else value


def parsed(document: Any) -> JsonSchema:
    return parse_json_schema(json.dumps(document))


@settings(max_examples=examples(500))
@given(
    documents.flatmap(lambda one: st.tuples(st.just(one), changed(one))),
    st.lists(JSON, max_size=12),
)
def test_a_compatible_reader_accepts_the_values_of_the_writer(
    pair: tuple[Any, Any], values: list[Any]
) -> None:
    writer, reader = pair
    if parsed(reader).reading(parsed(writer)):
        return
    for value in values:
        if jsonschema.Draft7Validator(writer).is_valid(value):
            assert jsonschema.Draft7Validator(reader).is_valid(value), (writer, reader, value)
