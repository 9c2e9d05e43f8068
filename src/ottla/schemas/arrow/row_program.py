"""The steps that write rows of Arrow columns as JSON or as Protobuf messages, and their columns.

A program is made for the types of the columns that people use most. `UnsupportedError` sends all
other columns to the encoders in Python, and so does a value that does not fit its schema: the
encoders in Python write it, or have the text of the error.
"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - in dataclasses
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Convert: TypeAlias = "Callable[[pa.Array], pa.Array]"
"""Returns an array of the type that a step reads; UnfitError or ArrowInvalid for other values."""

VALUES_BYTES_MAX: Final = 2**31 - 1
"""Of one call: the limit of the offsets of a binary array."""

FIRST_DAY: Final = -719_162
LAST_DAY: Final = 2_932_896
"""The years 1 to 9999 in days since 1970."""


class UnsupportedError(Exception):
    """A column has a type without a step."""


class UnfitError(Exception):
    """A value may not fit its schema."""


class Operation(IntEnum):
    """How a value that is not null is written. `_row_encode.pyx` has the same numbers."""

    JSON_BOOLEAN = 0
    JSON_INTEGER = 1
    JSON_FLOAT = 2
    """The text of a float; a whole number gets `.0`."""
    JSON_NUMBER = 3
    JSON_STRING = 4
    JSON_BASE64 = 5
    JSON_TIMESTAMP = 6
    """Microseconds since 1970."""
    JSON_DATE = 7
    JSON_TIME = 8
    JSON_OBJECT = 9
    """`count` links to the steps of its members from `first` on."""
    JSON_ARRAY = 10
    """The step `first` writes an item."""
    JSON_MAP = 11
    """The key's column is `extra`, the step `first` writes a value."""
    VARINT = 20
    """Of `extra` bytes, negative if they are signed."""
    ZIGZAG = 21
    FIXED = 22
    """`extra` bytes."""
    BOOL = 23
    BYTES = 24
    MESSAGE = 25
    """`count` links to the steps of its fields from `first` on."""
    WRAPPER = 26
    """A message with one field, which the step `first` writes from the same column."""
    REPEATED = 27
    """The step `first` writes an element, with its tag."""
    PACKED = 28
    MAP = 29
    """The steps `first` and `extra` write key and value."""
    TIMESTAMP = 30
    DURATION = 31
    DATE = 32
    DECIMAL = 33
    """With the scale `extra`."""


class OnNull(IntEnum):
    """How a null is written."""

    ABSENT = 0
    NULL = 1
    UNFIT = 2
    EMPTY = 3
    """A message without fields, for values of maps."""


@dataclass(frozen=True, slots=True)
class Step:
    """Writes one row of a column, after `prefix`: a member's name, or a field's tag."""

    operation: Operation
    column: int
    first: int = 0
    count: int = 0
    extra: int = 0
    prefix: bytes = b""
    on_null: OnNull = OnNull.ABSENT
    has_presence: bool = True
    """A field without presence is left out if it has its default value."""


class StoredColumn(NamedTuple):
    """The buffers of a column: the logical row n is at `offset` + n."""

    offset: int
    validity: Any
    """None if no row is null."""
    ends: Any
    """32-bit offsets of bytes or items, or None."""
    data: Any


@dataclass(slots=True)
class Source:
    """Where a column comes from: its conversion, and its children by their places."""

    convert: Convert | None = None
    """For scalars."""
    index: int = 0
    children: list[tuple[int, Source]] = field(default_factory=list)


@dataclass(slots=True)
class RowProgram:
    """Steps, of which the first writes a row, and the sources of their columns."""

    steps: list[Step | None] = field(default_factory=list)
    links: list[int] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)

    def source(self, convert: Convert | None = None) -> Source:
        """Add a column."""
        found = Source(convert, len(self.sources))
        self.sources.append(found)
        return found

    def reserve(self) -> int:
        """Reserve a place for a step that needs its children's numbers."""
        self.steps.append(None)
        return len(self.steps) - 1

    def add(self, step: Step) -> int:
        """Add a step."""
        self.steps.append(step)
        return len(self.steps) - 1

    def link(self, steps: list[int]) -> int:
        """Add links to steps; return the place of the first link."""
        self.links += steps
        return len(self.links) - len(steps)

    def stored(self, batch: pa.RecordBatch) -> list[StoredColumn]:
        """Return the columns of a batch; UnfitError or ArrowInvalid if a value may not fit."""
        found: list[StoredColumn] = [StoredColumn(0, None, None, None)] * len(self.sources)
        for place, child in self.sources[0].children:
            _store(child, batch.column(place), found)
        return found


def _store(source: Source, array: pa.Array, found: list[StoredColumn]) -> None:
    array = decoded(array)
    if source.convert is not None:
        found[source.index] = _scalars(source.convert(array))
        return
    kind = array.type
    if pa.types.is_struct(kind):
        for place, child in source.children:
            _store(child, array.field(place), found)
        found[source.index] = StoredColumn(array.offset, array.buffers()[0], None, None)
        return
    if pa.types.is_map(kind):
        parts: tuple[pa.Array, ...] = (array.keys, array.items)
    else:
        if not pa.types.is_list(kind):
            array = array.cast(pa.list_(kind.value_type))
        parts = (array.values,)
    for place, child in source.children:
        _store(child, parts[place], found)
    validity, offsets = array.buffers()[:2]
    found[source.index] = StoredColumn(array.offset, validity, _ends(offsets), None)


def decoded(array: pa.Array) -> pa.Array:
    """Return the values of a dictionary; other arrays as they are."""
    if not pa.types.is_dictionary(array.type):
        return array
    if not len(array.dictionary):
        # Below a null structure, an index without a null refers to nothing.
        return pa.nulls(len(array), array.type.value_type)
    return array.dictionary_decode()


def _scalars(array: pa.Array) -> StoredColumn:
    buffers = array.buffers()
    if len(buffers) == 3:
        return StoredColumn(array.offset, buffers[0], _ends(buffers[1]), _data(buffers[2]))
    return StoredColumn(array.offset, buffers[0], None, _data(buffers[-1]))


def _data(buffer: pa.Buffer | None) -> Any:
    return b"" if buffer is None else buffer


def _ends(offsets: pa.Buffer | None) -> Any:
    return offsets if offsets is not None and offsets.size else bytes(4)


def casting(kind: pa.DataType) -> Convert:
    """Return the conversion to a type; ArrowInvalid for a value that does not fit it."""
    return lambda array: array if array.type == kind else array.cast(kind)


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a dictionary's values; other types as they are."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is a list of any kind."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is a string of any kind."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a type is binary of any kind."""
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def check_names(names: list[str]) -> None:
    """Leave columns of equal names to the encoders in Python."""
    if len(set(names)) < len(names):
        raise UnsupportedError


def within(array: pa.Array, least: int, most: int) -> pa.Array:
    """Return an array of integers; UnfitError for a number outside of these limits."""
    found = pc.min_max(array)
    if found["min"].is_valid and (found["min"].as_py() < least or found["max"].as_py() > most):
        raise UnfitError
    return array
