"""Arrow columns in the form that Avro is written from, and the Avro schema of Arrow columns."""

from __future__ import annotations

import json
import re
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.schemas.arrow._avro_encode_python import StoredColumn
from ottla.schemas.arrow.avro_arrow_types import arrow_type
from ottla.schemas.avro.avro_columns import Column, Layout
from ottla.schemas.avro.avro_types import Enum

if TYPE_CHECKING:
    from collections.abc import Iterable

_DECIMAL_FAMILY: Final = "decimal"
_CASTS: Final = frozenset(
    {
        ("integer", "real"),
        ("integer", _DECIMAL_FAMILY),
        ("text", "bytes"),
        ("bytes", "text"),
    }
)


class AlignedColumns:
    """The columns of a batch by the columns of a schema, which are found by their names."""

    def __init__(self, columns: list[Column], arrow_schema: pa.Schema) -> None:
        self._columns = columns
        self.present: set[int] = {0}
        self._check_fields(columns[0], arrow_schema, "")

    def stored(self, batch: pa.RecordBatch) -> list[StoredColumn | None]:
        """Return the columns of a batch; ValueError, with the row, if a value does not fit."""
        found: list[StoredColumn | None] = [None] * len(self._columns)
        found[0] = StoredColumn(batch, 0, None, None, None)
        for child in self._columns[0].children:
            if child.index in self.present:
                array = batch.column(child.name)
                try:
                    self._store(child, array, found)
                except pa.ArrowInvalid as error:
                    row = self._bad_row(child, array)
                    raise ValueError(f"Row {row}, column {child.name}: {error}") from None
        return found

    # Types

    def _check_fields(self, column: Column, fields: pa.Schema | pa.StructType, place: str) -> None:
        children = {child.name: child for child in column.children}
        for field in fields:
            path = f"{place}{field.name}"
            child = children.pop(field.name, None)
            if child is None:
                known = ", ".join(each.name for each in column.children)
                raise ValueError(f"Column {path} is twice or not in the schema, which has: {known}")
            self._check(child, field.type, path)

    def _check(self, column: Column, kind: pa.DataType, path: str) -> None:
        self.present.add(column.index)
        kind = _decoded(kind)
        match column.layout:
            case Layout.STRUCT if pa.types.is_struct(kind):
                self._check_fields(column, kind, f"{path}.")
            case Layout.LIST if _is_list(kind):
                self._check(column.children[0], kind.value_type, f"{path}.element")
            case Layout.MAP if pa.types.is_map(kind):
                self._check(column.children[0], kind.key_type, f"{path}.key")
                self._check(column.children[1], kind.item_type, f"{path}.value")
            case _:
                _check_castable(kind, arrow_type(column), path)

    # Values

    def _store(self, column: Column, array: pa.Array, found: list[StoredColumn | None]) -> None:
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        match column.layout:
            case Layout.STRUCT if pa.types.is_struct(array.type):
                names = [field.name for field in array.type]
                for child in column.children:
                    if child.name in names:
                        self._store(child, array.field(names.index(child.name)), found)
                found[column.index] = StoredColumn(
                    array, array.offset, array.buffers()[0], None, None
                )
            case Layout.LIST if _is_list(array.type):
                array = _plain_list(array)
                self._store(column.children[0], array.values, found)
                found[column.index] = _listed(array)
            case Layout.MAP if pa.types.is_map(array.type):
                self._store(column.children[0], array.keys, found)
                self._store(column.children[1], array.items, found)
                found[column.index] = _listed(array)
            case _:
                found[column.index] = _scalars(column, array)

    def _bad_row(self, column: Column, array: pa.Array) -> int:
        """Return the first row that cannot be converted, by halving the rows."""
        start, end = 0, len(array)
        while end - start > 1:
            middle = (start + end) // 2
            try:
                self._store(column, _copied(array.slice(start, middle - start)), self._scratch())
            except pa.ArrowInvalid:
                end = middle
            else:
                start = middle
        return start

    def _scratch(self) -> list[StoredColumn | None]:
        return [None] * len(self._columns)


def _copied(array: pa.Array) -> pa.Array:
    # Without the rows around the slice, which the values of a list would bring along.
    return pa.concat_arrays([array, array[:0]])


def _listed(array: pa.Array) -> StoredColumn:
    validity, offsets = array.buffers()[:2]
    return StoredColumn(array, array.offset, validity, _ends(offsets), None)


def _ends(offsets: pa.Buffer | None) -> pa.Buffer:
    return offsets if offsets is not None and offsets.size else pa.py_buffer(bytes(4))


def _plain_list(array: pa.Array) -> pa.Array:
    if pa.types.is_list(array.type):
        return array
    return array.cast(pa.list_(array.type.value_type))


def _scalars(column: Column, array: pa.Array) -> StoredColumn:
    kind = arrow_type(column)
    if isinstance(column.type, Enum):
        array = _symbols(column.type, array.cast(pa.string()))
    elif array.type != kind:
        array = array.cast(kind)
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if column.width == 4 else pa.int64())
    elif pa.types.is_string(array.type):
        array = array.view(pa.binary())
    buffers = array.buffers()
    if column.layout is Layout.NULL:
        return StoredColumn(array, array.offset, None, None, None)
    if column.layout is Layout.BYTES and len(buffers) == 3:
        data = buffers[2] if buffers[2] is not None else pa.py_buffer(b"")
        return StoredColumn(array, array.offset, buffers[0], _ends(buffers[1]), data)
    data = buffers[1] if buffers[1] is not None else pa.py_buffer(b"")
    return StoredColumn(array, array.offset, buffers[0], None, data)


def _symbols(enum: Enum, array: pa.Array) -> pa.Array:
    """Return the numbers of the symbols, -1 for other texts."""
    numbers = pc.fill_null(pc.index_in(array, pa.array(enum.symbols, pa.string())), -1)
    return pc.if_else(array.is_valid(), numbers, pa.scalar(None, pa.int32()))


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _decoded(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _check_castable(source: pa.DataType, target: pa.DataType, path: str) -> None:
    families = _family(source), _family(target)
    is_nested = pa.types.is_nested(source) or pa.types.is_nested(target)
    if is_nested or not (families[0] in {families[1], "null"} or families in _CASTS):
        raise ValueError(f"Column {path}: {source} cannot be written as {target}")


_FAMILIES: Final = (
    ("null", pa.types.is_null),
    ("boolean", pa.types.is_boolean),
    ("integer", pa.types.is_integer),
    ("real", pa.types.is_floating),
    (_DECIMAL_FAMILY, pa.types.is_decimal),
    ("date", pa.types.is_date),
    ("time", pa.types.is_time),
    ("timestamp", pa.types.is_timestamp),
    ("text", pa.types.is_string),
    ("text", pa.types.is_large_string),
    ("text", pa.types.is_string_view),
    ("bytes", pa.types.is_binary),
    ("bytes", pa.types.is_large_binary),
    ("bytes", pa.types.is_binary_view),
    ("bytes", pa.types.is_fixed_size_binary),
)


def _family(kind: pa.DataType) -> str:
    return next((name for name, is_member in _FAMILIES if is_member(kind)), str(kind))


# The Avro schema of Arrow columns


def avro_text_of(arrow_schema: pa.Schema, record_name: str) -> str:
    """Return an Avro schema for the columns, as a record of this full name.

    A nullable column is a union of null and its type, with the default null. Records and fixed
    types within it are named after their path. ValueError if Avro has no such name or type.
    """
    return json.dumps(_SchemaText().record(arrow_schema, record_name, ""))


class _SchemaText:
    def __init__(self) -> None:
        self._names: set[str] = set()

    def record(self, fields: Iterable[pa.Field], name: str, path: str) -> dict[str, Any]:
        written = [self._field(field, name, f"{path}{field.name}") for field in fields]
        return {"type": "record", "name": self._unique(name), "fields": written}

    def _unique(self, name: str) -> str:
        if name in self._names:
            name = next(n for n in (f"{name}_{k}" for k in count(2)) if n not in self._names)
        self._names.add(name)
        return name

    def _field(self, field: pa.Field, name: str, path: str) -> dict[str, Any]:
        if not _NAME.fullmatch(field.name):
            raise ValueError(
                f"Column {path}: an Avro name has letters, digits and _ only; rename the column"
            )
        avro_type = self._nullable(field, name, path)
        written = {"name": field.name, "type": avro_type}
        return {**written, "default": None} if isinstance(avro_type, list) else written

    def _nullable(self, field: pa.Field, name: str, path: str) -> Any:
        avro_type = self._type(_decoded(field.type), f"{name}_{field.name}", path)
        return ["null", avro_type] if field.nullable and avro_type != "null" else avro_type

    def _type(self, kind: pa.DataType, name: str, path: str) -> Any:
        if pa.types.is_struct(kind):
            return self.record(kind, name, f"{path}.")
        if _is_list(kind):
            items = self._nullable(kind.value_field, name, f"{path}.element")
            return {"type": "array", "items": items}
        if pa.types.is_map(kind):
            if _family(_decoded(kind.key_type)) != "text":
                raise ValueError(f"Column {path}: the keys of an Avro map are strings")
            return {"type": "map", "values": self._nullable(kind.item_field, name, f"{path}.value")}
        if pa.types.is_fixed_size_binary(kind):
            return {"type": "fixed", "name": self._unique(name), "size": kind.byte_width}
        return _scalar_type(kind, path)


def _scalar_type(kind: pa.DataType, path: str) -> Any:
    if pa.types.is_decimal(kind):
        logical = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", **logical}
    if pa.types.is_timestamp(kind):
        local = "" if kind.tz else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-{_UNITS[kind.unit]}"}
    if kind in _LOGICAL:
        avro_type, name = _LOGICAL[kind]
        return {"type": avro_type, "logicalType": name}
    if kind not in _SCALARS:
        raise ValueError(f"Column {path}: Avro has no type for {kind}; cast the column")
    return _SCALARS[kind]


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS: Final[dict[pa.DataType, str]] = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    **dict.fromkeys([pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()], "int"),
    **dict.fromkeys([pa.int64(), pa.uint32(), pa.uint64()], "long"),
    **dict.fromkeys([pa.float16(), pa.float32()], "float"),
    pa.float64(): "double",
    **dict.fromkeys([pa.string(), pa.large_string(), pa.string_view()], "string"),
    **dict.fromkeys([pa.binary(), pa.large_binary(), pa.binary_view()], "bytes"),
}
_LOGICAL: Final[dict[pa.DataType, tuple[str, str]]] = {
    **dict.fromkeys([pa.date32(), pa.date64()], ("int", "date")),
    **dict.fromkeys([pa.time32("s"), pa.time32("ms")], ("int", "time-millis")),
    **dict.fromkeys([pa.time64("us"), pa.time64("ns")], ("long", "time-micros")),
}
_UNITS: Final = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}
