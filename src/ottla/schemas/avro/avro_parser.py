"""Avro schemas: JSON text to types, as lenient as Avro for Java.

Unknown attributes are kept as properties, invalid logical types are ignored, and a name may be used
before its definition. Names, defaults and sizes are checked. The JSON may have comments.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.schemas.avro.avro_defaults import check_default
from ottla.schemas.avro.avro_types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Kind,
    LogicalType,
    Map,
    NamedType,
    Primitive,
    Record,
    Union,
)
from ottla.schemas.parsed_schema import InvalidSchemaError

TEXT_BYTES_MAX: Final = 1024 * 1024
"""The longest text of a schema."""
DEPTH_MAX: Final = 200
"""The most levels of JSON, and of types inside types."""
TYPES_MAX: Final = 20_000
"""The most types in a text; a name that is used is a type as well."""
FIXED_BYTES_MAX: Final = 2**31 - 9
"""The largest size of a fixed type, as in Avro for Java."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMMENT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(//[^\n]*|/\*.*?\*/)', re.DOTALL)
_PRIMITIVES: Final = {kind.value: Primitive(kind) for kind in Kind}
_ORDERS: Final = ("ascending", "descending", "ignore")
_NAMED: Final = ("record", "error", "enum", "fixed")

_RESERVED: Final = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
_RESERVED_OF_ENUM: Final = _RESERVED | {"default"}
_RESERVED_OF_FIELD: Final = frozenset(("default", "doc", "name", "order", "type", "aliases"))

_LOGICAL_KINDS: Final = {
    "date": Kind.INT,
    "time-millis": Kind.INT,
    "time-micros": Kind.LONG,
    "timestamp-millis": Kind.LONG,
    "timestamp-micros": Kind.LONG,
    "timestamp-nanos": Kind.LONG,
    "local-timestamp-millis": Kind.LONG,
    "local-timestamp-micros": Kind.LONG,
    "local-timestamp-nanos": Kind.LONG,
    "uuid": Kind.STRING,
    "decimal": Kind.BYTES,
}
_LOGICAL_SIZES: Final = {"uuid": 16, "duration": 12}


@dataclass(frozen=True, slots=True)
class _Place:
    """A definition of a named type in the text: its JSON, the namespace around it, its path."""

    node: Mapping[str, Any]
    namespace: str
    path: str


def invalid(path: str, reason: str) -> InvalidSchemaError:
    """Return an error with the place and the reason."""
    return InvalidSchemaError(f"Invalid Avro schema at {path or '/'}: {reason}")


def parse_types(text: str, named: dict[str, NamedType], *, is_checked: bool = True) -> AvroType:
    """Parse a text. `named` has the types of the references, and gets the types of the text.

    Unless `is_checked`, namespaces and defaults may be invalid: other registries store such texts.
    """
    document = _load(text)
    try:
        return _Parser(document, named, is_checked).parse()
    except RecursionError as error:
        raise invalid("", "Types or references are nested too deep") from error


def _load(text: str) -> Any:
    """Return the JSON; the text, its depth and its characters are within the limits."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise invalid("", f"The text is not valid Unicode ({error.reason})") from error
    if size > TEXT_BYTES_MAX:
        raise invalid("", f"The text has {size} bytes; the limit is {TEXT_BYTES_MAX}")
    try:
        try:
            document = json.loads(text, parse_constant=_refuse_constant)
        except json.JSONDecodeError:
            uncommented = _COMMENT.sub(lambda match: " " if match[1] else match[0], text)
            document = json.loads(uncommented, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise invalid("", f"The text is not JSON: {error}") from error
    except RecursionError as error:
        raise invalid("", f"The JSON has more than {DEPTH_MAX} levels") from error
    except ValueError as error:
        raise invalid("", f"The text has an invalid number: {error}") from error
    _check_levels(document)
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


def _check_levels(document: Any) -> None:
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > DEPTH_MAX:
            raise invalid("", f"The JSON has more than {DEPTH_MAX} levels")
        following: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                following.extend(node.values())
                following.extend(node)
            elif isinstance(node, list):
                following.extend(node)
            elif isinstance(node, str) and not node.isascii():
                _check_characters(node)
        level = following


def _check_characters(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise invalid("", f"A string has half of a surrogate pair: {text[:40]!a}") from error


@dataclass(slots=True)
class _Parser:
    document: Any
    named: dict[str, NamedType]
    is_checked: bool
    defined: dict[int, NamedType] = field(default_factory=dict)
    """Types of this text by the identity of their JSON; an early use of a name defines its type."""
    open_names: set[str] = field(default_factory=set)
    places: dict[str, _Place] | None = None
    defaults: list[tuple[Field, str]] = field(default_factory=list)
    types_count: int = 0
    depth: int = 0

    def parse(self) -> AvroType:
        root = self._type(self.document, "", "")
        if self.is_checked:
            sizes: dict[tuple[int, int], int] = {}
            for record_field, path in self.defaults:
                reason = check_default(record_field.type, record_field.default, sizes)
                if reason is not None:
                    raise invalid(path, f"The default of field {record_field.name}: {reason}")
        return root

    def _type(self, node: Any, namespace: str, path: str) -> AvroType:
        self.types_count += 1
        if self.types_count > TYPES_MAX:
            raise invalid(path, f"The schema has more than {TYPES_MAX} types")
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise invalid(path, f"Types are nested deeper than {DEPTH_MAX} levels")
        try:
            if isinstance(node, str):
                return self._find(node, namespace, path)
            if isinstance(node, dict):
                return self._object(node, namespace, path)
            if isinstance(node, list):
                return self._union(node, namespace, path)
        finally:
            self.depth -= 1
        raise invalid(path, f"A type is a name, an object or a list, not {_shown(node)}")

    def _object(self, node: Mapping[str, Any], namespace: str, path: str) -> AvroType:
        name = node.get("type")
        if not isinstance(name, str):
            raise invalid(path, f'The attribute "type" must be a string, not {_shown(name)}')
        if name in _PRIMITIVES:
            return _primitive(node, _PRIMITIVES[name])
        if name in _NAMED:
            known = self.defined.get(id(node))
            return known or self._named(node, name, namespace, path)
        if name in ("array", "map"):
            key = "items" if name == "array" else "values"
            if key not in node:
                raise invalid(path, f'The {name} has no attribute "{key}"')
            inner = self._type(node[key], namespace, f"{path}/{key}")
            properties = _properties(node, _RESERVED)
            return Array(inner, properties) if name == "array" else Map(inner, properties)
        return self._find(name, namespace, f"{path}/type")

    def _union(self, nodes: list[Any], namespace: str, path: str) -> Union:
        branches = []
        seen = set()
        for index, node in enumerate(nodes):
            branch_path = f"{path}/{index}"
            branch = self._type(node, namespace, branch_path)
            if isinstance(branch, Union):
                raise invalid(branch_path, "A union may not be directly inside a union")
            name = branch_name(branch)
            if name in seen:
                raise invalid(branch_path, f"The union has the type {name} twice")
            seen.add(name)
            branches.append(branch)
        return Union(tuple(branches))

    def _find(self, name: str, namespace: str, path: str) -> AvroType:
        """Return the type with a name: primitive, in the namespace, or without a namespace."""
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        full_name = f"{namespace}.{name}" if namespace and "." not in name else name.lstrip(".")
        for known in (full_name, name):
            if known in self.named:
                return self.named[known]
        if self.places is None:
            self.places = _places(self.document)
        for known in (full_name, name):
            place = self.places.get(known)
            if place is not None:
                return self._early(place)
        raise invalid(
            path, f"The type {full_name} is not defined here, and no reference defines it"
        )

    def _early(self, place: _Place) -> NamedType:
        # As deep as a record inside a record, which has two more levels of JSON.
        self.depth += 2
        try:
            kind = place.node["type"]
            return self._named(place.node, kind, place.namespace, place.path)
        finally:
            self.depth -= 2

    def _named(self, node: Mapping[str, Any], kind: str, namespace: str, path: str) -> NamedType:
        full_name = self._full_name(node, namespace, path)
        inner_namespace = full_name.rpartition(".")[0]
        doc = node.get("doc")
        doc = doc if isinstance(doc, str) else None
        aliases = tuple(
            alias[1:] if alias.startswith(".") else _qualified(alias, inner_namespace)
            for alias in _aliases(node, path)
        )
        result: NamedType
        if kind == "enum":
            result = Enum(full_name, doc=doc, aliases=aliases)
            result.properties = _properties(node, _RESERVED_OF_ENUM)
            self._fill_enum(result, node, path)
        elif kind == "fixed":
            result = Fixed(full_name, _size(node, path), doc=doc, aliases=aliases)
            result.properties = _properties(node, _RESERVED)
            result.logical = _logical(result.properties, Kind.BYTES, result.size)
        else:
            result = Record(full_name, is_error=kind == "error", doc=doc, aliases=aliases)
            result.properties = _properties(node, _RESERVED)
        known = self.named.setdefault(full_name, result)
        self.defined[id(node)] = known
        if isinstance(result, Record):
            self._fill_record(result, node, inner_namespace, path)
        if known is not result and (full_name in self.open_names or not is_same(known, result)):
            raise invalid(path, f"The type {full_name} is already defined, and differently")
        return known

    def _full_name(self, node: Mapping[str, Any], namespace: str, path: str) -> str:
        name = node.get("name")
        if not isinstance(name, str):
            raise invalid(path, f'The attribute "name" must be a string, not {_shown(name)}')
        own = node.get("namespace")
        full_name = _qualified(name, own if isinstance(own, str) else namespace)
        parts = full_name.split(".")
        for part in parts if self.is_checked else parts[-1:]:
            _check_name(part, f"The name {full_name}", f"{path}/name")
        if full_name in _PRIMITIVES:
            raise invalid(f"{path}/name", f"A type may not have the primitive name {full_name}")
        return full_name

    def _fill_record(
        self, record: Record, node: Mapping[str, Any], namespace: str, path: str
    ) -> None:
        nodes = node.get("fields")
        if not isinstance(nodes, list):
            raise invalid(path, f'The record {record.full_name} has no list "fields"')
        is_first = self.named.get(record.full_name) is record
        if is_first:
            self.open_names.add(record.full_name)
        fields: dict[str, Field] = {}
        for index, field_node in enumerate(nodes):
            field_path = f"{path}/fields/{index}"
            record_field = self._field(field_node, namespace, field_path)
            if record_field.name in fields:
                raise invalid(field_path, f"The record has the field {record_field.name} twice")
            fields[record_field.name] = record_field
        record.fields = tuple(fields.values())
        if is_first:
            self.open_names.discard(record.full_name)

    def _field(self, node: Any, namespace: str, path: str) -> Field:
        if not isinstance(node, dict):
            raise invalid(path, f"A field is an object, not {_shown(node)}")
        name, doc, order = node.get("name"), node.get("doc"), node.get("order")
        if not isinstance(name, str):
            raise invalid(path, f'The attribute "name" must be a string, not {_shown(name)}')
        _check_name(name, f"The field name {name}", f"{path}/name")
        if "type" not in node:
            raise invalid(path, f"The field {name} has no type")
        if order is not None and (not isinstance(order, str) or order.lower() not in _ORDERS):
            raise invalid(f"{path}/order", f"The order is one of {', '.join(_ORDERS)}")
        result = Field(
            name,
            self._type(node["type"], namespace, f"{path}/type"),
            node.get("default", NO_DEFAULT),
            doc if isinstance(doc, str) else None,
            None if order is None else order.lower(),
            tuple(dict.fromkeys(_aliases(node, path))),
            _properties(node, _RESERVED_OF_FIELD),
        )
        if result.default is not NO_DEFAULT:
            result.default = _number_of_text(result, path)
            self.defaults.append((result, f"{path}/default"))
        return result

    def _fill_enum(self, enum: Enum, node: Mapping[str, Any], path: str) -> None:
        symbols = node.get("symbols")
        if not isinstance(symbols, list):
            raise invalid(path, f'The enum {enum.full_name} has no list "symbols"')
        for index, symbol in enumerate(symbols):
            if not isinstance(symbol, str):
                raise invalid(f"{path}/symbols/{index}", "A symbol must be a string")
            _check_name(symbol, f"The symbol {symbol}", f"{path}/symbols/{index}")
        if len(set(symbols)) < len(symbols):
            twice = next(symbol for symbol in symbols if symbols.count(symbol) > 1)
            raise invalid(f"{path}/symbols", f"The symbol {twice} is there twice")
        enum.symbols = tuple(symbols)
        default = node.get("default")
        if isinstance(default, str):
            if default not in symbols:
                raise invalid(f"{path}/default", f"The default {default} is not a symbol")
            enum.default = default


def branch_name(branch: AvroType) -> str:
    """Return the name of a type that is unique in a union."""
    match branch:
        case Record() | Enum() | Fixed():
            return branch.full_name
        case Primitive():
            return branch.kind.value
        case Array():
            return "array"
        case Map():
            return "map"
        case Union():
            return "union"


def is_same(first: AvroType, second: AvroType) -> bool:
    """Whether two types are equal, except for documentation and aliases.

    Named types inside are compared by name: in one schema a name has one definition.
    """
    if type(first) is not type(second):
        return False
    match first, second:
        case (Record(), Record()):
            return _head(first) == _head(second) and all(
                _field_head(one) == _field_head(other) and _is_same_inside(one.type, other.type)
                for one, other in zip(first.fields, second.fields, strict=True)
            )
        case (Enum(), Enum()):
            return _head(first) == _head(second)
        case (Fixed(), Fixed()):
            return _head(first) == _head(second)
        case _:
            return _is_same_inside(first, second)


def _head(named: NamedType) -> tuple[object, ...]:
    own: tuple[object, ...]
    match named:
        case Record():
            own = (named.is_error, len(named.fields))
        case Enum():
            own = (named.symbols,)
        case Fixed():
            own = (named.size,)
    return named.full_name, dict(named.properties), own


def _field_head(one: Field) -> tuple[object, ...]:
    return one.name, one.default, one.order or _ORDERS[0], dict(one.properties)


def _is_same_inside(first: AvroType, second: AvroType) -> bool:
    match first, second:
        case (Primitive(), Primitive()):
            return first.kind is second.kind and first.properties == second.properties
        case (Array(), Array()):
            return first.properties == second.properties and _is_same_inside(
                first.items, second.items
            )
        case (Map(), Map()):
            return first.properties == second.properties and _is_same_inside(
                first.values, second.values
            )
        case (Union(), Union()):
            return len(first.branches) == len(second.branches) and all(
                map(_is_same_inside, first.branches, second.branches)
            )
        case _:
            return type(first) is type(second) and branch_name(first) == branch_name(second)


def _places(document: Any) -> dict[str, _Place]:
    """Return the first definition of each name, wherever it is in the text."""
    places: dict[str, _Place] = {}
    waiting: list[tuple[Any, str, str]] = [(document, "", "")]
    while waiting:
        node, namespace, path = waiting.pop()
        if isinstance(node, list):
            inside = [(inner, namespace, f"{path}/{index}") for index, inner in enumerate(node)]
            waiting.extend(reversed(inside))
        elif isinstance(node, dict):
            waiting.extend(reversed(_inside(node, namespace, path, places)))
    return places


def _inside(
    node: Mapping[str, Any], namespace: str, path: str, places: dict[str, _Place]
) -> list[tuple[Any, str, str]]:
    kind, name = node.get("type"), node.get("name")
    if kind in ("array", "map"):
        key = "items" if kind == "array" else "values"
        return [(node.get(key), namespace, f"{path}/{key}")]
    if kind not in _NAMED or not isinstance(name, str):
        return []
    own = node.get("namespace")
    full_name = _qualified(name, own if isinstance(own, str) else namespace)
    places.setdefault(full_name, _Place(node, namespace, path))
    fields = node.get("fields")
    inner = full_name.rpartition(".")[0]
    return [
        (each["type"], inner, f"{path}/fields/{index}/type")
        for index, each in enumerate(fields if isinstance(fields, list) else ())
        if isinstance(each, dict) and "type" in each
    ]


def _qualified(name: str, namespace: str) -> str:
    if "." in name:
        return name.removeprefix(".") if name.rfind(".") == 0 else name
    return f"{namespace}.{name}" if namespace else name


def _check_name(name: str, subject: str, path: str) -> None:
    if not _NAME.fullmatch(name):
        raise invalid(
            path, f"{subject} is not valid: use letters, digits and _, and no digit at the start"
        )


def _aliases(node: Mapping[str, Any], path: str) -> list[str]:
    aliases = node.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise invalid(f"{path}/aliases", 'The attribute "aliases" must be a list of strings')
    for alias in aliases:
        if not alias.rpartition(".")[2]:
            raise invalid(f"{path}/aliases", "An alias must not be empty")
    return list(dict.fromkeys(aliases))


def _size(node: Mapping[str, Any], path: str) -> int:
    size = node.get("size")
    if type(size) is not int or not 0 <= size <= FIXED_BYTES_MAX:
        raise invalid(f"{path}/size", f"The size is a number of bytes up to {FIXED_BYTES_MAX}")
    return size


def _properties(node: Mapping[str, Any], reserved: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in node.items() if name not in reserved}


def _primitive(node: Mapping[str, Any], plain: Primitive) -> Primitive:
    properties = _properties(node, _RESERVED)
    if not properties:
        return plain
    return Primitive(plain.kind, _logical(properties, plain.kind, None), properties)


def _number_of_text(record_field: Field, path: str) -> Any:
    """Return the default; a float may be given as a text, such as NaN, as in Avro for Java."""
    default, of_type = record_field.default, record_field.type
    if not isinstance(default, str) or not isinstance(of_type, Primitive):
        return default
    if of_type.kind not in (Kind.FLOAT, Kind.DOUBLE):
        return default
    try:
        return float(default.strip())
    except ValueError as error:
        raise invalid(f"{path}/default", f"{_shown(default)} is not a number") from error


def _logical(properties: Mapping[str, Any], kind: Kind, size: int | None) -> LogicalType | None:
    """Return the logical type; None if there is none, it is unknown, or it does not fit."""
    name = properties.get("logicalType")
    if not isinstance(name, str):
        return None
    if name == "decimal":
        return _decimal(properties, size) if kind is Kind.BYTES else None
    if size is not None:
        return LogicalType(name) if _LOGICAL_SIZES.get(name) == size else None
    return LogicalType(name) if _LOGICAL_KINDS.get(name) is kind else None


def _decimal(properties: Mapping[str, Any], size: int | None) -> LogicalType | None:
    precision, scale = properties.get("precision"), properties.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return None
    if not 0 <= scale <= precision or not 0 < precision < 2**31:
        return None
    if size is not None and precision > math.floor(math.log10(2) * (8 * size - 1)):
        return None
    return LogicalType("decimal", precision, scale)


def _shown(value: Any) -> str:
    """Return a short form of a JSON value for a message."""
    if value is None:
        return "null or absent"
    text = json.dumps(value) if not isinstance(value, list | dict) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."
