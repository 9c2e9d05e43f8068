"""JSON values as columns of Arrow, and back.

| JSON Schema | Arrow |
| --- | --- |
| integer, number, boolean | int64, float64, bool |
| string; with an enum, or a format that is not below | string |
| string with format date-time, date | timestamp[us, UTC], date32 |
| array of T | list<T> |
| object with properties | struct |
| object with only additionalProperties of T | map<string, T> |
| T or null | nullable T |
| anything else, such as unions and recursive schemas | string with the JSON text |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import msgspec

try:
    import pyarrow as pa
except ModuleNotFoundError:
    raise ImportError("Arrow columns need pyarrow: pip install 'ottla[arrow]'") from None

from ottla.schemas.arrow import _json_decode_python
from ottla.schemas.arrow._json_decode_python import Buffers, Column, Kind
from ottla.schemas.arrow.arrow_codec import DecodedValues
from ottla.schemas.json_schema.json_schema import Document, JsonSchema, schemas_by_name
from ottla.schemas.json_schema.json_text import compact_json, parse_json
from ottla.schemas.json_schema.json_values import JsonReader
from ottla.schemas.values import InvalidValueError

try:
    from ottla.schemas.arrow import _json_decode as _compiled
except ImportError:  # pragma: no cover - without a C compiler
    _compiled = None

COLUMNS_MAX: Final = 4_096
"""Columns of one schema, nested ones included."""
NESTING_MAX: Final = 32
"""Types inside each other; deeper ones are columns of JSON text."""
BATCH_BYTES_MAX: Final = (1 << 31) - 1
"""Payloads of one call: the offsets of Arrow's strings have 32 bits."""
MESSAGES_MAX: Final = 100
"""Rows with errors that get their own reason in one call; the plain parser is slow."""

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_SCALARS: Final = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}
_FORMATS: Final = {"date-time": _TIMESTAMP, "date": pa.date32()}
_KINDS: Final = {
    pa.int64(): Kind.INT64,
    pa.float64(): Kind.FLOAT64,
    pa.bool_(): Kind.BOOLEAN,
    pa.string(): Kind.STRING,
    _TIMESTAMP: Kind.TIMESTAMP,
    pa.date32(): Kind.DATE,
}
# Arrow's fields are all nullable here. These mark them until the plan is made.
_TEXT: Final = {b"json": b"text"}
_NULLABLE: Final = {b"json": b"nullable"}


def arrow_schema_of(schema: JsonSchema) -> pa.Schema:
    """Return the columns of a schema. A schema that is not a record has one column, `value`.

    ValueError if there are more than `COLUMNS_MAX` columns.
    """
    return _Mapping(schema).arrow_schema


class _Mapping:
    """The Arrow types of a schema, and the plan of its decoder."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._under_way: set[int] = set()
        self._count = 0
        node = self._behind(schema.document)[0]
        properties = schemas_by_name(node, "properties") if node.get("type") == "object" else {}
        self.is_record = bool(properties)
        if not properties:
            properties = {"value": schema.document}
        else:
            self._under_way.add(id(node))
        self._row = pa.struct([self._field(name, one, 1) for name, one in properties.items()])
        self.arrow_schema = pa.schema(list(_without_metadata(self._row)))

    @cached_property
    def plan(self) -> list[Column]:
        """The columns for the decoder, the row first."""
        columns: list[Column] = []
        _add_columns(columns, pa.field("", self._row))
        return columns

    def _field(self, name: str, schema: Document, depth: int) -> pa.Field:
        self._count += 1
        if self._count > COLUMNS_MAX:
            raise ValueError(
                f"the schema has more than {COLUMNS_MAX} columns; use a schema with fewer "
                "properties, or read the values as JSON"
            )
        node, nullable = self._behind(schema)
        found = None if id(node) in self._under_way else self._type(node, depth)
        if found is None:
            return pa.field(name, pa.string(), metadata=_TEXT)
        return pa.field(name, found, metadata=_NULLABLE if nullable else None)

    def _type(self, node: Mapping[str, Any], depth: int) -> pa.DataType | None:
        name = node.get("type")
        if depth > NESTING_MAX:
            return None
        if name in ("object", "array"):
            self._under_way.add(id(node))
            found = self._array(node, depth) if name == "array" else self._object(node, depth)
            self._under_way.discard(id(node))
            return found
        if name == "string":
            return _FORMATS.get(str(node.get("format")), pa.string())
        if isinstance(name, str):
            return _SCALARS.get(name)
        values = node.get("enum", [node["const"]] if "const" in node else [])
        return pa.string() if values and all(isinstance(one, str) for one in values) else None

    def _array(self, node: Mapping[str, Any], depth: int) -> pa.DataType | None:
        items = node.get("items")
        if not isinstance(items, dict) or "prefixItems" in node:
            return None
        return pa.list_(self._field("item", items, depth + 1))

    def _object(self, node: Mapping[str, Any], depth: int) -> pa.DataType | None:
        properties = schemas_by_name(node, "properties")
        if properties:
            return pa.struct(
                [self._field(name, one, depth + 1) for name, one in properties.items()]
            )
        values = node.get("additionalProperties")
        if not isinstance(values, dict) or "patternProperties" in node:
            return None
        return pa.map_(pa.string(), self._field("value", values, depth + 1))

    def _behind(self, schema: Document) -> tuple[Mapping[str, Any], bool]:
        """Return the schema behind `$ref`s and unions with null, and whether null is allowed."""
        nullable = False
        while isinstance(schema, dict):
            # Kinds of unions other than these end in a column of JSON text.
            following = self._following(schema)
            if following is None:
                break
            schema, is_union = following
            nullable = nullable or is_union
        return (schema if isinstance(schema, dict) else {}), nullable

    def _following(self, node: dict[str, Any]) -> tuple[Document, bool] | None:
        target = self._schema.target_of(node)
        if target is not None:
            siblings = node.keys() - {"$ref", "title", "description", "default", "$comment"}
            return ({}, False) if target.siblings_apply and siblings else (target.schema, False)
        names = node.get("type")
        if isinstance(names, list):
            others = [name for name in names if name != "null"]
            found = {**node, "type": others[0]} if len(others) == 1 else {}
            return found, "null" in names
        for keyword in ("oneOf", "anyOf"):
            if isinstance(parts := node.get(keyword), list):
                rest = [part for part in parts if part != {"type": "null"}]
                found = rest[0] if len(rest) == 1 and "type" not in node else {}
                return found, len(rest) < len(parts)
        return ({}, False) if "allOf" in node else None


def _add_columns(columns: list[Column], column: pa.Field) -> int:
    """Add a column and its children to a plan; return its number."""
    index = len(columns)
    kind = _kind_of(column)
    nullable = column.metadata is not None
    columns.append(Column(kind, nullable))
    fields: list[pa.Field] = []
    if kind is Kind.STRUCT:
        fields = list(column.type)
    elif kind is Kind.LIST:
        fields = [column.type.value_field]
    elif kind is Kind.MAP:
        fields = [column.type.key_field, column.type.item_field]
    children = tuple(_add_columns(columns, one) for one in fields)
    names = tuple(one.name for one in fields) if kind is Kind.STRUCT else ()
    columns[index] = Column(kind, nullable, children, names)
    return index


def _kind_of(column: pa.Field) -> Kind:
    if pa.types.is_struct(column.type):
        return Kind.STRUCT
    if pa.types.is_list(column.type):
        return Kind.LIST
    if pa.types.is_map(column.type):
        return Kind.MAP
    return Kind.TEXT if column.metadata == _TEXT else _KINDS[column.type]


def _without_metadata(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _without_metadata(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("item", _without_metadata(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), pa.field("value", _without_metadata(kind.item_type)))
    return kind


class JsonArrowDecoder:
    """Decodes JSON payloads into the columns of the reader's schema.

    JSON names its fields: the writer's schema only matters for other types. Types are checked,
    limits and patterns only with `validate`, which costs a Python object for each value.
    """

    def __init__(
        self,
        reader: JsonSchema,
        writer: JsonSchema | None = None,
        *,
        validate: bool = False,
        compiled: bool = True,
    ) -> None:
        del writer
        self._mapping = _Mapping(reader)
        self._reader = JsonReader(reader) if validate else None
        self._decode = _compiled_decode if compiled and _compiled is not None else _plain_decode

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._mapping.arrow_schema

    def decode(self, values: pa.Array, skip: int = 0) -> DecodedValues:
        """Decode a BinaryArray or LargeBinaryArray, after `skip` bytes of each value.

        ValueError if the values have more than `BATCH_BYTES_MAX` bytes together.
        """
        large = values.cast(pa.large_binary())
        invalid = self._invalid(large, skip)
        if invalid:
            keep = pa.array([row not in invalid for row in range(len(large))])
            large = pa.compute.if_else(keep, large, pa.scalar(None, pa.large_binary()))
        plan = self._mapping.plan
        buffers, refused = self._decode(plan, large, skip, self._mapping.is_record)
        struct = _array_of(plan, buffers, 0, pa.struct(list(self.schema)))
        batch = pa.RecordBatch.from_arrays(
            [struct.field(index) for index in range(len(self.schema))], schema=self.schema
        )
        errors = invalid | self._reasons(large, skip, refused)
        return DecodedValues(batch, dict(sorted(errors.items())))

    def _invalid(self, values: pa.Array, skip: int) -> dict[int, str]:
        """Return the reasons of the rows that the schema's validator refuses."""
        found: dict[int, str] = {}
        if self._reader is not None:
            for row, value in enumerate(values.to_pylist()):
                if value is not None:
                    try:
                        self._reader.read(value[skip:])
                    except InvalidValueError as error:
                        found[row] = str(error)
        return found

    def _reasons(self, values: pa.Array, skip: int, rows: list[int]) -> dict[int, str]:
        found: dict[int, str] = {}
        for row in rows:
            found[row] = "the value does not fit the schema, like others of the batch"
            payload = values[row].as_py()
            if len(payload) < skip:
                found[row] = f"the value has {len(payload)} bytes, less than its prefix of {skip}"
            elif len(found) <= MESSAGES_MAX:
                try:
                    plan = self._mapping.plan
                    _json_decode_python.decode_row(plan, payload[skip:], self._mapping.is_record)
                except InvalidValueError as error:
                    found[row] = str(error)
        return found


def _compiled_decode(
    plan: list[Column], values: pa.Array, skip: int, is_record: bool
) -> tuple[list[Buffers], list[int]]:
    assert _compiled is not None
    validity, ends, data = values.buffers()
    first = values.offset
    if ends is None or len(values) == 0:
        return _json_decode_python.decode(plan, [], is_record)
    view = memoryview(ends).cast("q")[first : first + len(values) + 1]
    if view[-1] - view[0] > BATCH_BYTES_MAX:
        raise ValueError(
            f"the values have {view[-1] - view[0]} bytes, and {BATCH_BYTES_MAX} are the most; "
            "decode them in slices"
        )
    found: tuple[list[Buffers], list[int]] = _compiled.decode(
        plan, view, _bytes_of(data), _bytes_of(validity), first, skip, is_record
    )
    return found


def _bytes_of(buffer: pa.Buffer | None) -> memoryview:
    return memoryview(b"" if buffer is None else buffer).cast("B")


def _plain_decode(
    plan: list[Column], values: pa.Array, skip: int, is_record: bool
) -> tuple[list[Buffers], list[int]]:
    payloads = [None if one is None else one[skip:] for one in values.to_pylist()]
    return _json_decode_python.decode(plan, payloads, is_record)


def _array_of(plan: list[Column], buffers: list[Buffers], index: int, kind: pa.DataType) -> Any:
    count, nulls, validity, ends, data = buffers[index]
    children = plan[index].children
    parts = [None if part is None else pa.py_buffer(part) for part in (validity, ends, data)]
    match plan[index].kind:
        case Kind.STRUCT:
            arrays = [_array_of(plan, buffers, *pair) for pair in _zipped(children, kind)]
            return pa.Array.from_buffers(kind, count, parts[:1], nulls, 0, arrays)
        case Kind.LIST:
            arrays = [_array_of(plan, buffers, children[0], kind.value_type)]
            return pa.Array.from_buffers(kind, count, parts[:2], nulls, 0, arrays)
        case Kind.MAP:
            keys = _array_of(plan, buffers, children[0], pa.string())
            items = _array_of(plan, buffers, children[1], kind.item_type)
            entry = pa.struct([kind.key_field, kind.item_field])
            entries = pa.Array.from_buffers(entry, len(keys), [None], 0, 0, [keys, items])
            return pa.Array.from_buffers(kind, count, parts[:2], nulls, 0, [entries])
        case Kind.STRING | Kind.TEXT:
            return pa.Array.from_buffers(kind, count, parts, nulls)
        case _:
            return pa.Array.from_buffers(kind, count, [parts[0], parts[2]], nulls)


def _zipped(children: tuple[int, ...], kind: pa.StructType) -> list[tuple[int, pa.DataType]]:
    return [(child, one.type) for child, one in zip(children, kind, strict=True)]
