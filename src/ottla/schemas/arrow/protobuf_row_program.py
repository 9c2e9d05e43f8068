"""The program that writes rows of columns as messages of one schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor

from ottla.schemas.arrow.row_program import (
    FIRST_DAY,
    LAST_DAY,
    OnNull,
    Operation,
    RowProgram,
    Step,
    UnfitError,
    UnsupportedError,
    casting,
    check_names,
    is_bytes,
    is_list,
    is_text,
    value_type,
    within,
)
from ottla.schemas.protobuf.proto_names import is_repeated

if TYPE_CHECKING:
    from ottla.schemas.arrow.row_program import Convert, Source

DECIMAL: Final = "confluent.type.Decimal"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_SECONDS_MIN: Final = -62_135_596_800
_SECONDS_MAX: Final = 253_402_300_799
_DURATION_SECONDS_MAX: Final = 315_576_000_000
_MICROSECONDS: Final = 1_000_000

_VARINT, _FIXED32, _FIXED64, _SIZED = 0, 5, 1, 2
_INTEGERS: Final = {
    FieldDescriptor.TYPE_INT32: (Operation.VARINT, -4, pa.int32(), _VARINT),
    FieldDescriptor.TYPE_INT64: (Operation.VARINT, -8, pa.int64(), _VARINT),
    FieldDescriptor.TYPE_UINT32: (Operation.VARINT, 4, pa.uint32(), _VARINT),
    FieldDescriptor.TYPE_UINT64: (Operation.VARINT, 8, pa.uint64(), _VARINT),
    FieldDescriptor.TYPE_SINT32: (Operation.ZIGZAG, -4, pa.int32(), _VARINT),
    FieldDescriptor.TYPE_SINT64: (Operation.ZIGZAG, -8, pa.int64(), _VARINT),
    FieldDescriptor.TYPE_FIXED32: (Operation.FIXED, 4, pa.uint32(), _FIXED32),
    FieldDescriptor.TYPE_FIXED64: (Operation.FIXED, 8, pa.uint64(), _FIXED64),
    FieldDescriptor.TYPE_SFIXED32: (Operation.FIXED, 4, pa.int32(), _FIXED32),
    FieldDescriptor.TYPE_SFIXED64: (Operation.FIXED, 8, pa.int64(), _FIXED64),
}
_REALS: Final = {
    FieldDescriptor.TYPE_FLOAT: (Operation.FIXED, 4, pa.float32(), _FIXED32),
    FieldDescriptor.TYPE_DOUBLE: (Operation.FIXED, 8, pa.float64(), _FIXED64),
}


def protobuf_row_program(message: Any, arrow_schema: pa.Schema) -> RowProgram:
    """Make the program for columns of a message; UnsupportedError for types without a step."""
    program = RowProgram()
    index = program.reserve()
    program.steps[index] = _message(
        program, program.source(), message, list(arrow_schema), b"", OnNull.ABSENT
    )
    return program


def _message(
    program: RowProgram,
    source: Source,
    message: Any,
    columns: list[pa.Field],
    prefix: bytes,
    on_null: OnNull,
) -> Step:
    check_names([column.name for column in columns])
    known = message.fields_by_name
    places = {column.name: place for place, column in enumerate(columns)}
    if places.keys() - known.keys():
        raise UnsupportedError
    fields = sorted((known[name] for name in places), key=lambda field: field.number)
    oneofs = [field.containing_oneof.name for field in fields if field.containing_oneof is not None]
    check_names(oneofs)
    if any(field.is_required for field in message.fields):
        raise UnsupportedError
    steps = []
    for field in fields:
        column = columns[places[field.name]]
        inner = program.source()
        source.children.append((places[field.name], inner))
        steps.append(program.add(_field(program, inner, field, value_type(column.type))))
    first = program.link(steps)
    return Step(Operation.MESSAGE, source.index, first, len(steps), 0, prefix, on_null)


def _field(program: RowProgram, source: Source, field: Any, kind: pa.DataType) -> Step:
    if not is_repeated(field):
        return _single(program, source, field, kind, OnNull.ABSENT, has_presence=field.has_presence)
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
    if is_map:
        return _map(program, source, field, kind)
    if not is_list(kind):
        raise UnsupportedError
    inner = program.source()
    source.children.append((0, inner))
    element_kind = value_type(kind.value_type)
    element = _single(program, inner, field, element_kind, OnNull.ABSENT, has_presence=True)
    first = program.add(element)
    if field.is_packed:
        tag = _tag(field.number, _SIZED)
        return Step(Operation.PACKED, source.index, first, prefix=tag)
    return Step(Operation.REPEATED, source.index, first)


def _map(program: RowProgram, source: Source, field: Any, kind: pa.DataType) -> Step:
    if not pa.types.is_map(kind):
        raise UnsupportedError
    entry = field.message_type.fields_by_name
    steps = []
    for place, name in enumerate(("key", "value")):
        inner = program.source()
        source.children.append((place, inner))
        member = value_type(kind.key_type if name == "key" else kind.item_type)
        is_message = entry[name].message_type is not None
        # An entry without a value is left out, unless the value is a message.
        on_null = OnNull.EMPTY if is_message else OnNull.ABSENT
        steps.append(
            program.add(_single(program, inner, entry[name], member, on_null, has_presence=True))
        )
    tag = _tag(field.number, _SIZED)
    return Step(Operation.MAP, source.index, steps[0], 0, steps[1], tag)


def _single(
    program: RowProgram,
    source: Source,
    field: Any,
    kind: pa.DataType,
    on_null: OnNull,
    *,
    has_presence: bool,
) -> Step:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return _sub_message(program, source, field, kind, on_null)
    operation, extra, convert, wire = _scalar(field, kind)
    source.convert = convert
    tag = _tag(field.number, wire)
    return Step(operation, source.index, 0, 0, extra, tag, on_null, has_presence)


def _sub_message(
    program: RowProgram, source: Source, field: Any, kind: pa.DataType, on_null: OnNull
) -> Step:
    message, tag = field.message_type, _tag(field.number, _SIZED)
    name, types = message.full_name, pa.types
    if name in WRAPPERS:
        value = message.fields_by_name["value"]
        inner = _single(program, source, value, kind, OnNull.ABSENT, has_presence=False)
        return Step(Operation.WRAPPER, source.index, program.add(inner), 0, 0, tag, on_null)
    if types.is_struct(kind):
        return _message(program, source, message, list(kind), tag, on_null)
    if name == "google.protobuf.Timestamp" and types.is_timestamp(kind) and kind.unit != "ns":
        source.convert = _timestamps
        return Step(Operation.TIMESTAMP, source.index, prefix=tag, on_null=on_null)
    if name == "google.protobuf.Duration" and types.is_duration(kind) and kind.unit != "ns":
        source.convert = _durations
        return Step(Operation.DURATION, source.index, prefix=tag, on_null=on_null)
    if name == "google.type.Date" and types.is_date32(kind):
        source.convert = _days
        return Step(Operation.DATE, source.index, prefix=tag, on_null=on_null)
    if name == DECIMAL and types.is_decimal128(kind) and kind.scale >= 0:
        source.convert = casting(kind)
        return Step(Operation.DECIMAL, source.index, 0, 0, kind.scale, tag, on_null)
    raise UnsupportedError


def _scalar(field: Any, kind: pa.DataType) -> tuple[Operation, int, Convert, int]:
    types, found = pa.types, _INTEGERS.get(field.type)
    if found is not None and types.is_integer(kind):
        return found[0], found[1], casting(found[2]), found[3]
    found = _REALS.get(field.type)
    if found is not None and types.is_floating(kind):
        return found[0], found[1], casting(found[2]), found[3]
    if field.type == FieldDescriptor.TYPE_BOOL and types.is_boolean(kind):
        return Operation.BOOL, 0, casting(pa.bool_()), _VARINT
    if field.type == FieldDescriptor.TYPE_STRING and is_text(kind):
        return Operation.BYTES, 0, casting(pa.string()), _SIZED
    if field.type == FieldDescriptor.TYPE_BYTES and is_bytes(kind):
        return Operation.BYTES, 0, casting(pa.binary()), _SIZED
    if field.enum_type is not None and is_text(kind):
        return Operation.VARINT, -4, _numbers(field.enum_type), _VARINT
    raise UnsupportedError


def _numbers(enum: Any) -> Convert:
    names = pa.array([value.name for value in enum.values], pa.string())
    numbers = pa.array([value.number for value in enum.values], pa.int32())

    def convert(array: pa.Array) -> pa.Array:
        places = pc.index_in(array.cast(pa.string()), names)
        if places.null_count != array.null_count:
            raise UnfitError
        return numbers.take(places)

    return convert


def _timestamps(array: pa.Array) -> pa.Array:
    found = array.cast(pa.timestamp("us", array.type.tz)).view(pa.int64())
    return within(found, _SECONDS_MIN * _MICROSECONDS, (_SECONDS_MAX + 1) * _MICROSECONDS - 1)


def _durations(array: pa.Array) -> pa.Array:
    most = _DURATION_SECONDS_MAX * _MICROSECONDS
    return within(array.cast(pa.duration("us")).view(pa.int64()), -most, most)


def _days(array: pa.Array) -> pa.Array:
    return within(array.view(pa.int32()), FIRST_DAY, LAST_DAY)


def _tag(number: int, wire: int) -> bytes:
    left, found = number << 3 | wire, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])
