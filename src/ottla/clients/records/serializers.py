"""Serializers and deserializers that are compatible with Kafka's own.

A serializer is a name such as `key_serializer="string"`, a constant of this module, a function of
one value, or an object with `serialize(topic, value, headers)`, as schema registries need. None, a
tombstone, is never serialized. Without a serializer bytes are unchanged, and text is encoded in
UTF-8.
"""

import json
import struct
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")
Headers = Sequence[tuple[str, bytes | None]]
Serialize = Callable[[str, Any, Headers], bytes | None]
"""The common signature of all serializers: topic, value, headers."""
Deserialize = Callable[[str, bytes, Headers], Any]


class SerializationError(ValueError):
    """A key or value cannot be serialized; the record was not queued."""


class MissingSchemaError(LookupError):
    """A value's schema is not known yet: await `fetch`, outside of locks, and read it again."""

    def __init__(
        self, message: str, part: str, fetch: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        super().__init__(message)
        self.part = part
        self.fetch = fetch


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a coroutine of a synchronous client has suspended")


@runtime_checkable
class Serializer(Protocol):
    """Encodes values; it may use the topic. It must not keep the headers."""

    def serialize(self, topic: str, value: Any, headers: Headers, /) -> bytes | None:
        """Return the bytes; an exception fails this record alone."""
        ...


@runtime_checkable
class Deserializer(Protocol):
    """Decodes values; it may use the topic."""

    def deserialize(self, topic: str, value: bytes, headers: Headers, /) -> Any:
        """Return the value; an exception is reported with the record's partition and offset."""
        ...


@dataclass(frozen=True, slots=True)
class Serde:
    """Both directions of one format."""

    name: str
    to_bytes: Callable[[Any], bytes]
    from_bytes: Callable[[bytes], Any]

    def serialize(self, topic: str, value: Any, headers: Headers, /) -> bytes:  # noqa: ARG002
        """Return the bytes."""
        return self.to_bytes(value)

    def deserialize(self, topic: str, value: bytes, headers: Headers, /) -> Any:  # noqa: ARG002
        """Return the value."""
        return self.from_bytes(value)


def _number(name: str, layout: str) -> Serde:
    packed = struct.Struct(layout)

    def from_bytes(value: bytes) -> Any:
        if len(value) != packed.size:
            raise ValueError(f"{name} has {packed.size} bytes, not {len(value)}")
        return packed.unpack(value)[0]

    return Serde(name, packed.pack, from_bytes)


def _text_to_bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is not str")
    return value.encode()


def _plain_to_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{type(value).__name__} is neither bytes nor str")


def _json_to_bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


BYTES: Final = Serde("bytes", _plain_to_bytes, bytes)
STRING: Final = Serde("string", _text_to_bytes, bytes.decode)
JSON: Final = Serde("json", _json_to_bytes, json.loads)
SHORT: Final = _number("short", ">h")
INTEGER: Final = _number("integer", ">i")
LONG: Final = _number("long", ">q")
FLOAT: Final = _number("float", ">f")
DOUBLE: Final = _number("double", ">d")
UUID: Final = Serde(
    "uuid", lambda value: str(uuid.UUID(str(value))).encode(), lambda raw: uuid.UUID(raw.decode())
)
"""A UUID as text of 36 characters, as in Kafka."""

_SERDES: Final = (BYTES, STRING, JSON, SHORT, INTEGER, LONG, FLOAT, DOUBLE, UUID)
_JAVA_PACKAGE: Final = "org.apache.kafka.common.serialization."
_JAVA_NAMES: Final = {"bytes": "ByteArray", "uuid": "UUID"}


def _serde_by_name() -> Mapping[str, Serde]:
    found = {serde.name: serde for serde in _SERDES} | {"str": STRING}
    for serde in _SERDES:
        java = _JAVA_PACKAGE + _JAVA_NAMES.get(serde.name, serde.name.title())
        found |= {f"{java}Serializer": serde, f"{java}Deserializer": serde}
    return found


SERDE_BY_NAME: Final = _serde_by_name()
"""Formats by ottla's names, and by Kafka's class names."""
NAMES: Final = ", ".join(serde.name for serde in _SERDES)


def find_serializer(given: Any) -> Any:
    """Return a serializer, looked up by name; ValueError or TypeError if it is invalid."""
    return _find(given, Serializer)


def find_deserializer(given: Any) -> Any:
    """Return a deserializer, looked up by name; ValueError or TypeError if it is invalid."""
    return _find(given, Deserializer)


def _find(given: Any, protocol: type) -> Any:
    if isinstance(given, str):
        if given not in SERDE_BY_NAME:
            raise ValueError(given)
        return SERDE_BY_NAME[given]
    if not isinstance(given, protocol) and not callable(given):
        raise TypeError(given)
    return given


def bind_serializer(serializer: Any, part: str) -> Serialize:
    """Return one function for any form of serializer; `part` is key or value, for error texts.

    A failure in it becomes a SerializationError with the topic and the part.
    """
    serialize = _serialize_of(serializer)

    def bound(topic: str, value: Any, headers: Headers) -> bytes | None:
        if value is None:
            return None
        try:
            made = serialize(topic, value, headers)
        except Exception as error:
            raise not_serialized(topic, part, serializer, error) from error
        if made is not None and not isinstance(made, bytes):
            raise SerializationError(
                f"topic {topic!r}: the serializer of the {part} made {type(made).__name__}, "
                "not bytes"
            )
        return made

    return bound


def not_serialized(topic: str, part: str, serializer: Any, error: Exception) -> SerializationError:
    """Return the error of a key or value that a serializer does not accept."""
    name = getattr(serializer, "name", "") or "the serializer given"
    return SerializationError(
        f"topic {topic!r}: the {part} cannot be serialized by {name}: {error}"
    )


def bind_deserializer(deserializer: Any) -> Deserialize | None:
    """Return one function for any form of deserializer; None if bytes are to stay bytes."""
    if deserializer is None or deserializer is BYTES:
        return None
    if hasattr(deserializer, "deserialize_known"):  # of a schema: the consumer fetches schemas
        known: Deserialize = deserializer.deserialize_known
        return known
    if isinstance(deserializer, Deserializer):
        return deserializer.deserialize
    return lambda _topic, value, _headers: deserializer(value)


def _serialize_of(serializer: Any) -> Serialize:
    if serializer is None:
        return BYTES.serialize
    if isinstance(serializer, Serializer):
        return serializer.serialize
    return lambda _topic, value, _headers: serializer(value)
