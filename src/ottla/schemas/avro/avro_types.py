"""Avro types: a parsed schema as a tree, or as a graph where records are recursive.

Named types are compared by identity, because a record may contain itself. Other types are values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias


class Kind(StrEnum):
    """The primitive types."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"


class _Missing:
    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final[Any] = _Missing()
"""The default of a field or enum that has none; None is the default `null`."""


@dataclass(frozen=True, slots=True)
class LogicalType:
    """A logical type of Avro with valid parameters. Unknown logical types are only properties."""

    name: str
    """decimal, uuid, date, time-millis, timestamp-micros, local-timestamp-nanos, duration, …"""
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Primitive:
    """A primitive type, maybe with a logical type."""

    kind: Kind
    logical: LogicalType | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    """All other attributes, in the order of the text, `logicalType` and its parameters included."""


@dataclass(eq=False, slots=True)
class Field:
    """A field of a record."""

    name: str
    type: "AvroType"
    default: Any = NO_DEFAULT
    """The JSON value."""
    doc: str | None = None
    order: str | None = None
    aliases: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Record:
    """A record or error. Its fields are set once all of its names are known."""

    full_name: str
    fields: tuple[Field, ...] = ()
    is_error: bool = False
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    """Full names."""
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Enum:
    """An enumeration."""

    full_name: str
    symbols: tuple[str, ...] = ()
    default: Any = NO_DEFAULT
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Fixed:
    """A fixed number of bytes."""

    full_name: str
    size: int = 0
    logical: LogicalType | None = None
    doc: str | None = None
    aliases: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Array:
    """A list of items of one type."""

    items: "AvroType"
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Map:
    """A map from strings to values of one type."""

    values: "AvroType"
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Union:
    """One of several types; never a union directly inside a union."""

    branches: tuple["AvroType", ...]


AvroType: TypeAlias = Primitive | Record | Enum | Fixed | Array | Map | Union
NamedType: TypeAlias = Record | Enum | Fixed
