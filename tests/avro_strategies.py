"""Strategies for Avro schemas, their values, and their evolution."""

import copy
import datetime
import decimal
import uuid
from typing import Any

from hypothesis import strategies as st

PRIMITIVES = ["boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL: list[dict[str, Any]] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
]
INTEGERS = {"int": 31, "long": 63}
DEFAULTS: dict[str, Any] = {
    "boolean": False, "int": 0, "long": 0, "float": 0.5, "double": 0.5, "bytes": "", "string": "x",
}  # fmt: skip
WIDER = {
    "int": ["long", "float", "double"],
    "long": ["float", "double"],
    "float": ["double"],
    "string": ["bytes"],
}

GROUPS = {
    "boolean": "boolean", "int": "number", "long": "number", "float": "number", "double": "number",
    "string": "text", "enum": "text", "bytes": "bytes", "fixed": "bytes", "array": "bytes",
}  # fmt: skip
"""A union has one branch of each group: other writers choose differently between two."""


class Schemas:
    """Draws one schema; names are unique, and records may contain earlier records."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self._count = 0
        self._named: list[str] = []

    def any(self, depth: int = 0, *, in_union: bool = False) -> Any:
        kinds = ["primitive", "primitive", "logical", "enum", "fixed"]
        if depth < 3:
            kinds += ["record", "record", "array", "map"] + ([] if in_union else ["union"] * 2)
        if self._named:
            kinds.append("name")
        return getattr(self, self._draw(st.sampled_from(kinds)))(depth + 1)

    def primitive(self, depth: int) -> Any:
        kind = self._draw(st.sampled_from(PRIMITIVES))
        return self._draw(
            st.sampled_from([kind, kind, {"type": kind, "x.y": {"b": 1, "a": [1.5]}}])
        )

    def logical(self, depth: int) -> Any:
        return dict(self._draw(st.sampled_from(LOGICAL)))

    def name(self, depth: int) -> str:
        return str(self._draw(st.sampled_from(self._named)))

    def array(self, depth: int) -> Any:
        return {"type": "array", "items": self.any(depth)}

    def map(self, depth: int) -> Any:
        return {"type": "map", "values": self.any(depth)}

    def union(self, depth: int) -> Any:
        branches: dict[str, Any] = {"null": "null"}
        for _ in range(self._draw(st.integers(1, 3))):
            names_count = len(self._named)
            branch = self.any(depth, in_union=True)
            kind = branch["type"] if isinstance(branch, dict) else branch
            if branches.setdefault(GROUPS.get(kind, "record"), branch) is not branch:
                del self._named[names_count:]
        return list(branches.values())

    def enum(self, depth: int) -> Any:
        symbols = self._draw(st.lists(st.sampled_from("ABCDEF"), min_size=1, unique=True))
        result = self._head("enum") | {"symbols": symbols}
        if self._draw(st.booleans()):
            result["default"] = symbols[0]
        return result

    def fixed(self, depth: int) -> Any:
        return self._head("fixed") | {"size": self._draw(st.integers(1, 8))}

    def record(self, depth: int) -> Any:
        head = self._head("record")
        fields = []
        for index in range(self._draw(st.integers(0, 4))):
            field: dict[str, Any] = {"name": f"f{index}", "type": self.any(depth)}
            if isinstance(field["type"], str) and field["type"] in DEFAULTS:
                if self._draw(st.booleans()):
                    field["default"] = DEFAULTS[field["type"]]
            elif isinstance(field["type"], list) and self._draw(st.booleans()):
                field["default"] = None
            if self._draw(st.booleans()):
                field |= {"doc": 'a "field"\n\x01é', "z": 1, "a": {"k": None}}
            fields.append(field)
        return head | {"fields": fields}

    def _head(self, kind: str) -> dict[str, Any]:
        self._count += 1
        name = f"T{self._count}"
        space = self._draw(st.sampled_from([None, "a", "a.b"]))
        head: dict[str, Any] = {"name": name, "type": kind}
        if space:
            head["namespace"] = space
            if kind == "record":
                self._named.append(f"{space}.{name}")
        if self._draw(st.booleans()):
            head |= {"aliases": ["Old" + name], "doc": "documentation", "p": [1, {"c": 2, "b": 3}]}
        return head


@st.composite
def schemas(draw: Any) -> Any:
    """A schema in JSON."""
    drawn = Schemas(draw)
    return drawn.record(0) if draw(st.booleans()) else drawn.any()


def values(schema: Any) -> st.SearchStrategy[Any]:
    """Values of a schema, as Python objects."""
    return st.composite(lambda draw: Values(draw, schema).of(schema, 0))()


class Values:
    """Draws a value of a schema; recursive records end with nulls and empty lists."""

    def __init__(self, draw: Any, schema: Any) -> None:
        self._draw = draw
        self._named: dict[str, Any] = {}
        self._collect(schema)

    def _collect(self, schema: Any) -> None:
        if isinstance(schema, list):
            for inner in schema:
                self._collect(inner)
        elif isinstance(schema, dict):
            if schema["type"] == "record":
                self._named[f"{schema.get('namespace', '')}.{schema['name']}"] = schema
            for field in schema.get("fields", []):
                self._collect(field["type"])
            self._collect(schema.get("items", schema.get("values")))

    def of(self, schema: Any, depth: int) -> Any:
        if isinstance(schema, list):
            return self.of(schema[0] if depth > 5 else self._draw(st.sampled_from(schema)), depth)
        if isinstance(schema, str):
            named = self._named.get(schema)
            return self._draw(PLAIN[schema]) if named is None else self.of(named, depth)
        if "logicalType" in schema:
            return self._draw(PYTHON[schema["logicalType"]])
        return self._complex(schema, depth + 1)

    def _complex(self, schema: Any, depth: int) -> Any:
        size = self._draw(st.integers(0, 3)) if depth < 5 else 0
        match schema["type"]:
            case "array":
                return [self.of(schema["items"], depth) for _ in range(size)]
            case "map":
                return {f"k{index}": self.of(schema["values"], depth) for index in range(size)}
            case "record":
                if depth > 12:
                    # A record that always contains itself has no values.
                    self._draw(st.nothing())
                return {each["name"]: self.of(each["type"], depth) for each in schema["fields"]}
            case "enum":
                return self._draw(st.sampled_from(schema["symbols"]))
            case "fixed":
                return self._draw(st.binary(min_size=schema["size"], max_size=schema["size"]))
            case kind:
                return self._draw(PLAIN[kind])


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits), (1 << bits) - 1)


PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": _integers(31),
    "long": _integers(63),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}
_MILLISECOND = datetime.timedelta(milliseconds=1)
_DAY = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1))  # noqa: DTZ001


def _whole(moment: datetime.datetime) -> datetime.datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _utc(moment: datetime.datetime) -> datetime.datetime:
    return moment.replace(tzinfo=datetime.UTC)


PYTHON: dict[str, st.SearchStrategy[Any]] = {
    "date": st.dates(),
    "time-millis": _DAY.map(lambda moment: _whole(moment).time()),
    "time-micros": st.times(),
    "timestamp-millis": _DAY.map(lambda moment: _utc(_whole(moment))),
    "timestamp-micros": _DAY.map(_utc),
    "local-timestamp-micros": _DAY,
    "uuid": st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number)),
    "decimal": st.integers(-(10**12) + 1, 10**12 - 1).map(
        lambda number: decimal.Decimal(number).scaleb(-3)
    ),
}


@st.composite
def evolved(draw: Any, schema: Any) -> Any:
    """A schema after a few changes, compatible or not."""
    result = copy.deepcopy(schema)
    for _ in range(draw(st.integers(1, 3))):
        result = _change(draw, result)
    return result


def _change(draw: Any, schema: Any) -> Any:
    if isinstance(schema, list):
        return _change_union(draw, schema)
    if isinstance(schema, str):
        wider = WIDER.get(schema)
        return draw(st.sampled_from([schema, *wider, ["null", schema]])) if wider else schema
    change = CHANGES.get(schema["type"])
    return change(draw, schema) if change else schema


def _change_enum(draw: Any, enum: Any) -> Any:
    symbols = draw(st.lists(st.sampled_from("ABCDEFG"), min_size=1, unique=True))
    default = enum.get("default")
    return enum | {"symbols": symbols + ([default] if default and default not in symbols else [])}


def _change_union(draw: Any, union: list[Any]) -> list[Any]:
    index = draw(st.integers(0, len(union) - 1))
    changed = _change(draw, union[index])
    if isinstance(changed, list) or changed in union:
        return union[:index] + union[index + 1 :] if len(union) > 1 else union
    kinds = [each["type"] if isinstance(each, dict) else each for each in union]
    if isinstance(changed, str) and changed in kinds:
        return union
    return [*union[:index], changed, *union[index + 1 :]]


def _change_record(draw: Any, record: Any) -> Any:
    fields = list(record["fields"])
    action = draw(st.sampled_from(["add", "remove", "rename", "swap", "inside", "inside"]))
    index = draw(st.integers(0, len(fields) - 1)) if fields else 0
    if action == "add":
        added = {"name": f"n{draw(st.integers(0, 9))}", "type": "int"}
        if draw(st.booleans()):
            added |= {"default": 5}
        if added["name"] not in [each["name"] for each in fields]:
            fields.insert(index, added)
    elif fields and action == "remove":
        # The definition of a name may be gone: the text is then invalid, and the test starts again.
        fields.pop(index)
    elif fields and action == "rename":
        old = fields[index]
        fields[index] = old | {"name": "r" + old["name"], "aliases": [old["name"]]}
    elif fields and action == "swap":
        fields.append(fields.pop(index))
    elif fields:
        changed = _change(draw, fields[index]["type"])
        fields[index] = {key: fields[index][key] for key in fields[index] if key != "default"}
        fields[index] |= {"type": changed}
    return record | {"fields": fields}


CHANGES: dict[str, Any] = {
    "record": _change_record,
    "enum": _change_enum,
    "array": lambda draw, array: array | {"items": _change(draw, array["items"])},
    "map": lambda draw, of_map: of_map | {"values": _change(draw, of_map["values"])},
    "fixed": lambda draw, fixed: fixed | {"size": draw(st.sampled_from([fixed["size"], 5]))},
}
