"""The Arrow types of Avro columns; `avro_arrow` has the table."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from ottla.schemas.avro.avro_columns import Column, Layout, is_decimal, is_uuid
from ottla.schemas.avro.avro_types import Enum, Kind, LogicalType, Primitive

_PRIMITIVES: Final = {
    Kind.NULL: pa.null(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.BYTES: pa.binary(),
    Kind.STRING: pa.string(),
}
_LOGICAL: Final = {
    (Kind.INT, "date"): pa.date32(),
    (Kind.INT, "time-millis"): pa.time32("ms"),
    (Kind.LONG, "time-micros"): pa.time64("us"),
    (Kind.LONG, "timestamp-millis"): pa.timestamp("ms", "UTC"),
    (Kind.LONG, "timestamp-micros"): pa.timestamp("us", "UTC"),
    (Kind.LONG, "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    (Kind.LONG, "local-timestamp-millis"): pa.timestamp("ms"),
    (Kind.LONG, "local-timestamp-micros"): pa.timestamp("us"),
    (Kind.LONG, "local-timestamp-nanos"): pa.timestamp("ns"),
}


def arrow_field(column: Column) -> pa.Field:
    """Return the field of a column in its parent."""
    is_nullable = column.is_nullable or column.layout is Layout.NULL
    return pa.field(column.name, arrow_type(column), nullable=is_nullable)


def arrow_type(column: Column) -> pa.DataType:
    """Return the Arrow type of a column."""
    match column.layout:
        case Layout.STRUCT:
            return pa.struct([arrow_field(child) for child in column.children])
        case Layout.LIST:
            return pa.list_(arrow_field(column.children[0]))
        case Layout.MAP:
            key, value = map(arrow_field, column.children)
            return pa.map_(key, value)
        case _:
            return _scalar_type(column)


def _scalar_type(column: Column) -> pa.DataType:
    avro_type = column.type
    if is_decimal(avro_type):
        logical = getattr(avro_type, "logical", None)
        assert isinstance(logical, LogicalType)
        make = pa.decimal128 if column.width == 16 else pa.decimal256
        return make(logical.precision, logical.scale)
    if isinstance(avro_type, Primitive):
        name = avro_type.logical.name if avro_type.logical else ""
        return _LOGICAL.get((avro_type.kind, name), _PRIMITIVES[avro_type.kind])
    if isinstance(avro_type, Enum) or is_uuid(avro_type):
        return pa.string()
    return pa.binary(column.width)
