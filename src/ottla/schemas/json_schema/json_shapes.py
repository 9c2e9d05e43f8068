"""Shapes of JSON Schemas: the conjunction of constraints as one type, or as combined parts.

A schema with one group of keywords has the shape of that group. A schema with several groups, such
as `type` and `enum`, is combined by `allOf`; a list of types is combined by `anyOf`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from ottla.schemas.json_schema.json_schema import (
    Document,
    JsonSchema,
    schemas_by_name,
    schemas_in,
)


class Kind(Enum):
    """The kind of a shape."""

    ANY = auto()
    FALSE = auto()
    STRING = auto()
    NUMBER = auto()
    BOOLEAN = auto()
    NULL = auto()
    OBJECT = auto()
    ARRAY = auto()
    ENUM = auto()
    NOT = auto()
    CONDITIONAL = auto()
    COMBINED = auto()


_KINDS: Final = {
    "string": Kind.STRING,
    "number": Kind.NUMBER,
    "integer": Kind.NUMBER,
    "boolean": Kind.BOOLEAN,
    "null": Kind.NULL,
    "object": Kind.OBJECT,
    "array": Kind.ARRAY,
}
_KEYWORDS: Final = {
    Kind.OBJECT: frozenset(
        [
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "propertyNames",
            "minProperties",
            "maxProperties",
            "dependencies",
            "dependentRequired",
            "dependentSchemas",
            "unevaluatedProperties",
        ]
    ),
    Kind.ARRAY: frozenset(
        [
            "items",
            "prefixItems",
            "additionalItems",
            "contains",
            "minContains",
            "maxContains",
            "minItems",
            "maxItems",
            "uniqueItems",
            "unevaluatedItems",
        ]
    ),
    Kind.NUMBER: frozenset(
        ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]
    ),
    Kind.STRING: frozenset(["minLength", "maxLength", "pattern"]),
}
COMBINATORS: Final = ("allOf", "anyOf", "oneOf")


@dataclass(eq=False)
class Shape:
    """A part of a schema with one kind of constraint. Equal only to itself."""

    kind: Kind
    node: Mapping[str, Any] = field(default_factory=dict)
    """The keywords; keywords of other kinds do not count."""
    has_type: bool = False
    """Whether values of other types are refused."""
    is_integer: bool = False
    criterion: str = "allOf"
    parts: "list[Shape]" = field(default_factory=list)

    @property
    def is_connect_bytes(self) -> bool:
        """Whether Kafka Connect wrote the schema for bytes; their form once changed."""
        return self.node.get("connect.type") == "bytes"

    def number(self, keyword: str) -> Fraction | None:
        """Return a limit; the boolean limits of draft 4 count as the newer ones."""
        value = self.node.get(keyword)
        base = {"exclusiveMaximum": "maximum", "exclusiveMinimum": "minimum"}.get(keyword)
        if base is not None and isinstance(value, bool):
            value = self.node.get(base) if value else None
        is_exclusive = {"maximum": "exclusiveMaximum", "minimum": "exclusiveMinimum"}.get(keyword)
        if is_exclusive is not None and self.node.get(is_exclusive) is True:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return Fraction(str(value)) if isinstance(value, float) else Fraction(value)

    def schema(self, keyword: str) -> Document:
        """Return a subschema; true if the keyword is not there, or `items` is a list."""
        if keyword == "items" and self.prefix_items:
            return True
        value = self.node.get(keyword, True)
        return value if isinstance(value, dict | bool) else True

    def rest(self, keyword: str) -> Document:
        """Return the schema of properties or items that no other keyword has; true without one."""
        if keyword == "additionalItems":
            if not self.prefix_items:
                return True
            keyword = "items" if "prefixItems" in self.node else keyword
        value = self.node.get(keyword, True)
        return value if isinstance(value, dict | bool) else True

    @cached_property
    def properties(self) -> dict[str, Document]:
        """The declared properties."""
        return schemas_by_name(self.node, "properties")

    @cached_property
    def pattern_properties(self) -> dict[str, Document]:
        """The schemas of properties by patterns of their names."""
        return schemas_by_name(self.node, "patternProperties")

    @cached_property
    def required(self) -> frozenset[str]:
        """The names of required properties."""
        names = self.node.get("required")
        return frozenset(names if isinstance(names, list) else ())

    @cached_property
    def required_dependencies(self) -> dict[str, frozenset[str]]:
        """The properties that become required by another property, by its name."""
        found: dict[str, frozenset[str]] = {}
        for keyword in ("dependencies", "dependentRequired"):
            value = self.node.get(keyword)
            for name, names in value.items() if isinstance(value, dict) else ():
                if isinstance(names, list) and names:
                    found[name] = found.get(name, frozenset()) | frozenset(names)
        return found

    @cached_property
    def schema_dependencies(self) -> dict[str, Document]:
        """The schemas that apply if a property is there, by its name."""
        dependent = schemas_by_name(self.node, "dependentSchemas")
        return schemas_by_name(self.node, "dependencies") | dependent

    @cached_property
    def prefix_items(self) -> list[Document]:
        """The schemas of the first items."""
        return schemas_in(self.node, "prefixItems") or schemas_in(self.node, "items")

    @property
    def contains_min(self) -> Fraction:
        """The least number of items that match `contains`."""
        least = self.number("minContains")
        return Fraction(1) if least is None else least

    @property
    def values(self) -> list[Any]:
        """The values of an enum; `const` is an enum with one value."""
        if "enum" in self.node:
            return list(self.node["enum"])
        return [self.node["const"]]


_ANY: Final = Shape(Kind.ANY)
_FALSE: Final = Shape(Kind.FALSE)


class Shapes:
    """The shapes of two schemas' nodes; one node has one shape."""

    def __init__(self, *schemas: JsonSchema) -> None:
        self._schemas = schemas
        self._shapes: dict[int, Shape] = {}

    def of(self, schema: Document | Shape) -> Shape:
        """Return the shape of a schema, behind its `$ref`."""
        if isinstance(schema, Shape):
            return schema
        if isinstance(schema, bool):
            return _ANY if schema else _FALSE
        if (done := self._shapes.get(id(schema))) is None:
            done = self._shapes[id(schema)] = self._new(schema)
        return done

    def has_default(self, schema: Document) -> bool:
        """Return whether a schema, or the target of its `$ref`, has a default."""
        while isinstance(schema, dict):
            if "default" in schema:
                return True
            target = self._target(schema)
            if target is None:
                return False
            schema = target
        return False

    def _target(self, node: Mapping[str, Any]) -> Document | None:
        for schema in self._schemas:
            if (target := schema.target_of(node)) is not None:
                return target.schema
        return None

    def _siblings_apply(self, node: Mapping[str, Any]) -> bool:
        for schema in self._schemas:
            if (target := schema.target_of(node)) is not None:
                return target.siblings_apply
        return True

    def _new(self, node: dict[str, Any]) -> Shape:
        target = self._target(node)
        parts = [] if target is None else [self.of(target)]
        if target is None or self._siblings_apply(node):
            parts += self._own_parts(node)
        if not parts:
            return _ANY
        return parts[0] if len(parts) == 1 else Shape(Kind.COMBINED, node, parts=parts)

    def _own_parts(self, node: dict[str, Any]) -> list[Shape]:
        parts = _typed_parts(node)
        if "enum" in node or "const" in node:
            parts.append(Shape(Kind.ENUM, node))
        if "not" in node:
            parts.append(Shape(Kind.NOT, node))
        if "if" in node and ("then" in node or "else" in node):
            parts.append(Shape(Kind.CONDITIONAL, node))
        for criterion in COMBINATORS:
            if schemas := schemas_in(node, criterion):
                shapes = [self.of(one) for one in schemas]
                parts.append(Shape(Kind.COMBINED, node, criterion=criterion, parts=shapes))
        return parts


def _typed_parts(node: dict[str, Any]) -> list[Shape]:
    names = node.get("type")
    if isinstance(names, list):
        shapes = [_typed(name, node) for name in names if name in _KINDS]
        return [Shape(Kind.COMBINED, node, criterion="anyOf", parts=shapes)]
    if isinstance(names, str) and names in _KINDS:
        return [_typed(names, node)]
    return [Shape(kind, node) for kind, keywords in _KEYWORDS.items() if keywords & node.keys()]


def _typed(name: str, node: dict[str, Any]) -> Shape:
    return Shape(_KINDS[name], node, has_type=True, is_integer=name == "integer")
