"""Confluent's wire format: the id or GUID of a value's schema, before the value or in a header.

Prefix: byte 0, the id as a big-endian int32, and for Protobuf the path of the message. Header:
byte 1, the 16 bytes of the GUID, and for Protobuf the path; the value itself is bare.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

PREFIX_BYTES: Final = 5
KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"
HEADER_BY_PART: Final = {"key": KEY_HEADER, "value": VALUE_HEADER}
INDEXES_MAX: Final = 64
"""How deep a Protobuf message may be nested in others."""
_ID_MAGIC: Final = 0
_GUID_MAGIC: Final = 1
_GUID_END: Final = 17
_VARINT_BYTES_MAX: Final = 5


class FramingError(ValueError):
    """The bytes do not begin with the id of a schema, and no header has one."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The schema of one value. Exactly one of `id` and `guid` is set."""

    id: int | None
    guid: str | None
    payload_start: int
    """Where the payload begins; for Protobuf in prefix form, the path is before it."""
    indexes: tuple[int, ...] = ()
    """The path of the Protobuf message; empty for other types."""


def prefix(schema_id: int, indexes: Sequence[int] = ()) -> bytes:
    """Return the bytes before a value. `indexes` are for Protobuf only."""
    path = write_indexes(indexes) if indexes else b""
    return b"\0" + schema_id.to_bytes(4, "big") + path


def header_value(guid: str, indexes: Sequence[int] = ()) -> bytes:
    """Return the value of the header that names the schema. `indexes` are for Protobuf only."""
    path = write_indexes(indexes) if indexes else b""
    return b"\1" + uuid.UUID(guid).bytes + path


def find_header(headers: Iterable[Any], part: str) -> bytes | None:
    """Return the value of the last header for this part, key or value; None without one."""
    name, found = HEADER_BY_PART[part], None
    for key, value in headers:
        if key == name:
            found = value
    return found


def read_id(payload: bytes | memoryview) -> int:
    """Return the id of a value in prefix form, the fast case; FramingError if it has none."""
    if len(payload) < PREFIX_BYTES or payload[0] != _ID_MAGIC:
        raise FramingError(_reason(payload))
    return int.from_bytes(payload[1:PREFIX_BYTES], "big")


def read_guid(header: bytes) -> str:
    """Return the GUID of a header's value; FramingError if it has none."""
    if len(header) < _GUID_END or header[0] != _GUID_MAGIC:
        raise FramingError(
            f"the header with the schema's id has {len(header)} bytes: expected byte 1 and the "
            "16 bytes of a GUID"
        )
    return str(uuid.UUID(bytes=bytes(header[1:_GUID_END])))


def read_frame(
    payload: bytes | memoryview, headers: Iterable[Any], part: str, *, has_indexes: bool
) -> Frame:
    """Find the schema of a value, in the headers first; FramingError if there is none.

    Confluent's header may also be in prefix form, with an id: then the value is bare, too.
    """
    header = find_header(headers, part)
    if header is not None and header[:1] == b"\1":
        indexes, _ = read_indexes(header, _GUID_END) if has_indexes else ((), 0)
        return Frame(None, read_guid(header), 0, indexes)
    if header is not None:
        schema_id = read_id(header)
        indexes, _ = read_indexes(header, PREFIX_BYTES) if has_indexes else ((), 0)
        return Frame(schema_id, None, 0, indexes)
    schema_id = read_id(payload)
    indexes, start = read_indexes(payload, PREFIX_BYTES) if has_indexes else ((), PREFIX_BYTES)
    return Frame(schema_id, None, start, indexes)


def write_indexes(indexes: Sequence[int]) -> bytes:
    """Return the path of a message: a count and its numbers; the path [0] is one zero byte."""
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(map(_zigzag, (len(indexes), *indexes)))


def read_indexes(payload: bytes | memoryview, start: int) -> tuple[tuple[int, ...], int]:
    """Return the path of a message, and where it ends; FramingError if it is not one."""
    count, position = _read_zigzag(payload, start)
    if count == 0:
        return (0,), position
    if not 0 < count <= INDEXES_MAX:
        raise FramingError(f"the path of the Protobuf message has {count} numbers")
    indexes = []
    for _ in range(count):
        index, position = _read_zigzag(payload, position)
        if index < 0:
            raise FramingError(f"the path of the Protobuf message has the number {index}")
        indexes.append(index)
    return tuple(indexes), position


def _zigzag(number: int) -> bytes:
    rest, made = number << 1, bytearray()
    while rest > 0x7F:
        made.append(rest & 0x7F | 0x80)
        rest >>= 7
    made.append(rest)
    return bytes(made)


def _read_zigzag(payload: bytes | memoryview, start: int) -> tuple[int, int]:
    number = 0
    for position in range(start, min(start + _VARINT_BYTES_MAX, len(payload))):
        byte = payload[position]
        number |= (byte & 0x7F) << 7 * (position - start)
        if byte < 0x80:
            return number >> 1 ^ -(number & 1), position + 1
    raise FramingError("the path of the Protobuf message is cut off or too long")


def _reason(payload: bytes | memoryview) -> str:
    if len(payload) < PREFIX_BYTES:
        return f"{len(payload)} bytes are too short for the id of a schema"
    return f"the bytes begin with {payload[0]:#04x}, not with 0x00 and the id of a schema"
