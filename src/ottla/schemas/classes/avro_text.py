"""The Avro schema of a class."""

import datetime
import json
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from ottla.schemas.classes.class_types import (
    NO_DEFAULT,
    Atom,
    AtomType,
    ClassType,
    DecimalType,
    EnumType,
    FieldType,
    ListType,
    MapType,
    RecordType,
    UnionType,
)
from ottla.schemas.parsed_schema import InvalidSchemaError

_ATOMS: Final[Mapping[Atom, Any]] = {
    Atom.NULL: "null",
    Atom.BOOLEAN: "boolean",
    Atom.INT: "long",
    Atom.INT32: "int",
    Atom.FLOAT: "double",
    Atom.FLOAT32: "float",
    Atom.STRING: "string",
    Atom.BYTES: "bytes",
    Atom.DATETIME: {"type": "long", "logicalType": "timestamp-micros"},
    Atom.DATE: {"type": "int", "logicalType": "date"},
    Atom.TIME: {"type": "long", "logicalType": "time-micros"},
    Atom.UUID: {"type": "string", "logicalType": "uuid"},
}
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_DAY: Final = _EPOCH.date().toordinal()
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


def avro_text(record: RecordType, namespace: str | None) -> str:
    """Return the schema's text; InvalidSchemaError if a union is none in Avro."""
    return json.dumps(_Writer(namespace).type(record), ensure_ascii=False)


class _Writer:
    """Writes each named type in full once, and by its name afterwards."""

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace
        self._written: set[str] = set()

    def type(self, found: ClassType) -> Any:
        match found:
            case AtomType() | DecimalType():
                return _simple(found)
            case ListType():
                return {"type": "array", "items": self.type(found.item)}
            case MapType():
                return {"type": "map", "values": self.type(found.value)}
            case UnionType():
                return self._union(found.branches)
            case EnumType() | RecordType():
                return self._named(found)

    def _named(self, found: EnumType | RecordType) -> Any:
        if found.name in self._written:
            return found.name if not self._namespace else f"{self._namespace}.{found.name}"
        head: dict[str, Any] = {
            "type": "enum" if isinstance(found, EnumType) else "record",
            "name": found.name,
        }
        if self._namespace and not self._written:
            head["namespace"] = self._namespace
        self._written.add(found.name)
        if isinstance(found, EnumType):
            return head | {"symbols": list(found.symbols)}
        return head | {"fields": [self._field(row) for row in found.fields]}

    def _field(self, row: FieldType) -> dict[str, Any]:
        found = row.type
        if isinstance(found, UnionType) and row.default not in (None, NO_DEFAULT):
            found = _with_first(found, row.default)  # Avro: a default is of the first branch
        written = {"name": row.name, "type": self.type(found)}
        if row.default is not NO_DEFAULT:
            written["default"] = default_of(found, row.default)
        return written

    def _union(self, branches: tuple[ClassType, ...]) -> list[Any]:
        kinds = [_kind(branch) for branch in branches]
        for kind in kinds:
            if kinds.count(kind) > 1:
                raise InvalidSchemaError(f"an Avro union cannot have two branches of type {kind}")
        return [self.type(branch) for branch in branches]


def _simple(found: AtomType | DecimalType) -> Any:
    if isinstance(found, AtomType):
        return _ATOMS[found.atom]
    return {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": found.precision,
        "scale": found.scale,
    }


def _kind(branch: ClassType) -> str:
    match branch:
        case RecordType() | EnumType():
            return branch.name
        case AtomType():
            written = _ATOMS[branch.atom]
            return str(written if isinstance(written, str) else written["type"])
        case DecimalType():
            return "bytes"
        case ListType():
            return "array"
        case _:
            return "map"


def _with_first(union: UnionType, default: Any) -> UnionType:
    for branch in union.branches:
        if accepts(branch, default):
            return UnionType((branch, *(other for other in union.branches if other is not branch)))
    raise InvalidSchemaError(f"the default {default!r} is not of the field's type")


_CLASSES_BY_ATOM: Final[Mapping[Atom, tuple[type, ...]]] = {
    Atom.NULL: (type(None),),
    Atom.BOOLEAN: (bool,),
    Atom.INT: (int,),
    Atom.INT32: (int,),
    Atom.FLOAT: (float, int),
    Atom.FLOAT32: (float, int),
    Atom.STRING: (str,),
    Atom.BYTES: (bytes, bytearray),
    Atom.DATETIME: (datetime.datetime,),
    Atom.DATE: (datetime.date,),
    Atom.TIME: (datetime.time,),
    Atom.UUID: (uuid.UUID,),
}


def accepts(found: ClassType, value: Any) -> bool:
    """Whether a Python value is of this type, by its outermost class."""
    match found:
        case UnionType():
            return any(accepts(branch, value) for branch in found.branches)
        case AtomType():
            is_other = (type(value) is bool and found.atom is not Atom.BOOLEAN) or (
                isinstance(value, datetime.datetime) and found.atom is Atom.DATE
            )
            return isinstance(value, _CLASSES_BY_ATOM[found.atom]) and not is_other
        case _:
            return isinstance(value, _classes_of(found))


def _classes_of(found: ClassType) -> tuple[type, ...]:
    match found:
        case EnumType():
            return (found.cls,)
        case ListType():
            return (list, tuple, set, frozenset)
        case RecordType() if not found.is_mapping:
            return (found.cls,)
        case DecimalType():
            return (Decimal,)
        case _:
            return (dict,)


def default_of(found: ClassType, value: Any) -> Any:
    """Return a default as Avro's JSON; InvalidSchemaError if it is not of the type."""
    if not accepts(found, value):
        raise InvalidSchemaError(f"the default {value!r} is not of the field's type")
    match found:
        case UnionType():
            return default_of(found.branches[0], value)
        case RecordType():
            return {row.name: default_of(row.type, _member(row, value)) for row in found.fields}
        case ListType():
            return [default_of(found.item, item) for item in value]
        case MapType():
            return {key: default_of(found.value, item) for key, item in value.items()}
        case _:
            return _plain(found, value)


def _member(row: FieldType, value: Any) -> Any:
    return value.get(row.name) if isinstance(value, dict) else getattr(value, row.attribute)


def _plain(found: ClassType, value: Any) -> Any:
    match found:
        case EnumType():
            return symbol_of(found, value)
        case DecimalType():
            return _decimal_bytes(found, value).decode("latin-1")
        case AtomType() if found.atom in _NUMBER_BY_ATOM:
            return _NUMBER_BY_ATOM[found.atom](value)
        case _:
            return value


def symbol_of(found: EnumType, member: Any) -> str:
    """Return the symbol of a member; ValueError if it is not of this enum."""
    for symbol, known in found.member_by_symbol.items():
        if known is member:
            return symbol
    raise ValueError(f"{member!r} is no member of {found.name}")


def _time_micros(value: datetime.time) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


_NUMBER_BY_ATOM: Final[Mapping[Atom, Any]] = {
    Atom.BYTES: lambda value: bytes(value).decode("latin-1"),
    Atom.DATETIME: lambda value: (value - _EPOCH) // _MICROSECOND,
    Atom.DATE: lambda value: value.toordinal() - _EPOCH_DAY,
    Atom.TIME: _time_micros,
    Atom.UUID: str,
}


def _decimal_bytes(found: DecimalType, value: Decimal) -> bytes:
    unscaled = int(value.scaleb(found.scale))
    return unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
