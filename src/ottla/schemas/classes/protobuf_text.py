"""The Protobuf file of a class: proto3, the class's own message first, numbers in field order."""

from collections.abc import Mapping
from typing import Final

from ottla.schemas.classes.class_types import (
    NONE,
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

TIMESTAMP: Final = "google.protobuf.Timestamp"
_ATOMS: Final[Mapping[Atom, str]] = {
    Atom.BOOLEAN: "bool",
    Atom.INT: "int64",
    Atom.INT32: "int32",
    Atom.FLOAT: "double",
    Atom.FLOAT32: "float",
    Atom.STRING: "string",
    Atom.BYTES: "bytes",
    Atom.DATETIME: TIMESTAMP,
    # Protobuf has no types for these: they are written as ISO 8601, or as digits.
    Atom.DATE: "string",
    Atom.TIME: "string",
    Atom.UUID: "string",
}
NUMBER_MAX: Final = (1 << 29) - 1
_RESERVED: Final = range(19_000, 20_000)


def protobuf_text(record: RecordType, namespace: str | None) -> str:
    """Return the file's text; InvalidSchemaError if a field has no form in Protobuf."""
    writer = _Writer()
    writer.add(record)
    body = "\n".join(writer.written)
    head = ['syntax = "proto3";']
    if namespace:
        head.append(f"package {namespace};")
    if TIMESTAMP in body:
        head.append('import "google/protobuf/timestamp.proto";')
    return "\n\n".join((*head, body))


class _Writer:
    """Writes messages and enums at the top level of one file, in the order of their first use."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self._names: set[str] = set()

    def add(self, found: RecordType | EnumType) -> str:
        """Write a named type unless it is written, and return its name."""
        if found.name not in self._names:
            self._names.add(found.name)
            place = len(self.written)
            self.written.append("")
            if isinstance(found, EnumType):
                self.written[place] = _enum(found)
            else:
                self.written[place] = self._message(found)
        return found.name

    def _message(self, record: RecordType) -> str:
        lines = [f"message {record.name} {{"]
        number = 0
        for row in record.fields:
            if row.number is not None:
                number = row.number - 1
            try:
                added = self._field(row, number)
            except InvalidSchemaError as error:
                raise InvalidSchemaError(f"{record.name}.{row.name}: {error}") from None
            lines += [f"  {line}" for line in added]
            number += max(1, sum(" = " in line for line in added))
            if not 0 < number <= NUMBER_MAX or number in _RESERVED:
                raise InvalidSchemaError(f"{record.name}.{row.name}: {number} is no field number")
        return "\n".join((*lines, "}"))

    def _field(self, row: FieldType, number: int) -> list[str]:
        match row.type:
            case ListType():
                return [f"repeated {self._single(row.type.item)} {row.name} = {number + 1};"]
            case MapType():
                value = self._single(row.type.value)
                return [f"map<string, {value}> {row.name} = {number + 1};"]
            case UnionType():
                return self._union(row, row.type, number)
            case _:
                return [f"{self._single(row.type)} {row.name} = {number + 1};"]

    def _union(self, row: FieldType, union: UnionType, number: int) -> list[str]:
        branches = [branch for branch in union.branches if branch != NONE]
        if len(branches) == 1:
            return [f"optional {self._single(branches[0])} {row.name} = {number + 1};"]
        lines = [f"oneof {row.name} {{"]
        for step, branch in enumerate(branches, 1):
            written = self._single(branch)
            name = branch_name(row.name, branch)
            lines.append(f"  {written} {name} = {number + step};")
        return [*lines, "}"]

    def _single(self, found: ClassType) -> str:
        match found:
            case AtomType() if found.atom in _ATOMS:
                return _ATOMS[found.atom]
            case DecimalType():
                return "string"
            case EnumType() | RecordType():
                return self.add(found)
            case _:
                raise InvalidSchemaError(
                    "Protobuf has no list, dict or None inside a list, dict or union: put it into "
                    "a class of its own"
                )


def branch_name(field_name: str, branch: ClassType) -> str:
    """Return the name of the oneof's field for a branch of a union."""
    match branch:
        case RecordType() | EnumType():
            kind = branch.name
        case AtomType():
            kind = branch.atom.value
        case _:
            kind = "decimal"
    return f"{field_name}_{kind.lower()}"


def _enum(found: EnumType) -> str:
    prefix = enum_prefix(found)
    lines = [f"enum {found.name} {{", f"  {prefix}UNSPECIFIED = 0;"]
    lines += [f"  {prefix}{symbol} = {n};" for n, symbol in enumerate(found.symbols, 1)]
    return "\n".join((*lines, "}"))


def enum_prefix(found: EnumType) -> str:
    """Return the prefix of an enum's symbols: they share one scope with other enums."""
    return "".join(f"_{c}" if c.isupper() else c for c in found.name).strip("_").upper() + "_"
