"""Serializers and deserializers, compatible with Kafka's own."""

import uuid
from typing import Any

import pytest

from ottla.clients.records.serializers import (
    BYTES,
    DOUBLE,
    FLOAT,
    INTEGER,
    JSON,
    LONG,
    SERDE_BY_NAME,
    SHORT,
    STRING,
    UUID,
    Headers,
    Serde,
    SerializationError,
    bind_deserializer,
    bind_serializer,
)

ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("serde", "value", "raw"),
    [
        (BYTES, b"\x00\xff", b"\x00\xff"),
        (STRING, "Zürau", b"Z\xc3\xbcrau"),
        (JSON, {"to": ["Ottla", 1, None]}, b'{"to":["Ottla",1,null]}'),
        (SHORT, -2, b"\xff\xfe"),
        (INTEGER, 258, b"\x00\x00\x01\x02"),
        (LONG, -1, b"\xff" * 8),
        (FLOAT, 0.5, b"\x3f\x00\x00\x00"),
        (DOUBLE, 1.5, b"\x3f\xf8\x00\x00\x00\x00\x00\x00"),
        (UUID, ID, b"12345678-1234-5678-1234-567812345678"),
    ],
)
def test_bytes_equal_the_bytes_of_kafka(serde: Serde, value: Any, raw: bytes) -> None:
    assert bind_serializer(serde, "value")("letters", value, ()) == raw
    read = bind_deserializer(serde)
    assert raw == value if read is None else read("letters", raw, ()) == value


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (STRING, 7),
        (JSON, {1, 2}),
        (JSON, float("nan")),
        (INTEGER, 1 << 31),
        (LONG, "7"),
        (UUID, "letter"),
        (None, 7),
    ],
)
def test_what_cannot_be_serialized_says_where(serde: Serde | None, value: Any) -> None:
    with pytest.raises(SerializationError, match="topic 'letters': the key cannot be serialized"):
        bind_serializer(serde, "key")("letters", value, ())


@pytest.mark.parametrize("serde", [SHORT, INTEGER, LONG, FLOAT, DOUBLE])
def test_a_number_of_another_size_is_none(serde: Serde) -> None:
    with pytest.raises(ValueError, match="bytes, not 5"):
        serde.deserialize("letters", b"12345", ())


def test_a_tombstone_stays_one() -> None:
    assert bind_serializer(JSON, "value")("letters", None, ()) is None


def test_without_a_serializer_bytes_and_text_are_taken() -> None:
    plain = bind_serializer(None, "value")
    assert plain("letters", b"a", ()) == b"a"
    assert plain("letters", "ü", ()) == b"\xc3\xbc"
    assert plain("letters", bytearray(b"a"), ()) == b"a"
    assert plain("letters", memoryview(b"a"), ()) == b"a"
    assert bind_deserializer(None) is None


def test_a_plain_function_does_as_well() -> None:
    assert bind_serializer(str.encode, "value")("letters", "a", ()) == b"a"
    read = bind_deserializer(int)
    assert read is not None
    assert read("letters", b"7", ()) == 7
    with pytest.raises(SerializationError, match="made int, not bytes"):
        bind_serializer(len, "value")("letters", "abc", ())


def test_an_object_may_look_at_the_topic_and_the_headers() -> None:
    class ByTopic:
        def serialize(self, topic: str, value: str, headers: Headers) -> bytes:
            return f"{topic}/{value}/{len(headers)}".encode()

    assert bind_serializer(ByTopic(), "value")("letters", "a", [("h", b"")]) == b"letters/a/1"


def test_kafkas_class_names_are_known() -> None:
    package = "org.apache.kafka.common.serialization"
    assert SERDE_BY_NAME[f"{package}.LongSerializer"] is LONG
    assert SERDE_BY_NAME[f"{package}.ByteArrayDeserializer"] is BYTES
    assert SERDE_BY_NAME[f"{package}.UUIDSerializer"] is UUID
