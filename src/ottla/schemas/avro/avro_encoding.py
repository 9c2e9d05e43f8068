"""The steps that write rows of columns as values of one Avro schema.

A step writes the value of one row of its column. `columns_of` makes the columns, except that
enums are numbers of symbols: 4 bytes, and -1 for a text that is no symbol.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence  # noqa: TC003 - in dataclasses
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.schemas.avro.avro_columns import Column, Layout, is_decimal, is_null, is_uuid
from ottla.schemas.avro.avro_default_bytes import encoded_default, encoded_long
from ottla.schemas.avro.avro_types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Kind,
    Map,
    Primitive,
    Record,
    Union,
)
from ottla.schemas.parsed_schema import InvalidSchemaError


class WriteOperation(IntEnum):
    """The action of a step. `_avro_encode.pyx` has the same numbers."""

    NULL = 0
    BOOLEAN = 1
    INTEGER = 2
    SYMBOL = 3
    FIXED = 4
    BYTES = 5
    DECIMAL = 6
    """`first` bytes, or -1 for as few as possible after their number."""
    UUID = 7
    RECORD = 8
    """`count` links to steps from `first` on."""
    ARRAY = 9
    MAP = 10
    OPTIONAL = 11
    """By the step `first`, after the branch `count`; a null is the branch `extra`."""
    UNION = 12
    """`count` pairs of links, branch and step, from `first` on; a null is the branch `extra`."""
    CONSTANT = 13
    """`count` bytes of the constants from `first` on."""


class WriteFault(IntEnum):
    """The reason why a row cannot be written. `_avro_encode.pyx` has the same numbers."""

    NULL = 1
    SYMBOL = 2
    DECIMAL = 3
    UUID = 4
    NO_MEMBER = 5
    MEMBERS = 6


WRITE_FAULT_TEXTS: Final = {
    WriteFault.NULL: "the value is null, and the schema has no null here",
    WriteFault.SYMBOL: "the text is no symbol of the enum",
    WriteFault.DECIMAL: "the number needs more bytes than the fixed type has",
    WriteFault.UUID: "the text is no UUID in its canonical form",
    WriteFault.NO_MEMBER: "no member of the union is set",
    WriteFault.MEMBERS: "more than one member of the union is set",
}


@dataclass(frozen=True, slots=True)
class WriteStep:
    """An operation, its column or -1, and its arguments."""

    operation: WriteOperation
    column: int = -1
    first: int = 0
    count: int = 0
    extra: int = -1


@dataclass(frozen=True, slots=True)
class WriteProgram:
    """The steps of one schema; the first writes a whole row."""

    columns: Sequence[Column]
    steps: Sequence[WriteStep]
    links: Sequence[int]
    constants: bytes
    places: Sequence[str]
    """The path of each step's column, for errors."""


def write_program(
    root: Record, columns: Sequence[Column], present: Collection[int]
) -> WriteProgram:
    """Return the program for a record; `present` has the indexes of the columns that exist.

    A field without a column is written as its default, or as null. ValueError if it has neither.
    """
    return _Writing(columns, present).program(root)


class _Writing:
    def __init__(self, columns: Sequence[Column], present: Collection[int]) -> None:
        self._columns = columns
        self._present = present
        self._steps: list[WriteStep] = []
        self._places: list[str] = []
        self._links: list[int] = []
        self._constants = bytearray()
        self._path: list[str] = []

    def program(self, root: Record) -> WriteProgram:
        self._write(root, self._columns[0])
        return WriteProgram(
            self._columns, self._steps, self._links, bytes(self._constants), self._places
        )

    def _reserve(self) -> int:
        self._steps.append(WriteStep(WriteOperation.NULL))
        self._places.append(".".join(self._path))
        return len(self._steps) - 1

    def _add(self, step: WriteStep) -> int:
        index = self._reserve()
        self._steps[index] = step
        return index

    def _write(self, avro_type: AvroType, column: Column) -> int:
        """Add the step for a type; its steps come after it."""
        match avro_type:
            case Union():
                return self._write_union(avro_type, column)
            case Record():
                return self._write_record(avro_type, column)
            case Array() | Map():
                is_array = isinstance(avro_type, Array)
                index = self._reserve()
                items = avro_type.items if isinstance(avro_type, Array) else avro_type.values
                child = column.children[0 if is_array else 1]
                operation = WriteOperation.ARRAY if is_array else WriteOperation.MAP
                step = self._within(child.name, items, child)
                self._steps[index] = WriteStep(operation, column.index, step)
                return index
            case _:
                return self._add(_scalar(avro_type, column))

    def _within(self, name: str, avro_type: AvroType, column: Column) -> int:
        self._path.append(name)
        step = self._write(avro_type, column)
        self._path.pop()
        return step

    def _write_record(self, record: Record, column: Column) -> int:
        index = self._reserve()
        steps = [
            self._within(field.name, field.type, child)
            if child.index in self._present
            else self._write_absent(field)
            for field, child in zip(record.fields, column.children, strict=True)
        ]
        first = len(self._links)
        self._links += steps
        self._steps[index] = WriteStep(WriteOperation.RECORD, column.index, first, len(steps))
        return index

    def _write_absent(self, field: Field) -> int:
        self._path.append(field.name)
        default = field.default
        if default is NO_DEFAULT and not _accepts_null(field.type):
            raise ValueError(
                f"{'.'.join(self._path)}: there is no such column, and the field has no default"
            )
        try:
            encoded = encoded_default(field.type, None if default is NO_DEFAULT else default)
        except InvalidSchemaError as error:
            raise ValueError(f"{'.'.join(self._path)}: {error}") from None
        start = len(self._constants)
        self._constants += encoded
        step = self._add(WriteStep(WriteOperation.CONSTANT, -1, start, len(encoded)))
        self._path.pop()
        return step

    def _write_union(self, union: Union, column: Column) -> int:
        null = next((n for n, branch in enumerate(union.branches) if is_null(branch)), -1)
        index = self._reserve()
        branches = [n for n, branch in enumerate(union.branches) if not is_null(branch)]
        if not branches:
            start = len(self._constants)
            self._constants += encoded_long(null)
            size = len(self._constants) - start
            self._steps[index] = WriteStep(WriteOperation.CONSTANT, -1, start, size)
        elif not column.branches:
            step = self._write(union.branches[branches[0]], column)
            self._steps[index] = WriteStep(
                WriteOperation.OPTIONAL, column.index, step, branches[0], null
            )
        else:
            links: list[int] = []
            for branch, child in zip(branches, column.children, strict=True):
                is_present = child.index in self._present
                step = self._within(child.name, union.branches[branch], child) if is_present else -1
                links += (branch, step)
            first = len(self._links)
            self._links += links
            self._steps[index] = WriteStep(
                WriteOperation.UNION, column.index, first, len(branches), null
            )
        return index


def _accepts_null(avro_type: AvroType) -> bool:
    if isinstance(avro_type, Union):
        return any(map(is_null, avro_type.branches))
    return is_null(avro_type)


_KINDS: Final = {
    Kind.NULL: WriteOperation.NULL,
    Kind.BOOLEAN: WriteOperation.BOOLEAN,
    Kind.INT: WriteOperation.INTEGER,
    Kind.LONG: WriteOperation.INTEGER,
    Kind.FLOAT: WriteOperation.FIXED,
    Kind.DOUBLE: WriteOperation.FIXED,
    Kind.BYTES: WriteOperation.BYTES,
    Kind.STRING: WriteOperation.BYTES,
}


def _scalar(avro_type: AvroType, column: Column) -> WriteStep:
    if is_decimal(avro_type):
        size = avro_type.size if isinstance(avro_type, Fixed) else -1
        return WriteStep(WriteOperation.DECIMAL, column.index, size)
    if is_uuid(avro_type):
        return WriteStep(WriteOperation.UUID, column.index)
    if isinstance(avro_type, Enum):
        return WriteStep(WriteOperation.SYMBOL, column.index)
    if isinstance(avro_type, Primitive):
        return WriteStep(_KINDS[avro_type.kind], column.index)
    assert isinstance(avro_type, Fixed)
    return WriteStep(WriteOperation.FIXED, column.index)


def storage_width(column: Column) -> int:
    """Return the bytes of a value of the layout FIXED, or of an enum."""
    is_symbol = column.layout is Layout.BYTES and isinstance(column.type, Enum)
    return 4 if is_symbol else column.width
