"""Defaults of fields: JSON values that must fit their Avro types."""

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

DEFAULT_VALUES_MAX: Final = 100_000
"""The most values in one default, with the defaults of the fields that it leaves out."""

_IN_PROGRESS: Final = -2
_DOES_NOT_FIT: Final = -1

_INTEGER_BITS: Final = {Kind.INT: 31, Kind.LONG: 63}


def check_default(of_type: AvroType, default: Any, sizes: dict[tuple[int, int], int]) -> str | None:
    """Return why a JSON value is not a default of a type, or None.

    A union takes a default of any of its branches. `sizes` is kept between calls of one schema.
    """
    size = _size(of_type, default, sizes)
    if size == _IN_PROGRESS:
        return "It contains itself through the defaults of the record's fields"
    if size == _DOES_NOT_FIT:
        return f"{_short(default)} is not a value of type {_type_name(of_type)}"
    if size > DEFAULT_VALUES_MAX:
        return f"It has more than {DEFAULT_VALUES_MAX} values"
    return None


def fits(of_type: AvroType, default: Any) -> bool:
    """Whether a JSON value is a default of a type."""
    return _size(of_type, default, {}) >= 0


def _size(of_type: AvroType, value: Any, sizes: dict[tuple[int, int], int]) -> int:
    """Return how many values a default has, or a negative number if it does not fit."""
    match of_type:
        case Primitive():
            return 1 if _is_primitive(of_type.kind, value) else _DOES_NOT_FIT
        case Enum() | Fixed():
            return 1 if isinstance(value, str) else _DOES_NOT_FIT
        case _:
            pass
    if not isinstance(value, dict | list):
        return _size_in_union(of_type, value, sizes) if isinstance(of_type, Union) else -1
    # Both objects live as long as the schema, so their identities are a key.
    key = id(of_type), id(value)
    known = sizes.get(key)
    if known is None:
        sizes[key] = _IN_PROGRESS
        sizes[key] = known = _size_inside(of_type, value, sizes)
    return known


def _size_inside(
    of_type: AvroType, value: dict[str, Any] | list[Any], sizes: dict[tuple[int, int], int]
) -> int:
    match of_type:
        case Union():
            return _size_in_union(of_type, value, sizes)
        case Array() if isinstance(value, list):
            return _sum([_size(of_type.items, item, sizes) for item in value])
        case Map() if isinstance(value, dict):
            return _sum([_size(of_type.values, item, sizes) for item in value.values()])
        case Record() if isinstance(value, dict):
            return _size_of_record(of_type, value, sizes)
        case _:
            return _DOES_NOT_FIT


def _size_of_record(
    record: Record, value: dict[str, Any], sizes: dict[tuple[int, int], int]
) -> int:
    parts = []
    for field in record.fields:
        inner = value.get(field.name, field.default)
        if inner is NO_DEFAULT:
            return _DOES_NOT_FIT
        parts.append(_size(field.type, inner, sizes))
    return _sum(parts)


def _size_in_union(union: Union, value: Any, sizes: dict[tuple[int, int], int]) -> int:
    found = [_size(branch, value, sizes) for branch in union.branches]
    return next((size for size in found if size >= 0), min(found, default=_DOES_NOT_FIT))


def _sum(parts: list[int]) -> int:
    return min(parts) if any(part < 0 for part in parts) else 1 + sum(parts)


def _is_primitive(kind: Kind, value: Any) -> bool:
    match kind:
        case Kind.NULL:
            return value is None
        case Kind.BOOLEAN:
            return isinstance(value, bool)
        case Kind.INT | Kind.LONG:
            bits = _INTEGER_BITS[kind]
            return type(value) is int and -(1 << bits) <= value < 1 << bits
        case Kind.FLOAT | Kind.DOUBLE:
            return type(value) in (int, float)
        case Kind.BYTES | Kind.STRING:
            return isinstance(value, str)


def _type_name(of_type: AvroType) -> str:
    match of_type:
        case Record() | Enum() | Fixed():
            return of_type.full_name
        case Primitive():
            return of_type.kind.value
        case Union():
            return f"[{', '.join(_type_name(branch) for branch in of_type.branches[:5])}]"
        case Array():
            return "array"
        case Map():
            return "map"


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, list | dict) else f"A JSON {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
