"""JSON values: written, read, and refused with one error."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.schemas.json_schema.json_schema import parse_json_schema
from ottla.schemas.json_schema.json_text import DEPTH_MAX
from ottla.schemas.json_schema.json_values import JsonReader, JsonWriter
from ottla.schemas.values import InvalidValueError

ORDER = parse_json_schema(
    """{"type": "object", "properties": {"id": {"type": "integer", "maximum": 9},
    "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["id"]}"""
)
ANYTHING = parse_json_schema("true")


class Order(msgspec.Struct):
    id: int
    at: datetime


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_a_value_is_written_and_read() -> None:
    value = {"id": 1, "tags": ["x", "é"]}
    payload = JsonWriter(ORDER).write(value)
    assert payload == '{"id":1,"tags":["x","é"]}'.encode()
    assert JsonReader(ORDER).read(payload) == value
    assert JsonReader(ORDER).read(memoryview(payload)) == value


def test_structs_are_written_and_validated_as_their_json() -> None:
    payload = JsonWriter(ORDER).write(Order(1, datetime(2026, 1, 1, tzinfo=UTC)))
    assert payload == b'{"id":1,"at":"2026-01-01T00:00:00Z"}'
    with pytest.raises(InvalidValueError, match="at #/id: 10 is greater than the maximum of 9"):
        JsonWriter(ORDER).write(Order(10, datetime(2026, 1, 1, tzinfo=UTC)))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"{} {}", "not JSON"),
        (b'{"id":"\xff"}', "not UTF-8"),
        (b'{"id":NaN}', "not JSON"),
        (b'{"id":' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"id":1e999}', "not JSON"),
        (b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1), f"more than {DEPTH_MAX}"),
        (b'{"id":1,"tags":' + b"[" * 1_000_000, f"more than {DEPTH_MAX}"),
        (b"\xff" + b"[" * 1000, "not UTF-8"),
        (b"{}", '"id" is a required property'),
        (b'{"id":"1"}', "at #/id"),
        (b'{"id":1,"tags":["x",2]}', "at #/tags/1"),
    ],
)
def test_payloads_that_do_not_fit_are_one_error(payload: bytes, reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        JsonReader(ORDER).read(payload)


def test_the_last_of_equal_keys_counts() -> None:
    assert JsonReader(ORDER).read(b'{"id":"x","id":2}') == {"id": 2}


def test_values_up_to_the_depth_limit_are_read_and_written() -> None:
    value = nested(DEPTH_MAX)
    assert JsonReader(ANYTHING).read(JsonWriter(ANYTHING).write(value)) == value
    with pytest.raises(InvalidValueError, match=f"more than {DEPTH_MAX}"):
        JsonWriter(ANYTHING).write(nested(DEPTH_MAX + 1))


def test_values_that_json_cannot_hold_are_one_error() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (object(), endless, nested(100_000), "\ud800", {(1, 2): 3}, {1, object()}):
        with pytest.raises(InvalidValueError):
            JsonWriter(ANYTHING).write(value)
    with pytest.raises(InvalidValueError, match="at #/id"):
        JsonWriter(ORDER).write({"id": float("nan")})


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_one_error(payload: bytes) -> None:
    try:
        JsonReader(ORDER).read(payload)
    except InvalidValueError:
        return
    assert isinstance(msgspec.json.decode(payload), dict)
