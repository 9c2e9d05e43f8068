"""Messages as bytes and as dicts."""

import pytest

from ottla.schemas.protobuf.protobuf_schema import parse_protobuf
from ottla.schemas.protobuf.protobuf_values import (
    ProtobufReader,
    ProtobufWriter,
    dict_of,
    message_from_dict,
)
from ottla.schemas.values import InvalidValueError

SCHEMA = parse_protobuf("""
syntax = "proto2"; package p;
message A { optional int32 id = 1; optional A inner = 2; repeated string tags = 3; }
message R { required int32 id = 1; }
""")


def test_a_dict_becomes_a_message_and_comes_back() -> None:
    message = message_from_dict(SCHEMA, {"id": 5, "inner": {"tags": ["x"]}})
    payload = ProtobufWriter(SCHEMA).write(message)
    again = ProtobufReader(SCHEMA).read(memoryview(payload))
    assert again == message
    assert dict_of(again, SCHEMA) == {"id": 5, "inner": {"tags": ["x"]}, "tags": []}


def test_values_that_do_not_fit_end_in_one_error() -> None:
    with pytest.raises(InvalidValueError, match=r"inner field.*id field"):
        message_from_dict(SCHEMA, {"inner": {"id": "x"}})
    with pytest.raises(InvalidValueError, match=r"not a message p\.A"):
        ProtobufReader(SCHEMA).read(b"\xff")
    with pytest.raises(InvalidValueError, match="id"):
        ProtobufWriter(SCHEMA).write(SCHEMA.message_class("p.R")())
    other = parse_protobuf("syntax = 'proto3'; message Other {}")
    with pytest.raises(InvalidValueError, match="does not declare message Other"):
        ProtobufWriter(SCHEMA).write(other.message_class("Other")())
    with pytest.raises(ValueError, match=r"does not declare message p\.X"):
        ProtobufReader(SCHEMA, "p.X")
    deep: dict[str, object] = {}
    for _ in range(5_000):
        deep = {"inner": deep}
    with pytest.raises(InvalidValueError):
        message_from_dict(SCHEMA, deep)
