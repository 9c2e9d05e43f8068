"""Values of Avro as JSON and back."""

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.schemas.schema_records import from_json, json_text, parse_parts
from ottla.cli.support.exit_codes import WrongCallError
from ottla.schemas.avro.avro_schema import parse_avro
from ottla.schemas.avro.avro_values import AvroReader, AvroWriter
from tests.avro_strategies import schemas, values


def convert(schema: Any, value: Any) -> Any:
    return from_json(parse_avro(json.dumps(schema)).root, value, "")


def again(schema: Any, value: Any) -> Any:
    """Write a value from JSON, read it, and return it as JSON."""
    parsed = parse_avro(json.dumps(schema))
    payload = AvroWriter(parsed).write(from_json(parsed.root, value, ""))
    return json.loads(json_text(AvroReader(parsed).read(payload)))


@given(st.data())
def test_a_value_that_was_shown_as_json_is_written_from_it(data: st.DataObject) -> None:
    schema = data.draw(schemas().filter(lambda drawn: '["' not in json.dumps(drawn)))
    parsed = parse_avro(json.dumps(schema))
    payload = AvroWriter(parsed).write(data.draw(values(schema)))
    shown = json.loads(json_text(AvroReader(parsed).read(payload)))
    assert again(schema, shown) == shown


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "12.50"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "2026-05-01T12:00:00.000001+00:00"),
        ({"type": "string", "logicalType": "uuid"}, "0b4c7a62-1f54-4c0e-8d6b-1a2b3c4d5e6f"),
        ({"type": "int", "logicalType": "time-millis"}, "12:30:00.500000"),
        ({"type": "fixed", "name": "F", "size": 2}, "AAE="),
        (["null", "string", "long"], None),
        (["null", "string", "long"], 5),
        (["null", {"type": "map", "values": "int"}], {"a": 1}),
        ("double", "-Infinity"),
    ],
)
def test_types_that_json_lacks_come_back_as_they_went(schema: Any, value: Any) -> None:
    assert again(schema, value) == value


def test_a_branch_may_be_named_as_in_the_json_of_avro() -> None:
    assert convert(["null", "long"], {"long": 5}) == ("long", 5)
    assert math.isnan(convert("float", "NaN"))


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ("int", 2**31, "at /: 2147483648 is too large for int"),
        ("long", True, "at /: true is not a long"),
        ("double", "1.5", 'at /: "1.5" is not a number'),
        ("bytes", "?", 'at /: "?" is not bytes in base64'),
        (["null", "long"], "x", 'at /: "x" is not a long'),
        (["string", "long"], [], "at /: [] fits no branch of the union: string, long"),
        ({"type": "array", "items": "int"}, [1, "x"], 'at /1: "x" is not an int'),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", 'at /: "B" is none of A'),
        ({"type": "int", "logicalType": "date"}, "soon", 'at /: "soon" is no date'),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(
    schema: Any, value: Any, reason: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        convert(schema, value)


def test_parts_are_key_and_value() -> None:
    assert parse_parts("value, key") == ("value", "key")
    with pytest.raises(WrongCallError, match="not 'values'"):
        parse_parts("values")
