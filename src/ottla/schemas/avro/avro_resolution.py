"""Resolution of a writer's schema against a reader's schema, into a program of steps.

A step reads one value of the writer's type and appends it to a column of the reader's type, or
skips it. `RECORD` runs the steps of its fields in the order of the writer, `UNION` the step of the
branch that the value names. Fields that only the reader has are appended by `CONSTANT` from their
defaults, which are Avro binary themselves. Decoders execute the program once per value.

Rules beyond Avro's specification:

- A union of the reader takes the best branch that can be read: of the same type and full name, then
  by an alias, the unqualified name, or promotion.
- Outside of the reader's unions, names of records, enums and fixed types need not match.
- Times, timestamps and decimals of different units or scales are converted, not reinterpreted.
- Differences within a branch of a writer's union are errors only of the values of that branch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence  # noqa: TC003 - in dataclasses
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.schemas.avro.avro_columns import (
    VALUE,
    Column,
    columns_of,
    is_decimal,
    is_null,
    is_uuid,
    root_record,
)
from ottla.schemas.avro.avro_compatibility import Branches, match_fields
from ottla.schemas.avro.avro_default_bytes import encoded_default
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

STEPS_MAX: Final = 200_000
"""Steps of one program."""
DEPTH_MAX: Final = 300
"""Steps that run inside each other: a limit for skipped values of recursive types."""
ZERO_SIZE_ITEMS_MAX: Final = 1_000
"""Items without a byte of their own, such as nulls, in all arrays of one value."""


class ResolutionError(ValueError):
    """Data of the writer's schema cannot be read by the reader's schema."""


class Fault(IntEnum):
    """The reason why a value cannot be decoded. `_avro_decode.pyx` has the same numbers."""

    TRUNCATED = 1
    VARINT = 2
    INT_RANGE = 3
    NEGATIVE_LENGTH = 4
    UNION_INDEX = 5
    ENUM_INDEX = 6
    ENUM_SYMBOL = 7
    BOOLEAN = 8
    UTF8 = 9
    ITEMS = 10
    DEPTH = 11
    BRANCH = 12
    DECIMAL_RANGE = 13
    DECIMAL_INEXACT = 14
    TIME_RANGE = 15
    PREFIX = 16


FAULT_TEXTS: Final = {
    Fault.TRUNCATED: "the bytes end within the value",
    Fault.VARINT: "a variable-length integer has more than 64 bits",
    Fault.INT_RANGE: "an int has more than 32 bits",
    Fault.NEGATIVE_LENGTH: "a length is negative",
    Fault.UNION_INDEX: "the writer's union has no branch of this number",
    Fault.ENUM_INDEX: "the writer's enum has no symbol of this number",
    Fault.ENUM_SYMBOL: "the reader's enum has neither this symbol nor a default",
    Fault.BOOLEAN: "a boolean is neither 0 nor 1",
    Fault.UTF8: "a string is not valid UTF-8",
    Fault.ITEMS: "an array or map has more items than bytes",
    Fault.DEPTH: f"values are nested deeper than {DEPTH_MAX} steps",
    Fault.BRANCH: "the reader's schema has no type for this branch of the writer's union",
    Fault.DECIMAL_RANGE: "a decimal has more digits than its precision",
    Fault.DECIMAL_INEXACT: "a decimal has more fraction digits than the reader's scale",
    Fault.TIME_RANGE: "a time is out of range",
    Fault.PREFIX: "the value is shorter than its prefix",
}


class Operation(IntEnum):
    """The action of a step. `_avro_decode.pyx` has the same numbers."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    INT_TO_LONG = 3
    LONG = 4
    LONG_SCALED = 5
    """A long or int by `first`, divided by `count` and rounded down."""
    INT_TO_FLOAT = 6
    INT_TO_DOUBLE = 7
    LONG_TO_FLOAT = 8
    LONG_TO_DOUBLE = 9
    FLOAT = 10
    FLOAT_TO_DOUBLE = 11
    DOUBLE = 12
    BYTES = 13
    TEXT = 14
    FIXED = 15
    """`first` bytes."""
    DECIMAL = 16
    """`first` bytes, or -1 for a length before them; scaled by 10 ** `count`; at most `extra`
    digits."""
    UUID = 17
    ENUM = 18
    """`count` links to symbols from `first` on: start and size in the constants, or -1 and -1."""
    RECORD = 19
    """`count` links to steps from `first` on."""
    ARRAY = 20
    """The items by the step `first`; `count` is 1 if items may have no bytes."""
    MAP = 21
    UNION = 22
    """`count` links to steps from `first` on."""
    APPEND_NULL = 23
    MEMBER = 24
    """The field `count` of a union's struct, by the step `first`."""
    CONSTANT = 25
    """The step `first` on the constants, `count` bytes from `extra` on."""
    FAIL = 26
    """A branch of the writer's union that the reader's schema does not accept."""
    SKIP_LONG = 27
    SKIP_BYTES = 28
    SKIP_FIXED = 29
    SKIP_ENUM = 30
    """`count` symbols."""
    TIME_OF_DAY = 31
    """As LONG_SCALED; the result is at least 0 and below `extra`."""


@dataclass(frozen=True, slots=True)
class Step:
    """An operation, its column or -1, and its arguments."""

    operation: Operation
    column: int = -1
    first: int = 0
    count: int = 0
    extra: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """The steps of one pair of schemas; the first reads a whole value."""

    columns: Sequence[Column]
    """The first is the struct of the whole value."""
    steps: Sequence[Step]
    links: Sequence[int]
    constants: bytes
    places: Sequence[str]
    """The path of each step's value, for errors."""
    reasons: Mapping[int, str]
    """The reason of each step FAIL."""


def resolve(writer: AvroType, reader: AvroType) -> Program:
    """Return the program that reads values of the writer's type into the reader's columns.

    ResolutionError if no value can be read, InvalidSchemaError if the reader's type has no columns.
    """
    root = root_record(reader)
    columns = columns_of(root)
    # A record with one field is encoded as the field.
    writer_root = writer if isinstance(reader, Record) else Record(VALUE, (Field(VALUE, writer),))
    try:
        return _Resolver(columns).resolve(writer_root, root)
    except RecursionError:
        raise InvalidSchemaError("The writer's schema is nested too deeply") from None


_PROMOTIONS: Final = {
    (Kind.INT, Kind.LONG): Operation.INT_TO_LONG,
    (Kind.INT, Kind.FLOAT): Operation.INT_TO_FLOAT,
    (Kind.INT, Kind.DOUBLE): Operation.INT_TO_DOUBLE,
    (Kind.LONG, Kind.FLOAT): Operation.LONG_TO_FLOAT,
    (Kind.LONG, Kind.DOUBLE): Operation.LONG_TO_DOUBLE,
    (Kind.FLOAT, Kind.DOUBLE): Operation.FLOAT_TO_DOUBLE,
    (Kind.STRING, Kind.BYTES): Operation.BYTES,
    (Kind.BYTES, Kind.STRING): Operation.TEXT,
}
_SAME: Final = {
    Kind.NULL: Operation.NULL,
    Kind.BOOLEAN: Operation.BOOLEAN,
    Kind.INT: Operation.INT,
    Kind.LONG: Operation.LONG,
    Kind.FLOAT: Operation.FLOAT,
    Kind.DOUBLE: Operation.DOUBLE,
    Kind.BYTES: Operation.BYTES,
    Kind.STRING: Operation.TEXT,
}
_UNITS_PER_SECOND: Final = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}


class _Resolver:
    """Builds one program. Skipped types are shared by their identity, so they may be recursive."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._steps: list[Step | None] = []
        self._places: list[str] = []
        self._links: list[int] = []
        self._constants = bytearray()
        self._reasons: dict[int, str] = {}
        self._path: list[str] = []
        self._skips: dict[int, int] = {}
        self._sizes: dict[int, int | None] = {}
        self._read: dict[tuple[int, int, int], int] = {}
        self._kept: list[AvroType] = []

    def resolve(self, writer: AvroType, reader: Record) -> Program:
        if isinstance(writer, Union):
            self._reserve()
            first = self._read_type(writer, reader, self._columns[0])
            self._steps[0] = self._steps[first]
            self._places[0] = self._places[first]
        else:
            self._read_type(writer, reader, self._columns[0])
        steps = [step for step in self._steps if step is not None]
        assert len(steps) == len(self._steps)
        return Program(
            self._columns, steps, self._links, bytes(self._constants), self._places, self._reasons
        )

    # Steps

    def _reserve(self) -> int:
        if len(self._steps) >= STEPS_MAX:
            raise InvalidSchemaError(f"Reading these columns needs more than {STEPS_MAX} steps")
        self._steps.append(None)
        self._places.append(".".join(self._path))
        return len(self._steps) - 1

    def _abandon(self, first: int) -> None:
        """Fill the steps that were reserved from `first` on; no other step runs them."""
        for index in range(first, len(self._steps)):
            if self._steps[index] is None:
                self._steps[index] = Step(Operation.FAIL)

    def _add(self, step: Step) -> int:
        index = self._reserve()
        self._steps[index] = step
        return index

    def _link(self, links: Sequence[int]) -> tuple[int, int]:
        first = len(self._links)
        self._links += links
        return first, len(links)

    def _error(self, reason: str) -> ResolutionError:
        return ResolutionError(f"{'.'.join(self._path) or 'value'}: {reason}")

    # Reading

    def _read_type(self, writer: AvroType, reader: AvroType, column: Column) -> int:
        """Add the step that reads a value of the writer's type into a column."""
        key = (id(writer), id(reader), column.index)
        if key in self._read:
            return self._read[key]
        if isinstance(writer, Union):
            step = self._read_writer_union(writer, reader, column)
        elif isinstance(reader, Union):
            step = self._read_into_union(writer, reader, column)
        else:
            step = self._read_same(writer, reader, column)
        self._kept += (writer, reader)
        self._read[key] = step
        return step

    def _read_writer_union(self, writer: Union, reader: AvroType, column: Column) -> int:
        index = self._reserve()
        branches = []
        for branch in writer.branches:
            depth, first = len(self._path), len(self._steps)
            try:
                branches.append(self._read_type(branch, reader, column))
            except ResolutionError as error:
                del self._path[depth:]
                self._abandon(first)
                branches.append(self._add(Step(Operation.FAIL)))
                self._reasons[branches[-1]] = str(error)
        if len(writer.branches) == sum(step in self._reasons for step in branches):
            raise self._error(f"no branch of the writer's union can be read as {described(reader)}")
        self._steps[index] = Step(Operation.UNION, -1, *self._link(branches))
        return index

    def _read_into_union(self, writer: AvroType, reader: Union, column: Column) -> int:
        """Add the step for the best branch that can be read."""
        first_error: ResolutionError | None = None
        for branch in Branches(reader).candidates(writer):
            depth, first = len(self._path), len(self._steps)
            try:
                return self._read_into_branch(writer, branch, column)
            except ResolutionError as error:
                del self._path[depth:]
                self._abandon(first)
                first_error = first_error or error
        raise first_error or self._error(f"{described(writer)} is no branch of {described(reader)}")

    def _read_into_branch(self, writer: AvroType, branch: AvroType, column: Column) -> int:
        if is_null(branch):
            return self._add(Step(Operation.APPEND_NULL, column.index))
        if not column.branches:
            return self._read_same(writer, branch, column)
        index = self._reserve()
        member = next(n for n, each in enumerate(column.branches) if each is branch)
        step = self._read_same(writer, branch, column.children[member])
        self._steps[index] = Step(Operation.MEMBER, column.index, step, member)
        return index

    def _read_same(self, writer: AvroType, reader: AvroType, column: Column) -> int:
        """Add the step for two types that are no unions."""
        match writer, reader:
            case Primitive(), Primitive():
                return self._add(self._primitive(writer, reader, column))
            case Record(), Record():
                return self._read_record(writer, reader, column)
            case Enum(), Enum():
                return self._read_enum(writer, reader, column)
            case Fixed(), Fixed() if writer.size == reader.size:
                return self._add(_fixed(writer, reader, column))
            case Array(), Array():
                index = self._reserve()
                items = self._within("element", writer.items, reader.items, column.children[0])
                can_be_empty = int(self._can_be_empty(writer.items))
                self._steps[index] = Step(Operation.ARRAY, column.index, items, can_be_empty)
                return index
            case Map(), Map():
                index = self._reserve()
                values = self._within("value", writer.values, reader.values, column.children[1])
                self._steps[index] = Step(Operation.MAP, column.index, values)
                return index
            case _:
                raise self._error(f"{described(writer)} cannot be read as {described(reader)}")

    def _within(self, name: str, writer: AvroType, reader: AvroType, column: Column) -> int:
        self._path.append(name)
        step = self._read_type(writer, reader, column)
        self._path.pop()
        return step

    def _primitive(self, writer: Primitive, reader: Primitive, column: Column) -> Step:
        if writer.kind is not reader.kind and (writer.kind, reader.kind) not in _PROMOTIONS:
            raise self._error(f"{described(writer)} cannot be read as {described(reader)}")
        if is_decimal(reader):
            return _decimal(writer, reader, column, -1)
        multiplier, divisor = _conversion(writer, reader)
        if (units := _units_per_day(reader)) is not None:
            return Step(Operation.TIME_OF_DAY, column.index, multiplier, divisor, units)
        if multiplier != divisor:
            return Step(Operation.LONG_SCALED, column.index, multiplier, divisor)
        if writer.kind is reader.kind:
            return Step(_SAME[writer.kind], column.index)
        return Step(_PROMOTIONS[writer.kind, reader.kind], column.index)

    def _read_enum(self, writer: Enum, reader: Enum, column: Column) -> int:
        links: list[int] = []
        for symbol in writer.symbols:
            known = symbol if symbol in reader.symbols else reader.default
            if known is NO_DEFAULT or known is None:
                links += (-1, -1)
            else:
                links += (len(self._constants), len(known.encode()))
                self._constants += known.encode()
        first, _ = self._link(links)
        return self._add(Step(Operation.ENUM, column.index, first, len(writer.symbols)))

    def _read_record(self, writer: Record, reader: Record, column: Column) -> int:
        index = self._reserve()
        position_of = _positions(writer, reader)
        steps = [
            self._within(
                reader.fields[position].name,
                field.type,
                reader.fields[position].type,
                column.children[position],
            )
            if (position := position_of.get(field.name)) is not None
            else self._skip_field(field)
            for field in writer.fields
        ]
        found = set(position_of.values())
        for position, field in enumerate(reader.fields):
            if position not in found:
                steps.append(self._read_default(field, column.children[position]))
        self._steps[index] = Step(Operation.RECORD, column.index, *self._link(steps))
        return index

    def _read_default(self, field: Field, column: Column) -> int:
        self._path.append(field.name)
        if field.default is NO_DEFAULT:
            raise self._error("the writer has no such field, and the reader has no default for it")
        try:
            encoded = encoded_default(field.type, field.default)
        except InvalidSchemaError as error:
            raise self._error(str(error)) from None
        step = self._read_type(field.type, field.type, column)
        start = len(self._constants)
        self._constants += encoded
        index = self._add(Step(Operation.CONSTANT, -1, step, len(encoded), start))
        self._path.pop()
        return index

    # Skipping

    def _skip_field(self, field: Field) -> int:
        self._path.append(field.name)
        step = self._skip(field.type)
        self._path.pop()
        return step

    def _skip(self, writer: AvroType) -> int:
        """Add the step that passes over a value; a size that never varies is passed at once."""
        if (known := self._skips.get(id(writer))) is not None:
            return known
        index = self._skips[id(writer)] = self._reserve()
        self._kept.append(writer)
        size = self._constant_size(writer)
        if size is not None:
            self._steps[index] = Step(Operation.SKIP_FIXED, -1, size)
        else:
            self._steps[index] = self._skipping(writer)
        return index

    def _skipping(self, writer: AvroType) -> Step:  # noqa: PLR0911 - one for each type
        match writer:
            case Primitive(kind=Kind.BYTES | Kind.STRING):
                return Step(Operation.SKIP_BYTES)
            case Enum():
                return Step(Operation.SKIP_ENUM, -1, 0, len(writer.symbols))
            case Record():
                fields = [self._skip_field(field) for field in writer.fields]
                return Step(Operation.RECORD, -1, *self._link(fields))
            case Array():
                can_be_empty = int(self._can_be_empty(writer.items))
                return Step(Operation.ARRAY, -1, self._skip(writer.items), can_be_empty)
            case Map():
                return Step(Operation.MAP, -1, self._skip(writer.values))
            case Union():
                branches = [self._skip(branch) for branch in writer.branches]
                return Step(Operation.UNION, -1, *self._link(branches))
            case _:
                return Step(Operation.SKIP_LONG)

    def _can_be_empty(self, writer: AvroType) -> bool:
        """Whether a value may have no bytes: then all values have none."""
        return self._constant_size(writer) == 0

    def _constant_size(self, writer: AvroType) -> int | None:
        """Return the size of all values of a type, if they have the same."""
        match writer:
            case Primitive():
                return _SIZES.get(writer.kind)
            case Fixed():
                return writer.size
            case Record():
                return self._constant_record_size(writer)
            case _:
                return None

    def _constant_record_size(self, record: Record) -> int | None:
        if id(record) not in self._sizes:
            # None while it is open: a record that contains itself has no finite value.
            self._sizes[id(record)] = None
            self._kept.append(record)
            total = 0
            for field in record.fields:
                size = self._constant_size(field.type)
                if size is None or total + size > _SIZE_MAX:
                    return None
                total += size
            self._sizes[id(record)] = total
        return self._sizes[id(record)]


_SIZES: Final = {Kind.NULL: 0, Kind.BOOLEAN: 1, Kind.FLOAT: 4, Kind.DOUBLE: 8}
_SIZE_MAX: Final = 1 << 40


def _positions(writer: Record, reader: Record) -> dict[str, int]:
    """Return the position of the reader's field by the name of the writer's field."""
    matches = match_fields(reader, writer)
    return {
        matches[field.name].name: position
        for position, field in enumerate(reader.fields)
        if field.name in matches
    }


def _fixed(writer: Fixed, reader: Fixed, column: Column) -> Step:
    if is_decimal(reader):
        return _decimal(writer, reader, column, writer.size)
    if is_uuid(reader):
        return Step(Operation.UUID, column.index)
    return Step(Operation.FIXED, column.index, writer.size)


def _decimal(
    writer: Primitive | Fixed, reader: Primitive | Fixed, column: Column, size: int
) -> Step:
    assert reader.logical is not None
    written = writer.logical
    is_scaled = written is not None and written.name == "decimal"
    shift = reader.logical.scale - written.scale if written is not None and is_scaled else 0
    return Step(Operation.DECIMAL, column.index, size, shift, reader.logical.precision)


def _conversion(writer: Primitive, reader: Primitive) -> tuple[int, int]:
    """Return multiplier and divisor between two units of time."""
    if writer.logical is None or reader.logical is None:
        return 1, 1
    family, _, unit = writer.logical.name.removeprefix("local-").rpartition("-")
    other_family, _, other_unit = reader.logical.name.removeprefix("local-").rpartition("-")
    if family != other_family or not {unit, other_unit} <= _UNITS_PER_SECOND.keys():
        return 1, 1
    source, target = _UNITS_PER_SECOND[unit], _UNITS_PER_SECOND[other_unit]
    return max(1, target // source), max(1, source // target)


def _units_per_day(reader: Primitive) -> int | None:
    """Return the bound of a time of day, or None for other types."""
    if reader.logical is None or reader.logical.name not in {"time-millis", "time-micros"}:
        return None
    return 86_400 * _UNITS_PER_SECOND[reader.logical.name.removeprefix("time-")]


def described(avro_type: AvroType) -> str:
    """Return a type in words, for errors."""
    match avro_type:
        case Primitive():
            return str(avro_type.kind)
        case Record() | Enum() | Fixed():
            return f"{type(avro_type).__name__.lower()} {avro_type.full_name}"
        case Array() | Map():
            return type(avro_type).__name__.lower()
        case Union():
            return f"[{', '.join(described(branch) for branch in avro_type.branches)}]"
