"""The Arrow columns of a JSON Schema, and the plan of their decoder."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

try:
    import pyarrow as pa
except ModuleNotFoundError:
    raise ImportError("Arrow columns need pyarrow: pip install 'ottla[arrow]'") from None

from ottla.schemas.arrow._json_decode_python import Column, Kind
from ottla.schemas.json_schema.json_schema import Document, JsonSchema, schemas_by_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

COLUMNS_MAX: Final = 4_096
"""Columns of one schema, nested ones included."""
NESTING_MAX: Final = 32
"""Types inside each other; deeper ones are columns of JSON text."""

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
_TEXT: Final = b"text"
_NULLABLE: Final = b"nullable"
_REQUIRED: Final = b"required"

_NO_CONSTRAINTS: Final = frozenset(
    [
        "$anchor",
        "$comment",
        "$defs",
        "$id",
        "$ref",
        "$schema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    ]
)
"""Keywords beside `$ref` that refuse no value."""


class ColumnMapping:
    """The Arrow types of a schema, and the plan of its decoder."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._under_way: set[int] = set()
        self._narrowed: dict[int, dict[str, Any]] = {}
        self._count = 0
        node = self._behind(schema.document)[0]
        properties = schemas_by_name(node, "properties") if node.get("type") == "object" else {}
        self.is_record = bool(properties)
        if not properties:
            properties = {"value": schema.document}
        else:
            self._under_way.add(id(node))
        required = frozenset(node.get("required", ())) if self.is_record else {"value"}
        self.is_open = node.get("additionalProperties") is not False
        self.row = pa.struct(self._fields(properties, required, 1))
        self.arrow_schema = pa.schema(list(_without_metadata(self.row)))

    @cached_property
    def plan(self) -> list[Column]:
        """The columns for the decoder, the row first."""
        columns: list[Column] = []
        _add_columns(columns, pa.field("", self.row))
        return columns

    def _fields(
        self, properties: Mapping[str, Document], required: Collection[str], depth: int
    ) -> list[pa.Field]:
        return [
            self._field(name, schema, depth, is_required=name in required)
            for name, schema in properties.items()
        ]

    def _field(
        self, name: str, schema: Document, depth: int, *, is_required: bool = False
    ) -> pa.Field:
        self._count += 1
        if self._count > COLUMNS_MAX:
            raise ValueError(
                f"the schema has more than {COLUMNS_MAX} columns; use a schema with fewer "
                "properties, or read the values as JSON"
            )
        node, nullable = self._behind(schema)
        found = None if id(node) in self._under_way else self._type(node, depth)
        marks = {_REQUIRED: b""} if is_required else {}
        if nullable or found is None:
            marks[_NULLABLE] = b""
        if found is None:
            marks[_TEXT] = b""
        return pa.field(name, pa.string() if found is None else found, metadata=marks or None)

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
            return pa.struct(self._fields(properties, node.get("required", ()), depth + 1))
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
            siblings = node.keys() - _NO_CONSTRAINTS
            return ({}, False) if target.siblings_apply and siblings else (target.schema, False)
        names = node.get("type")
        if isinstance(names, list):
            return self._narrowed_to(node, names), "null" in names
        for keyword in ("oneOf", "anyOf"):
            if isinstance(parts := node.get(keyword), list):
                rest = [part for part in parts if part != {"type": "null"}]
                found = rest[0] if len(rest) == 1 and "type" not in node else {}
                return found, len(rest) < len(parts)
        if "allOf" not in node:
            return None
        is_alone = len(node["allOf"]) == 1 and not node.keys() - _NO_CONSTRAINTS - {"allOf"}
        return (node["allOf"][0] if is_alone else {}), False

    def _narrowed_to(self, node: dict[str, Any], names: list[str]) -> dict[str, Any]:
        """Return the schema with the only type besides null; one object for each schema."""
        others = [name for name in names if name != "null"]
        if len(others) != 1:
            return {}
        return self._narrowed.setdefault(id(node), {**node, "type": others[0]})


def _add_columns(columns: list[Column], column: pa.Field) -> int:
    """Add a column and its children to a plan; return its number."""
    index = len(columns)
    kind = kind_of(column)
    nullable = _has(column, _NULLABLE)
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


def kind_of(column: pa.Field) -> Kind:
    """Return the kind of a field of `ColumnMapping.row`."""
    if pa.types.is_struct(column.type):
        return Kind.STRUCT
    if pa.types.is_list(column.type):
        return Kind.LIST
    if pa.types.is_map(column.type):
        return Kind.MAP
    return Kind.TEXT if _has(column, _TEXT) else _KINDS[column.type]


def _has(column: pa.Field, mark: bytes) -> bool:
    return mark in (column.metadata or {})


def _without_metadata(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _without_metadata(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("item", _without_metadata(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), pa.field("value", _without_metadata(kind.item_type)))
    return kind


def may_be_null(column: pa.Field) -> bool:
    """Return whether the schema allows a JSON null."""
    return _has(column, _NULLABLE)


def must_be_there(column: pa.Field) -> bool:
    """Return whether the schema requires the property."""
    return _has(column, _REQUIRED)
