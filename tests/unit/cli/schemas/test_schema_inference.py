"""Schemas for JSON values: all values fit the schema that is inferred from them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.schemas.schema_inference import MEMBERS_MAX, infer, values_in
from ottla.cli.schemas.schema_records import from_json
from ottla.cli.support.exit_codes import CommandError
from ottla.schemas.avro.avro_schema import parse_avro
from ottla.schemas.avro.avro_values import AvroWriter
from ottla.schemas.json_schema.json_schema import parse_json_schema
from ottla.schemas.json_schema.json_values import JsonWriter
from ottla.schemas.schema import SchemaType

TEXTS = st.sampled_from(["", "a", "2026-05-01", "2026-05-01T12:00:00Z", "2026-13-01", "NaN"])
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3)
    ),
    max_leaves=10,
)


def avro_of(*values: Any) -> Any:
    return json.loads(infer(values, SchemaType.AVRO, "order-lines").text)


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_all_values_fit_their_json_schema(values: list[Any]) -> None:
    writer = JsonWriter(parse_json_schema(infer(values, SchemaType.JSON, "x").text))
    for value in values:
        writer.write(value)


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_all_values_fit_their_avro_schema(values: list[Any]) -> None:
    schema = parse_avro(infer(values, SchemaType.AVRO, "x").text)
    writer = AvroWriter(schema)
    for value in values:
        writer.write(from_json(schema.root, value, ""))


def test_missing_and_null_members_are_optional() -> None:
    assert avro_of({"a": 1, "b": None}, {"a": 2, "c": "x"}) == {
        "type": "record",
        "name": "OrderLines",
        "fields": [
            {"name": "a", "type": "long"},
            {"name": "b", "type": ["null", "string"], "default": None},
            {"name": "c", "type": ["null", "string"], "default": None},
        ],
    }


def test_texts_of_one_form_get_its_type() -> None:
    assert avro_of("2026-05-01T12:00:00Z", "2026-05-01T12:00:00.5+02:00") == {
        "type": "long",
        "logicalType": "timestamp-micros",
    }
    assert avro_of("2026-05-01") == {"type": "int", "logicalType": "date"}
    assert avro_of("2026-05-01", "soon") == "string"


def test_an_object_with_very_many_names_is_a_map() -> None:
    many = {f"key {number}": number for number in range(MEMBERS_MAX + 1)}
    assert avro_of({"a": many})["fields"][0]["type"] == {"type": "map", "values": "long"}


def test_a_name_that_avro_lacks_is_refused_with_a_way_out() -> None:
    with pytest.raises(CommandError, match="give --type json"):
        avro_of({"a-b": 1})


def test_nothing_has_no_schema() -> None:
    with pytest.raises(CommandError, match="no value"):
        infer([], SchemaType.JSON, "x")


def test_a_file_has_lines_or_one_array(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    path.write_text('{"a": 1}\n\n{"a": 2}\n')
    assert values_in(path, 9) == [{"a": 1}, {"a": 2}]
    path.write_text("[1,\n 2, 3]")
    assert values_in(path, 2) == [1, 2]
    path.write_text("1\n{\n")
    with pytest.raises(CommandError, match="line 2 is not JSON"):
        values_in(path, 9)
