"""The program that writes rows of columns as JSON values of one schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.schemas.arrow._json_decode_python import Kind
from ottla.schemas.arrow.json_columns import kind_of, may_be_null, must_be_there
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
from ottla.schemas.json_schema.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.schemas.arrow.row_program import Convert, Source

_DAY_MICROSECONDS: Final = 86_400_000_000


def json_row_program(arrow_schema: pa.Schema, row: pa.StructType, *, is_record: bool) -> RowProgram:
    """Make the program for columns that fit a schema; UnsupportedError for types without a step."""
    program = RowProgram()
    root = program.source()
    if is_record:
        index = program.reserve()
        program.steps[index] = _object(program, root, list(arrow_schema), row, b"", OnNull.ABSENT)
    else:
        field = row.field(0)
        on_null = OnNull.NULL if may_be_null(field) else OnNull.UNFIT
        index = program.reserve()
        source = _source(program, root, 0, arrow_schema.field(0).type, field)
        program.steps[index] = _step(
            program, source, arrow_schema.field(0).type, field, b"", on_null
        )
    return program


def _object(
    program: RowProgram,
    source: Source,
    fields: list[pa.Field],
    target: pa.StructType,
    prefix: bytes,
    on_null: OnNull,
) -> Step:
    check_names([field.name for field in fields])
    known = {field.name: field for field in target}
    steps = []
    for place, field in enumerate(fields):
        wanted = known.get(field.name)
        inner = _source(program, source, place, field.type, wanted)
        name = f",{compact_json(field.name)}:".encode()
        steps.append(program.add(_step(program, inner, field.type, wanted, name, _on_null(wanted))))
    first = program.link(steps)
    return Step(Operation.JSON_OBJECT, source.index, first, len(steps), 0, prefix, on_null)


def _on_null(wanted: pa.Field | None) -> OnNull:
    if wanted is None:
        return OnNull.ABSENT
    if may_be_null(wanted):
        return OnNull.NULL
    return OnNull.UNFIT if must_be_there(wanted) else OnNull.ABSENT


def _source(
    program: RowProgram, parent: Source, place: int, kind: pa.DataType, wanted: pa.Field | None
) -> Source:
    kind = value_type(kind)
    is_nested = pa.types.is_struct(kind) or is_list(kind) or pa.types.is_map(kind)
    convert = None if is_nested else _scalar(kind, wanted)[1]
    found = program.source(convert)
    parent.children.append((place, found))
    return found


def _step(
    program: RowProgram,
    source: Source,
    kind: pa.DataType,
    wanted: pa.Field | None,
    prefix: bytes,
    on_null: OnNull,
) -> Step:
    kind = value_type(kind)
    target = None if wanted is None else kind_of(wanted)
    if target is Kind.TEXT and is_text(kind):
        raise UnsupportedError
    if pa.types.is_struct(kind):
        row = wanted.type if wanted is not None and target is Kind.STRUCT else pa.struct([])
        return _object(program, source, list(kind), row, prefix, on_null)
    if is_list(kind):
        item = wanted.type.value_field if wanted is not None and target is Kind.LIST else None
        first = _item(program, source, 0, kind.value_type, item)
        return Step(Operation.JSON_ARRAY, source.index, first, 0, 0, prefix, on_null)
    if pa.types.is_map(kind):
        item = wanted.type.item_field if wanted is not None and target is Kind.MAP else None
        keys = _keys(program, source, kind.key_type)
        first = _item(program, source, 1, kind.item_type, item)
        return Step(Operation.JSON_MAP, source.index, first, 0, keys.index, prefix, on_null)
    return Step(_scalar(kind, wanted)[0], source.index, prefix=prefix, on_null=on_null)


def _keys(program: RowProgram, source: Source, kind: pa.DataType) -> Source:
    if not is_text(kind) and not pa.types.is_integer(kind):
        raise UnsupportedError
    keys = program.source(casting(pa.string()))
    source.children.append((0, keys))
    return keys


def _item(
    program: RowProgram, source: Source, place: int, kind: pa.DataType, wanted: pa.Field | None
) -> int:
    on_null = OnNull.NULL if wanted is None or may_be_null(wanted) else OnNull.UNFIT
    inner = _source(program, source, place, kind, wanted)
    return program.add(_step(program, inner, kind, wanted, b"", on_null))


def _scalar(kind: pa.DataType, wanted: pa.Field | None) -> tuple[Operation, Convert]:
    if pa.types.is_decimal(kind):
        is_string = wanted is not None and kind_of(wanted) is Kind.STRING
        return Operation.JSON_STRING if is_string else Operation.JSON_NUMBER, casting(pa.string())
    for is_of_kind, operation, convert in _SCALARS:
        if is_of_kind(kind):
            return operation, convert
    return _moment(kind)


def _moment(kind: pa.DataType) -> tuple[Operation, Convert]:
    types = pa.types
    if types.is_timestamp(kind) and kind.unit != "ns":
        return Operation.JSON_TIMESTAMP, _microseconds
    if types.is_date(kind):
        return Operation.JSON_DATE, _days
    if types.is_time(kind) and kind.unit != "ns":
        return Operation.JSON_TIME, _microseconds_of_day
    if types.is_null(kind):
        return Operation.JSON_BOOLEAN, casting(pa.bool_())
    raise UnsupportedError


def _float_texts(array: pa.Array) -> pa.Array:
    array = array.cast(pa.float64())
    if not pc.all(pc.is_finite(array), min_count=0).as_py():
        raise UnfitError
    return array.cast(pa.string())


def _microseconds(array: pa.Array) -> pa.Array:
    found = array.cast(pa.timestamp("us", array.type.tz)).view(pa.int64())
    return within(found, FIRST_DAY * _DAY_MICROSECONDS, (LAST_DAY + 1) * _DAY_MICROSECONDS - 1)


def _days(array: pa.Array) -> pa.Array:
    return within(array.cast(pa.date32()).view(pa.int32()), FIRST_DAY, LAST_DAY)


def _microseconds_of_day(array: pa.Array) -> pa.Array:
    return within(array.cast(pa.time64("us")).view(pa.int64()), 0, _DAY_MICROSECONDS - 1)


_SCALARS: Final[tuple[tuple[Callable[[pa.DataType], bool], Operation, Convert], ...]] = (
    (pa.types.is_boolean, Operation.JSON_BOOLEAN, casting(pa.bool_())),
    (pa.types.is_integer, Operation.JSON_INTEGER, casting(pa.int64())),
    (pa.types.is_floating, Operation.JSON_FLOAT, _float_texts),
    (is_text, Operation.JSON_STRING, casting(pa.string())),
    (is_bytes, Operation.JSON_BASE64, casting(pa.binary())),
)
