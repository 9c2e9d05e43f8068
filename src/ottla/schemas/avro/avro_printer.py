"""Avro schemas as text, in the form of Avro for Java: its `Schema.toString` without whitespace.

Attributes of a named type come in the order type, name, namespace, doc, content, properties,
aliases. The first use of a name has the definition; later uses have the name.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

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

_ESCAPES: Final = str.maketrans(
    {chr(code): f"\\u{code:04X}" for code in range(32)}
    | {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
)
_KEYWORDS: Final = frozenset(
    [kind.value for kind in Kind] + ["record", "enum", "array", "map", "union", "fixed"]
)

_FLOATS: Final = (Kind.FLOAT, Kind.DOUBLE)
_EXACT_INTEGER_MAX: Final = 2**53
_CONSTANTS: Final = {None: "null", True: "true", False: "false"}

_Piece = str | tuple[AvroType, str]
"""Text, or a type that is printed in a namespace."""


def print_type(root: AvroType, known: Iterable[str] = (), *, is_normalized: bool = False) -> str:
    """Return the text of a type. Types with the full names in `known` are only names.

    Normalized: properties and aliases are sorted, and empty documentation and `error` are gone.
    """
    printer = _Printer(set(known), is_normalized)
    output: list[str] = []
    # A stack of pieces instead of recursion: references may nest deeper than Python calls.
    waiting: list[_Piece] = [(root, "")]
    while waiting:
        piece = waiting.pop()
        if isinstance(piece, str):
            output.append(piece)
        else:
            waiting.extend(reversed(printer.pieces(*piece)))
    return "".join(output)


def quoted(text: str) -> str:
    """Return a JSON string."""
    return f'"{text.translate(_ESCAPES)}"'


def json_text(value: Any, *, is_sorted: bool = False) -> str:
    """Return a JSON value as Jackson prints it; all keys are sorted if `is_sorted`."""
    if isinstance(value, Mapping):
        items = sorted(value.items()) if is_sorted else value.items()
        parts = (f"{quoted(key)}:{json_text(item, is_sorted=is_sorted)}" for key, item in items)
        return f"{{{','.join(parts)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(json_text(item, is_sorted=is_sorted) for item in value)}]"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float):
        return _float_text(value)
    return _CONSTANTS[value] if value is None or isinstance(value, bool) else str(value)


def _float_text(value: float) -> str:
    """Return a number as Java's `Double.toString` does: 1.0, 1.0E7, 1.0E-4."""
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = whole + fraction
    power = int(exponent or 0) + len(whole) - 1
    leading = len(digits) - len(digits.lstrip("0"))
    digits = digits[leading:].rstrip("0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power - leading}"


class _Printer:
    __slots__ = ("_is_normalized", "_known")

    def __init__(self, known: set[str], is_normalized: bool) -> None:
        self._known = known
        self._is_normalized = is_normalized

    def pieces(self, printed: AvroType, namespace: str) -> list[_Piece]:
        match printed:
            case Primitive():
                name = quoted(printed.kind.value)
                if not printed.properties:
                    return [name]
                properties = self._properties(printed.properties, printed.logical)
                return [f'{{"type":{name}{properties}}}']
            case Array():
                tail = self._properties(printed.properties, None)
                return ['{"type":"array","items":', (printed.items, namespace), f"{tail}}}"]
            case Map():
                tail = self._properties(printed.properties, None)
                return ['{"type":"map","values":', (printed.values, namespace), f"{tail}}}"]
            case Union():
                return self._union(printed, namespace)
            case Record() | Enum() | Fixed():
                return self._named(printed, namespace)

    def _union(self, union: Union, namespace: str) -> list[_Piece]:
        result: list[_Piece] = ["["]
        for index, branch in enumerate(union.branches):
            result += [",", (branch, namespace)] if index else [(branch, namespace)]
        result.append("]")
        return result

    def _named(self, named: NamedType, namespace: str) -> list[_Piece]:
        own, _, name = named.full_name.rpartition(".")
        if named.full_name in self._known:
            return [quoted(_reference(named.full_name, namespace))]
        self._known.add(named.full_name)
        is_error = isinstance(named, Record) and named.is_error and not self._is_normalized
        kind = "error" if is_error else type(named).__name__.lower()
        head = f'{{"type":"{kind}","name":{quoted(name)}'
        if own != namespace:
            head += f',"namespace":{quoted(own)}'
        if named.doc or (named.doc is not None and not self._is_normalized):
            head += f',"doc":{quoted(named.doc)}'
        logical = named.logical if isinstance(named, Fixed) else None
        tail = self._properties(named.properties, logical) + self._aliases(named, own)
        return [head, *self._content(named, own), f"{tail}}}"]

    def _content(self, named: NamedType, namespace: str) -> list[_Piece]:
        match named:
            case Fixed():
                return [f',"size":{named.size}']
            case Enum():
                symbols = ",".join(map(quoted, named.symbols))
                default = (
                    "" if named.default is NO_DEFAULT else f',"default":{quoted(named.default)}'
                )
                return [f',"symbols":[{symbols}]{default}']
            case Record():
                result: list[_Piece] = [',"fields":[']
                for index, field in enumerate(named.fields):
                    result.append(f'{"," if index else ""}{{"name":{quoted(field.name)},"type":')
                    result += [(field.type, namespace), f"{self._field_tail(field)}}}"]
                result.append("]")
                return result

    def _field_tail(self, field: Field) -> str:
        tail = "" if field.doc is None else f',"doc":{quoted(field.doc)}'
        if field.default is not NO_DEFAULT:
            default = field.default
            if self._is_normalized:
                default = _normal_default(field.type, default)
            tail += f',"default":{json_text(default, is_sorted=self._is_normalized)}'
        if field.order not in (None, "ascending"):
            tail += f',"order":"{field.order}"'
        if field.aliases:
            aliases = sorted(field.aliases) if self._is_normalized else field.aliases
            tail += f',"aliases":[{",".join(map(quoted, aliases))}]'
        return tail + self._properties(field.properties, None)

    def _properties(self, properties: Mapping[str, Any], logical: LogicalType | None) -> str:
        items: Iterable[tuple[str, Any]] = properties.items()
        if self._is_normalized:
            items = sorted(properties.items(), key=_normal_order(logical))
        return "".join(
            f",{quoted(name)}:{json_text(value, is_sorted=self._is_normalized)}"
            for name, value in items
        )

    def _aliases(self, named: NamedType, namespace: str) -> str:
        if not named.aliases:
            return ""
        aliases = sorted(named.aliases) if self._is_normalized else named.aliases
        texts = [quoted(_alias(alias, namespace)) for alias in aliases]
        return f',"aliases":[{",".join(texts)}]'


def _reference(full_name: str, namespace: str) -> str:
    """Return the shortest name that means a type inside a namespace, as Avro for Java does."""
    own, _, name = full_name.rpartition(".")
    return name if own == namespace and name not in _KEYWORDS else full_name


def _alias(alias: str, namespace: str) -> str:
    if namespace and "." not in alias:
        return f".{alias}"
    return _reference(alias, namespace)


def _normal_default(of_type: AvroType, default: Any) -> Any:
    """Return a default with floats where the type says so: 0 becomes 0.0."""
    match of_type:
        case Primitive() if of_type.kind in _FLOATS and type(default) is int:
            return float(default) if abs(default) < _EXACT_INTEGER_MAX else default
        case Array() if isinstance(default, list):
            return [_normal_default(of_type.items, item) for item in default]
        case Map() if isinstance(default, dict):
            return {key: _normal_default(of_type.values, item) for key, item in default.items()}
        case Record() if isinstance(default, dict):
            types = {field.name: field.type for field in of_type.fields}
            return {
                key: _normal_default(types[key], item) if key in types else item
                for key, item in default.items()
            }
        case _:
            return default


def _normal_order(logical: LogicalType | None) -> Callable[[tuple[str, Any]], tuple[int, str]]:
    """Return a sort key: the attributes of the logical type are first, as Confluent prints them."""
    first = ["logicalType", "precision"] if logical else []
    if logical and logical.scale:
        first.append("scale")
    ranks = {name: rank for rank, name in enumerate(first)}
    return lambda item: (ranks.get(item[0], len(first)), item[0])
