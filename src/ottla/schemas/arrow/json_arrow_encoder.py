"""Arrow columns as JSON values, and as a JSON Schema."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from ottla.schemas.arrow._json_decode_python import Kind
from ottla.schemas.arrow.json_columns import (
    ColumnMapping,
    kind_of,
    may_be_null,
    must_be_there,
)
from ottla.schemas.arrow.json_row_program import json_row_program
from ottla.schemas.arrow.row_writer import row_writer
from ottla.schemas.json_schema.json_text import compact_json, parse_json
from ottla.schemas.values import InvalidValueError

if TYPE_CHECKING:
    from decimal import Decimal

    from ottla.schemas.json_schema.json_schema import JsonSchema

_Converter: TypeAlias = Callable[[Any], Any]

_IS_LIST: Final = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_IS_STRING: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_IS_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)


class JsonArrowEncoder:
    """Encodes columns as JSON objects of one schema.

    The compiled loop writes the rows of most types. For others, and for rows that do not fit, they
    are written through Python objects.

    A null is left out, or written if the property may be null. ValueError if a column does not
    fit its property, or the schema is closed and does not declare it.
    """

    def __init__(self, schema: JsonSchema, arrow_schema: pa.Schema) -> None:
        mapping = ColumnMapping(schema)
        self._schema = arrow_schema
        self._is_record = mapping.is_record
        if not mapping.is_record and arrow_schema.names != ["value"]:
            raise ValueError("the schema is not a record: the table must have one column, `value`")
        self._convert = _struct_converter("", list(arrow_schema), mapping.row, mapping.is_open)
        self._encoder = msgspec.json.Encoder()
        self._rows = row_writer(
            lambda: json_row_program(arrow_schema, mapping.row, is_record=mapping.is_record),
            arrow_schema,
        )

    def encode(self, batch: pa.RecordBatch, prefix: bytes = b"") -> pa.Array:
        """Return one value per row, each after the prefix.

        InvalidValueError, with the column and the row, if a value does not fit the schema.
        """
        written = None if self._rows is None else self._rows.encode(batch, prefix)
        return self._encode_objects(batch, prefix) if written is None else written

    def _encode_objects(self, batch: pa.RecordBatch, prefix: bytes) -> pa.Array:
        rows = _with_microseconds(batch).to_pylist()
        payloads: list[bytes] = []
        for index, row in enumerate(rows):
            try:
                value = self._convert(row)
            except InvalidValueError as error:
                raise InvalidValueError(f"row {index}: {error}") from error
            payloads.append(
                prefix + self._encoder.encode(value if self._is_record else value["value"])
            )
        return pa.array(payloads, pa.binary())


def _with_microseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Python's datetime has no nanoseconds."""
    columns = [
        column.cast(pa.timestamp("us", column.type.tz), safe=False)
        if pa.types.is_timestamp(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _struct_converter(
    path: str, fields: list[pa.Field], target: pa.StructType, is_open: bool
) -> _Converter:
    known = {field.name: field for field in target}
    converters: list[tuple[str, _Converter, pa.Field | None]] = []
    for field in fields:
        place = f"{path}/{field.name}"
        if field.name not in known and not is_open:
            raise ValueError(f"column {place}: the schema does not allow this property")
        converters.append(
            (
                field.name,
                _converter(place, field.type, known.get(field.name)),
                known.get(field.name),
            )
        )
    present = {field.name for field in fields}
    missing = [
        name for name, field in known.items() if must_be_there(field) and name not in present
    ]
    if missing:
        raise ValueError(f"column {path}/{missing[0]}: the schema requires it, and it is missing")

    def convert(row: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, converter, field in converters:
            value = row[name]
            if value is not None:
                found[name] = converter(value)
            elif field is not None and may_be_null(field):
                found[name] = None
            elif field is not None and must_be_there(field):
                raise InvalidValueError(f"column {path}/{name}: the value is null, but required")
        return found

    return convert


def _converter(path: str, kind: pa.DataType, target: pa.Field | None) -> _Converter:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    wanted = None if target is None else kind_of(target)
    if target is not None and wanted is Kind.TEXT and _is(kind, _IS_STRING):
        return _raw_json(path)
    _check(path, kind, wanted)
    inner = None if target is None else target.type
    if pa.types.is_struct(kind):
        row = inner if wanted is Kind.STRUCT else pa.struct([])
        return _struct_converter(path, list(kind), row, is_open=True)
    if _is(kind, _IS_LIST):
        field = inner.value_field if inner is not None and wanted is Kind.LIST else None
        return _list_converter(path, kind.value_type, field)
    if pa.types.is_map(kind):
        field = inner.item_field if inner is not None and wanted is Kind.MAP else None
        return _map_converter(path, kind.item_type, field)
    return _scalar_converter(path, kind, wanted)


def _check(path: str, kind: pa.DataType, wanted: Kind | None) -> None:
    types = pa.types
    is_time = types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind)
    is_text = _is(kind, _IS_STRING)
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    fits = {
        Kind.INT64: types.is_integer(kind),
        Kind.FLOAT64: is_number,
        Kind.BOOLEAN: types.is_boolean(kind),
        Kind.STRING: is_text or is_time or _is(kind, _IS_BYTES) or types.is_decimal(kind),
        Kind.TIMESTAMP: is_text or types.is_timestamp(kind),
        Kind.DATE: is_text or types.is_date(kind),
        Kind.LIST: _is(kind, _IS_LIST),
        Kind.MAP: types.is_map(kind),
        Kind.STRUCT: types.is_struct(kind),
    }
    if not types.is_null(kind) and wanted is not None and not fits.get(wanted, True):
        name = wanted.name.lower()
        raise ValueError(f"column {path}: its type is {kind}, and the schema wants {name}")


def _is(kind: pa.DataType, tests: tuple[Callable[[pa.DataType], bool], ...]) -> bool:
    return any(test(kind) for test in tests)


def _list_converter(path: str, kind: pa.DataType, field: pa.Field | None) -> _Converter:
    convert = _nullable(f"{path}/item", _converter(f"{path}/item", kind, field), field)
    return lambda items: [convert(item) for item in items]


def _map_converter(path: str, kind: pa.DataType, field: pa.Field | None) -> _Converter:
    convert = _nullable(f"{path}/value", _converter(f"{path}/value", kind, field), field)
    return lambda pairs: {str(key): convert(value) for key, value in pairs}


def _nullable(path: str, convert: _Converter, field: pa.Field | None) -> _Converter:
    allowed = field is None or may_be_null(field)

    def converted(value: Any) -> Any:
        if value is not None:
            return convert(value)
        if not allowed:
            raise InvalidValueError(f"column {path}: the value is null, which the schema forbids")
        return None

    return converted


def _raw_json(path: str) -> _Converter:
    def convert(text: str) -> msgspec.Raw:
        try:
            parse_json(text)
        except ValueError as error:
            raise InvalidValueError(f"column {path}: the text is not JSON: {error}") from error
        return msgspec.Raw(text.encode())

    return convert


def _scalar_converter(path: str, kind: pa.DataType, wanted: Kind | None) -> _Converter:
    if pa.types.is_floating(kind):
        return _finite(path)
    if pa.types.is_decimal(kind):
        return str if wanted is Kind.STRING else _decimal
    if pa.types.is_timestamp(kind):
        return _timestamp
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return _isoformat
    if pa.types.is_duration(kind) or pa.types.is_interval(kind):
        raise ValueError(
            f"column {path}: JSON has no form for the type {kind}; cast it to a number"
        )
    return lambda value: value


def _finite(path: str) -> _Converter:
    def convert(value: float) -> float:
        if not math.isfinite(value):
            raise InvalidValueError(f"column {path}: JSON has no {value}")
        return value

    return convert


def _decimal(value: Decimal) -> msgspec.Raw:
    return msgspec.Raw(f"{value:f}".encode())


def _timestamp(value: datetime) -> str:
    aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return aware.replace(tzinfo=None).isoformat() + "Z"


def _isoformat(value: date | time) -> str:
    return value.isoformat()


def json_text_of(arrow_schema: pa.Schema, title: str) -> str:
    """Return a JSON Schema for a table, in draft 7.

    It is closed, so that an optional column that is added later is a compatible change. A column
    that is not nullable is required. ValueError if a type has no form in JSON.
    """
    document = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": title,
        **_object_of(list(arrow_schema)),
    }
    return compact_json(document)


def _object_of(fields: list[pa.Field]) -> dict[str, Any]:
    required: list[Any] = [field.name for field in fields if not field.nullable]
    found: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: _schema_of(field.name, field) for field in fields},
    }
    if required:
        found["required"] = required
    return {**found, "additionalProperties": False}


def _schema_of(path: str, field: pa.Field) -> dict[str, Any]:
    found = _schema_of_type(path, field.type)
    if field.nullable and found["type"] != "null":
        found["type"] = [found["type"], "null"]
    return found


def _schema_of_type(path: str, kind: pa.DataType) -> dict[str, Any]:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_struct(kind):
        return _object_of(list(kind))
    if _is(kind, _IS_LIST):
        return {"type": "array", "items": _schema_of(f"{path}/item", kind.value_field)}
    if types.is_map(kind):
        values = _schema_of(f"{path}/value", kind.item_field)
        return {"type": "object", "additionalProperties": values}
    for test, schema in _SCHEMAS:
        if test(kind):
            return dict(schema)
    raise ValueError(f"column {path}: JSON Schema has no form for the type {kind}")


_SCHEMAS: Final[tuple[tuple[Callable[[pa.DataType], bool], dict[str, str]], ...]] = (
    (pa.types.is_integer, {"type": "integer"}),
    (pa.types.is_floating, {"type": "number"}),
    (pa.types.is_decimal, {"type": "number"}),
    (pa.types.is_boolean, {"type": "boolean"}),
    (pa.types.is_timestamp, {"type": "string", "format": "date-time"}),
    (pa.types.is_date, {"type": "string", "format": "date"}),
    (pa.types.is_time, {"type": "string", "format": "time"}),
    (pa.types.is_null, {"type": "null"}),
    *((test, {"type": "string"}) for test in _IS_STRING),
    *((test, {"type": "string", "contentEncoding": "base64"}) for test in _IS_BYTES),
)
