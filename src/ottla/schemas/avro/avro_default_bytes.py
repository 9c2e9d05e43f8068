"""The JSON default of a field as Avro binary: the decoder of data also reads defaults."""

from __future__ import annotations

import struct
from typing import Any, Final

from ottla.schemas.avro.avro_types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enum,
    Fixed,
    Kind,
    Map,
    Primitive,
    Record,
    Union,
)
from ottla.schemas.parsed_schema import InvalidSchemaError

_INTEGER_LIMITS: Final = {Kind.INT: 1 << 31, Kind.LONG: 1 << 63}


def encoded_default(avro_type: AvroType, value: Any) -> bytes:  # noqa: PLR0911 - one a type
    """Return a default as Avro binary.

    The default of a union belongs to its first branch that accepts it. InvalidSchemaError if the
    default does not fit the type.
    """
    match avro_type:
        case Primitive():
            return _primitive(avro_type.kind, value)
        case Record():
            return _record(avro_type, value)
        case Enum():
            return encoded_long(_symbol(avro_type, value))
        case Fixed():
            return _fixed(avro_type, value)
        case Array():
            items = [encoded_default(avro_type.items, item) for item in _checked(value, list)]
            return _block(items)
        case Map():
            members = _checked(value, dict).items()
            return _block([_text(key) + encoded_default(avro_type.values, v) for key, v in members])
        case Union():
            return _union(avro_type, value)


def encoded_long(number: int) -> bytes:
    """Return a zigzag varint."""
    remaining = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while remaining > 0x7F:
        encoded.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    encoded.append(remaining)
    return bytes(encoded)


def _primitive(kind: Kind, value: Any) -> bytes:
    match kind:
        case Kind.NULL:
            if value is not None:
                raise _unfit(value, "null")
            return b""
        case Kind.BOOLEAN:
            return bytes([_checked(value, bool)])
        case Kind.INT | Kind.LONG:
            return encoded_long(_integer(value, _INTEGER_LIMITS[kind]))
        case Kind.FLOAT | Kind.DOUBLE:
            return _real(kind, value)
        case Kind.BYTES:
            content = _latin(value)
            return encoded_long(len(content)) + content
        case Kind.STRING:
            return _text(_checked(value, str))


def _integer(value: Any, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit:
        raise _unfit(value, "an integer in range")
    return value


def _real(kind: Kind, value: Any) -> bytes:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _unfit(value, "a number")
    try:
        return struct.pack("<f" if kind is Kind.FLOAT else "<d", value)
    except OverflowError:
        raise _unfit(value, f"a {kind} in range") from None


def _latin(value: Any) -> bytes:
    try:
        return bytes(_checked(value, str).encode("latin-1"))
    except UnicodeEncodeError:
        raise _unfit(value, "bytes, written as characters below U+0100") from None


def _text(value: str) -> bytes:
    try:
        content = value.encode()
    except UnicodeEncodeError:
        raise _unfit(value, "text without lone surrogates") from None
    return encoded_long(len(content)) + content


def _fixed(fixed: Fixed, value: Any) -> bytes:
    content = _latin(value)
    if len(content) != fixed.size:
        raise _unfit(value, f"{fixed.size} bytes")
    return content


def _symbol(enum: Enum, value: Any) -> int:
    if value not in enum.symbols:
        raise _unfit(value, f"a symbol of {enum.full_name}")
    return enum.symbols.index(value)


def _record(record: Record, value: Any) -> bytes:
    members = _checked(value, dict)
    encoded = []
    for field in record.fields:
        member = members.get(field.name, field.default)
        if member is NO_DEFAULT:
            raise _unfit(value, f"a {record.full_name} with the field {field.name}")
        encoded.append(encoded_default(field.type, member))
    return b"".join(encoded)


def _union(union: Union, value: Any) -> bytes:
    for index, branch in enumerate(union.branches):
        try:
            return encoded_long(index) + encoded_default(branch, value)
        except InvalidSchemaError:
            continue
    raise _unfit(value, "a value of any branch of its union")


def _block(items: list[bytes]) -> bytes:
    return (encoded_long(len(items)) + b"".join(items) if items else b"") + b"\0"


def _checked(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise _unfit(value, f"a {kind.__name__}")
    return value


def _unfit(value: Any, expected: str) -> InvalidSchemaError:
    return InvalidSchemaError(f"The default {value!r:.100} is not {expected}")
