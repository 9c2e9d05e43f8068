"""The wire format of ids, GUIDs and paths of Protobuf messages, beside Confluent's own code."""

import io
import uuid

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.schemas.framing import (
    KEY_HEADER,
    VALUE_HEADER,
    FramingError,
    header_value,
    prefix,
    read_frame,
    read_indexes,
    write_indexes,
)
from ottla.clients.schemas.subject_names import find_strategy

GUID = "89791762-2336-4186-9674-299b90a802e2"
PATHS = st.lists(st.integers(0, 5000), min_size=1, max_size=8).map(tuple)


@given(st.integers(0, 2**31 - 1), PATHS)
def test_prefixes_are_confluents(schema_id: int, path: tuple[int, ...]) -> None:
    theirs = SchemaId("PROTOBUF", schema_id, None, list(path))
    assert prefix(schema_id, path) == theirs.id_to_bytes()
    read = SchemaId("PROTOBUF")
    read.from_bytes(io.BytesIO(prefix(schema_id, path)))
    assert (read.id, tuple(read.message_indexes or ())) == (schema_id, path)
    frame = read_frame(prefix(schema_id, path) + b"payload", (), "value", has_indexes=True)
    assert (frame.id, frame.indexes, frame.guid) == (schema_id, path, None)
    assert frame.payload_start == len(prefix(schema_id, path))


@given(PATHS)
def test_headers_are_confluents(path: tuple[int, ...]) -> None:
    theirs = SchemaId("PROTOBUF", None, GUID, list(path))
    assert header_value(GUID, path) == theirs.guid_to_bytes()
    headers = [(KEY_HEADER, b"\1" * 17), (VALUE_HEADER, header_value(GUID, path))]
    frame = read_frame(b"\0\0\0\0\1", headers, "value", has_indexes=True)
    assert (frame.guid, frame.id, frame.payload_start, frame.indexes) == (GUID, None, 0, path)


def test_a_header_may_have_an_id() -> None:
    frame = read_frame(b"", [(VALUE_HEADER, prefix(4))], "value", has_indexes=False)
    assert (frame.id, frame.payload_start) == (4, 0)


@given(PATHS)
def test_paths_are_read_as_written(path: tuple[int, ...]) -> None:
    written = write_indexes(path)
    assert read_indexes(written, 0) == (path, len(written))
    assert write_indexes([0]) == b"\0"
    for end in range(len(written)):
        with pytest.raises(FramingError):
            read_indexes(written[:end], 0)


@given(st.binary(max_size=24), st.booleans())
def test_any_bytes_end_in_a_frame_or_one_error(payload: bytes, has_indexes: bool) -> None:
    for headers in ((), [(VALUE_HEADER, payload)]):
        try:
            frame = read_frame(payload, headers, "value", has_indexes=has_indexes)
        except FramingError as error:
            assert str(error)
        else:
            assert (frame.id is None) != (frame.guid is None)
            assert frame.guid is None or uuid.UUID(frame.guid)


def test_bytes_without_an_id_are_explained() -> None:
    with pytest.raises(FramingError, match="3 bytes are too short"):
        read_frame(b"abc", (), "value", has_indexes=False)
    with pytest.raises(FramingError, match="begin with 0x7b, not with 0x00"):
        read_frame(b'{"a":1}', (), "value", has_indexes=False)


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("TopicNameStrategy", "orders-key"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "shop.Order"),
        ("TOPIC_RECORD", "orders-shop.Order"),
    ],
)
def test_subjects_follow_confluents_strategies(name: str, subject: str) -> None:
    assert find_strategy(name)("orders", "key", "shop.Order") == subject


def test_a_schema_without_a_name_needs_the_topic_name_strategy() -> None:
    with pytest.raises(ValueError, match="RecordNameStrategy needs a schema with a name"):
        find_strategy("RecordNameStrategy")("orders", "value", None)
    with pytest.raises(ValueError, match="Alphabetic"):
        find_strategy("Alphabetic")
