"""The branch of a union for a Python value, when values are written.

A value may name its branch: `("ns.Name", value)`, or `{"-type": "ns.Name", …}` as in fastavro.
Otherwise the Python type decides, then the content: the range of an int, the symbols of an enum,
the fields of a record.
"""

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum as PythonEnum
from typing import Any, Final
from uuid import UUID

from ottla.schemas.avro.avro_compatibility import last_name
from ottla.schemas.avro.avro_parser import branch_name
from ottla.schemas.avro.avro_steps import InvalidValueError
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

_BYTES: Final = (bytes, bytearray, memoryview)
_KIND_TYPES: Final[Mapping[Kind, tuple[type, ...]]] = {
    Kind.NULL: (type(None),),
    Kind.BOOLEAN: (bool,),
    Kind.INT: (int,),
    Kind.LONG: (int,),
    Kind.FLOAT: (float,),
    Kind.DOUBLE: (float,),
    Kind.BYTES: _BYTES,
    Kind.STRING: (str,),
}
_LOGICAL_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "date": (date,),
    "time-millis": (time,),
    "time-micros": (time,),
    "timestamp-millis": (datetime,),
    "timestamp-micros": (datetime,),
    "timestamp-nanos": (datetime,),
    "local-timestamp-millis": (datetime,),
    "local-timestamp-micros": (datetime,),
    "local-timestamp-nanos": (datetime,),
    "uuid": (UUID,),
    "decimal": (Decimal,),
}
_BITS: Final = {Kind.INT: 31, Kind.LONG: 63}


def branch_by_type(union: Union) -> dict[type, int]:
    """Return the branch for each Python type that only one branch takes."""
    return {
        python_type: indexes[0]
        for python_type, indexes in _branches_by_type(union).items()
        if len(indexes) == 1 and python_type is not tuple
    }


def picking(union: Union) -> Callable[[Any], tuple[int, Any]]:
    """Return a function that returns the branch for a value, and the value without its name."""
    indexes_by_type = _branches_by_type(union)
    index_by_name = {branch_name(branch): index for index, branch in enumerate(union.branches)}

    def pick(value: Any) -> tuple[int, Any]:
        named = _named(value, index_by_name)
        if named is not None:
            return named
        for index in _candidates(value, indexes_by_type, union):
            if _takes(union.branches[index], value):
                return index, value
        names = ", ".join(index_by_name)
        raise InvalidValueError(
            f"No branch of the union takes a value of type {type(value).__name__}: {names}"
        )

    return pick


def _branches_by_type(union: Union) -> dict[type, list[int]]:
    found: dict[type, list[int]] = {}
    for index, branch in enumerate(union.branches):
        for python_type in _python_types(branch):
            found.setdefault(python_type, []).append(index)
    # An int is written as a float if no branch is an integer; other numbers never are.
    if int not in found and float in found:
        found[int] = found[float]
    return found


def _python_types(branch: AvroType) -> tuple[type, ...]:
    match branch:
        case Primitive():
            own = _KIND_TYPES[branch.kind]
            return own if branch.logical is None else own + _LOGICAL_TYPES[branch.logical.name]
        case Fixed():
            logical = branch.logical
            return _BYTES + (_LOGICAL_TYPES.get(logical.name, ()) if logical else ())
        case Enum():
            return (str,)
        case Array():
            return (list, tuple)
        case Map() | Record():
            return (dict,)
        case Union():
            raise AssertionError("A union is not directly inside a union")


def _named(value: Any, index_by_name: Mapping[str, int]) -> tuple[int, Any] | None:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        index = index_by_name.get(value[0])
        return None if index is None else (index, value[1])
    if isinstance(value, dict) and isinstance(value.get("-type"), str):
        index = index_by_name.get(value["-type"])
        return None if index is None else (index, value)
    return None


def _candidates(value: Any, indexes_by_type: Mapping[type, list[int]], union: Union) -> list[int]:
    for python_type in type(value).__mro__:
        if python_type in indexes_by_type:
            found = indexes_by_type[python_type]
            return _by_fields(value, found, union) if python_type is dict else found
    if isinstance(value, PythonEnum):
        return indexes_by_type.get(str, [])
    if isinstance(value, Mapping):
        return _by_fields(value, indexes_by_type.get(dict, []), union)
    if isinstance(value, int | float | str | bytes | date | time | Decimal | UUID):
        return []
    return _by_class(value, union)


def _by_class(value: Any, union: Union) -> list[int]:
    """Return the records for an object: of the name of its class, or the only record."""
    records = {
        index: branch for index, branch in enumerate(union.branches) if isinstance(branch, Record)
    }
    named = [
        index
        for index, record in records.items()
        if last_name(record.full_name) == type(value).__name__
    ]
    return named or (list(records) if len(records) == 1 else [])


def _by_fields(value: Mapping[Any, Any], indexes: list[int], union: Union) -> list[int]:
    """Return the branches for a mapping, the record with the most fields in common first."""
    if len(indexes) < 2:
        return indexes

    def rank(index: int) -> tuple[int, int]:
        branch = union.branches[index]
        if not isinstance(branch, Record):
            return 0, 0
        known = sum(field.name in value for field in branch.fields)
        return len(value) - known, len(branch.fields) - known

    return sorted(indexes, key=rank)


def _takes(branch: AvroType, value: Any) -> bool:
    """Whether a branch takes a value of a Python type that it takes, by the content."""
    match branch:
        case Primitive():
            return _primitive_takes(branch, value)
        case Fixed():
            return not isinstance(value, bytes | bytearray) or len(value) == branch.size
        case Enum():
            texts = (value.value, value.name) if isinstance(value, PythonEnum) else (value,)
            return any(text in branch.symbols for text in texts)
        case Record():
            return _record_takes(branch, value)
        case _:
            return True


def _primitive_takes(branch: Primitive, value: Any) -> bool:
    if branch.kind in _BITS and isinstance(value, int):
        bits = _BITS[branch.kind]
        return not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
    if isinstance(value, PythonEnum):
        return isinstance(value, str)
    return not isinstance(value, bool) or branch.kind is Kind.BOOLEAN


def _record_takes(record: Record, value: Any) -> bool:
    if not isinstance(value, Mapping):
        return True
    return all(field.name in value or field.default is not NO_DEFAULT for field in record.fields)
