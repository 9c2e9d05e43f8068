"""The columns of an Avro type, without Arrow: a flat list that a decoder fills.

A record becomes a struct, and the root record the table itself. A union of null and one type is
a nullable column of that type. Any other union is a struct with a nullable field for each branch
but null, named member0, member1, … by position; the field of the value's branch is set.
"""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - read by dataclasses at run time
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from ottla.schemas.avro.avro_types import (
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

NESTING_MAX: Final = 64
"""Levels of records, arrays, maps and unions within one column."""
COLUMNS_MAX: Final = 10_000
"""Columns of one schema, nested ones included: records used twice are counted twice."""
DECIMAL_DIGITS_MAX: Final = 76
"""The most digits of an Arrow decimal; a decimal with more is a column of bytes."""
VALUE: Final = "value"
"""The name of the column of a schema that is not a record."""


class Layout(IntEnum):
    """The buffers of a column."""

    NULL = 0
    BOOLEAN = 1
    FIXED = 2
    BYTES = 3
    LIST = 4
    MAP = 5
    STRUCT = 6


@dataclass(slots=True, eq=False)
class Column:
    """A column and its children. A map has two: keys and values."""

    index: int
    name: str
    layout: Layout
    type: AvroType
    """The type without null, if the column is nullable because of a union."""
    width: int = 0
    """The bytes of one value of the layout FIXED."""
    is_nullable: bool = False
    children: Sequence[Column] = field(default_factory=tuple)
    branches: Sequence[AvroType] = ()
    """The types of the fields, if this is the struct of a union."""


def root_record(root: AvroType) -> Record:
    """Return the type, or a record with the type in its only field, `value`."""
    return root if isinstance(root, Record) else Record("value", (Field(VALUE, root),))


def columns_of(root: Record) -> list[Column]:
    """Return all columns of a record; the first is the struct of the record itself.

    InvalidSchemaError if a type contains itself: Arrow has no recursive types.
    """
    return _ColumnBuilder().build(root)


def is_null(avro_type: AvroType) -> bool:
    """Whether the type is null."""
    return isinstance(avro_type, Primitive) and avro_type.kind is Kind.NULL


def is_decimal(avro_type: AvroType) -> bool:
    """Whether values are Arrow decimals."""
    return (
        isinstance(avro_type, Primitive | Fixed)
        and avro_type.logical is not None
        and avro_type.logical.name == "decimal"
        and 0 < avro_type.logical.precision <= DECIMAL_DIGITS_MAX
    )


def decimal_width(precision: int) -> int:
    """Return the bytes of an Arrow decimal with this many digits."""
    return 16 if precision <= 38 else 32


def is_uuid(avro_type: AvroType) -> bool:
    """Whether the type is a fixed UUID; its column has text, as for a string UUID."""
    return (
        isinstance(avro_type, Fixed)
        and avro_type.logical is not None
        and avro_type.logical.name == "uuid"
        and avro_type.size == 16
    )


class _ColumnBuilder:
    def __init__(self) -> None:
        self._columns: list[Column] = []
        self._path: list[str] = []
        self._open: list[Record] = []

    def build(self, root: Record) -> list[Column]:
        self._add(root.full_name, root)
        return self._columns

    def _add(self, name: str, avro_type: AvroType, *, is_nullable: bool = False) -> Column:
        self._path.append(name)
        if len(self._path) > NESTING_MAX:
            raise InvalidSchemaError(f"{self._place()}: nested deeper than {NESTING_MAX} levels")
        if len(self._columns) >= COLUMNS_MAX:
            raise InvalidSchemaError(f"{self._place()}: more than {COLUMNS_MAX} columns")
        if isinstance(avro_type, Union):
            column = self._add_union(name, avro_type, is_nullable=is_nullable)
        else:
            column = self._new(name, avro_type, is_nullable=is_nullable)
            self._fill(column, avro_type)
        self._path.pop()
        return column

    def _new(self, name: str, avro_type: AvroType, *, is_nullable: bool) -> Column:
        layout, width = _layout(avro_type)
        column = Column(len(self._columns), name, layout, avro_type, width, is_nullable)
        self._columns.append(column)
        return column

    def _fill(self, column: Column, avro_type: AvroType) -> None:
        match avro_type:
            case Record():
                self._add_fields(column, avro_type)
            case Array():
                column.children = (self._add("element", avro_type.items),)
            case Map():
                key = self._add("key", Primitive(Kind.STRING))
                column.children = (key, self._add("value", avro_type.values))
            case _:
                pass

    def _add_fields(self, column: Column, record: Record) -> None:
        if any(record is outer for outer in self._open):
            raise InvalidSchemaError(
                f"{self._place()}: the record {record.full_name} contains itself, and Arrow has"
                " no recursive types; read this topic as Python values"
            )
        self._open.append(record)
        column.children = [self._add(field.name, field.type) for field in record.fields]
        self._open.pop()

    def _add_union(self, name: str, union: Union, *, is_nullable: bool) -> Column:
        branches = [branch for branch in union.branches if not is_null(branch)]
        is_nullable = is_nullable or len(branches) < len(union.branches)
        if not branches:
            return self._new(name, Primitive(Kind.NULL), is_nullable=True)
        if len(branches) == 1:
            self._path.pop()
            column = self._add(name, branches[0], is_nullable=is_nullable)
            self._path.append(name)
            return column
        column = self._new(name, union, is_nullable=is_nullable)
        column.branches = branches
        column.children = [
            self._add(f"member{position}", branch, is_nullable=True)
            for position, branch in enumerate(branches)
        ]
        return column

    def _place(self) -> str:
        return ".".join(self._path)


_LAYOUTS: Final = {
    Kind.NULL: (Layout.NULL, 0),
    Kind.BOOLEAN: (Layout.BOOLEAN, 0),
    Kind.INT: (Layout.FIXED, 4),
    Kind.LONG: (Layout.FIXED, 8),
    Kind.FLOAT: (Layout.FIXED, 4),
    Kind.DOUBLE: (Layout.FIXED, 8),
    Kind.BYTES: (Layout.BYTES, 0),
    Kind.STRING: (Layout.BYTES, 0),
}


def _layout(avro_type: AvroType) -> tuple[Layout, int]:  # noqa: PLR0911 - one for each type
    if is_decimal(avro_type):
        assert isinstance(avro_type, Primitive | Fixed)
        assert avro_type.logical is not None
        return Layout.FIXED, decimal_width(avro_type.logical.precision)
    match avro_type:
        case Primitive():
            return _LAYOUTS[avro_type.kind]
        case Fixed():
            return (Layout.BYTES, 0) if is_uuid(avro_type) else (Layout.FIXED, avro_type.size)
        case Enum():
            return Layout.BYTES, 0
        case Array():
            return Layout.LIST, 0
        case Map():
            return Layout.MAP, 0
        case _:
            return Layout.STRUCT, 0
