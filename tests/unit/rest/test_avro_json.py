import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.rest import avro_json
from ottla.rest.avro_json import avro_from_json, json_from_avro
from ottla.schemas.avro.avro_schema import parse_avro
from ottla.schemas.avro.avro_values import AvroReader, AvroWriter
from ottla.schemas.values import InvalidValueError

EVERYTHING = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "data", "type": "bytes"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "parent", "type": ["null", "shop.Order"], "default": None},
        {"name": "price", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "is_paid", "type": "boolean"},
    ],
}
ORDER = {
    "id": -5,
    "data": "\u00ff\u0000",
    "kind": "B",
    "code": "ab",
    "tags": ["x", "ž"],
    "counts": {"a": 1},
    "parent": None,
    "price": 0.5,
    "at": 1_700_000_000_000,
    "is_paid": True,
}


def root(schema: object) -> Any:
    return parse_avro(json.dumps(schema), references={}).root


def test_every_type_comes_back_as_it_was_written() -> None:
    order = {**ORDER, "parent": {"shop.Order": ORDER}}
    assert json_from_avro(root(EVERYTHING), avro_from_json(root(EVERYTHING), order)) == order


def test_the_bytes_are_those_of_the_other_codec() -> None:
    schema = parse_avro(json.dumps(EVERYTHING), references={})
    payload = avro_from_json(schema.root, ORDER)
    assert AvroWriter(schema).write(AvroReader(schema).read(payload)) == payload


def test_a_missing_field_has_its_default() -> None:
    order = {name: value for name, value in ORDER.items() if name != "parent"}
    assert avro_from_json(root(EVERYTHING), order) == avro_from_json(root(EVERYTHING), ORDER)


@pytest.mark.parametrize("value", ["x", {"string": "x"}])
def test_the_branch_of_a_union_may_be_left_out(value: object) -> None:
    union = root(["null", "string"])
    assert json_from_avro(union, avro_from_json(union, value)) == {"string": "x"}


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ("int", 1 << 31, "a number of type int"),
        ("int", True, "a number of type int"),
        ("long", 1.5, "a number of type long"),
        ("float", 1e300, "a number of type float"),
        ("bytes", "ž", "U\\+00FF"),
        ("string", "\ud800", "lone surrogates"),
        (["null", "int"], "x", "names null, int"),
        (EVERYTHING, {**ORDER, "kind": "C"}, "at /kind: expected a symbol"),
        (EVERYTHING, {**ORDER, "code": "a"}, "at /code: expected 2 characters"),
        (EVERYTHING, {**ORDER, "more": 1}, "no field 'more'"),
        (EVERYTHING, {}, "at /id: the field is missing"),
    ],
)
def test_a_value_that_does_not_fit_names_its_place(
    schema: object, value: object, reason: str
) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        avro_from_json(root(schema), value)


def test_infinity_is_a_word() -> None:
    written = avro_from_json(root("double"), "-Infinity")
    assert json_from_avro(root("double"), written) == "-Infinity"


NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node", {"type": "map", "values": "Node"}]}],
}


def test_unnamed_branches_do_not_multiply_without_end() -> None:
    value: object = {"next": 1}
    for _ in range(60):
        value = {"next": value}
    with pytest.raises(InvalidValueError):
        avro_from_json(root(NODE), value)


def test_a_recursive_payload_has_a_limited_depth() -> None:
    with pytest.raises(InvalidValueError, match="levels"):
        json_from_avro(root(NODE), b"\x02" * 100_000)


def test_items_without_bytes_are_counted() -> None:
    nulls = root({"type": "array", "items": "null"})
    huge = avro_json._zigzag(avro_json.ITEMS_MAX + 1) + b"\0"
    with pytest.raises(InvalidValueError, match="items"):
        json_from_avro(nulls, huge)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_one_error(payload: bytes) -> None:
    kind = root(EVERYTHING)
    try:
        value = json_from_avro(kind, payload)
    except InvalidValueError:
        return
    json.dumps(value, allow_nan=False)
    assert json_from_avro(kind, avro_from_json(kind, value)) == value
