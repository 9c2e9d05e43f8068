"""Random Avro schemas, data that fits them, and changes that a reader's schema may have."""

from copy import deepcopy
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

Schema = Any
_INT = st.integers(-(2**31), 2**31 - 1)
_LONG = st.integers(-(2**63), 2**63 - 1)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_DATES = (datetime.combine(date(1970, 1, 2), time()), datetime.combine(date(2200, 1, 1), time()))

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": _INT,
    "long": _LONG,
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=12),
    "string": _TEXT,
    "date": st.dates(date(1900, 1, 1), date(2200, 1, 1)),
    "time-millis": st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    "time-micros": st.times(),
    "timestamp-millis": st.datetimes(*_DATES, timezones=st.just(UTC)).map(
        lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
    ),
    "timestamp-micros": st.datetimes(*_DATES, timezones=st.just(UTC)),
    "local-timestamp-micros": st.datetimes(*_DATES),
    "uuid": st.uuids(),
}
_LOGICAL = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "local-timestamp-micros": "long",
    "uuid": "string",
}
_PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
# Branches that fastavro tells apart by the type of the value, and does not promote to each other.
_UNION_BRANCHES = ["null", "boolean", "long", "string", "array", "record"]
_PROMOTIONS = {
    "int": ["long", "float", "double"],
    "long": ["double"],
    "float": ["double"],
    "string": ["bytes"],
}


@st.composite
def records(draw: st.DrawFn) -> Schema:
    """Draw a record without equal names in it."""
    return draw(_record(count(), 3))


@st.composite
def _record(draw: st.DrawFn, numbers: Any, levels: int) -> Schema:
    fields = [
        {"name": f"field{position}", "type": draw(_type(numbers, levels - 1))}
        for position in range(draw(st.integers(0, 4)))
    ]
    return {"type": "record", "name": f"Record{next(numbers)}", "fields": fields}


@st.composite
def _type(draw: st.DrawFn, numbers: Any, levels: int) -> Schema:  # noqa: C901, PLR0911, PLR0912
    kinds = ["primitive", "primitive", "logical", "decimal", "fixed", "enum"]
    if levels:
        kinds += ["array", "map", "record", "optional", "union"]
    match draw(st.sampled_from(kinds)):
        case "primitive":
            return draw(st.sampled_from(_PRIMITIVES))
        case "logical":
            name = draw(st.sampled_from(sorted(_LOGICAL)))
            return {"type": _LOGICAL[name], "logicalType": name}
        case "decimal":
            precision = draw(st.integers(1, 60))
            scale = draw(st.integers(0, precision))
            named = {"logicalType": "decimal", "precision": precision, "scale": scale}
            if draw(st.booleans()):
                return {"type": "bytes", **named}
            return {"type": "fixed", "name": f"Fixed{next(numbers)}", "size": 26, **named}
        case "fixed":
            size = draw(st.integers(0, 5))
            return {"type": "fixed", "name": f"Fixed{next(numbers)}", "size": size}
        case "enum":
            return {"type": "enum", "name": f"Enum{next(numbers)}", "symbols": ["A", "B", "C"]}
        case "array":
            return {"type": "array", "items": draw(_type(numbers, levels - 1))}
        case "map":
            return {"type": "map", "values": draw(_type(numbers, levels - 1))}
        case "record":
            return draw(_record(numbers, levels))
        case "optional":
            inner = draw(_type(numbers, levels - 1).filter(_may_be_optional))
            return draw(st.permutations(["null", inner]))
        case _:
            names = draw(st.lists(st.sampled_from(_UNION_BRANCHES), min_size=1, unique=True))
            return [draw(_branch(name, numbers, levels)) for name in names]


@st.composite
def _branch(draw: st.DrawFn, name: str, numbers: Any, levels: int) -> Schema:
    if name == "array":
        return {"type": "array", "items": draw(_type(numbers, levels - 1))}
    return draw(_record(numbers, levels)) if name == "record" else name


def _may_be_optional(schema: Schema) -> bool:
    return not isinstance(schema, list) and schema != "null"


def values(schema: Schema) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one for each type
    """Draw data that fits a schema."""
    if isinstance(schema, list):
        return st.one_of([values(branch) for branch in schema])
    if isinstance(schema, str):
        return _VALUES[schema]
    if schema.get("logicalType") == "decimal":
        limit = 10 ** schema["precision"] - 1
        return st.integers(-limit, limit).map(lambda n: _decimal(n, schema["scale"]))
    if schema.get("logicalType"):
        return _VALUES[schema["logicalType"]]
    match schema["type"]:
        case "record":
            return st.fixed_dictionaries({f["name"]: values(f["type"]) for f in schema["fields"]})
        case "array":
            return st.lists(values(schema["items"]), max_size=3)
        case "map":
            return st.dictionaries(_TEXT, values(schema["values"]), max_size=3)
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
        case _:
            return st.sampled_from(schema["symbols"])


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


@st.composite
def evolved(draw: st.DrawFn, schema: Schema) -> Schema:
    """Draw a reader's schema that can read data of a writer's schema."""
    return draw(_evolved(deepcopy(schema), "field"))


@st.composite
def _evolved(draw: st.DrawFn, schema: Schema, place: str) -> Schema:
    if isinstance(schema, list):
        return schema
    if isinstance(schema, str):
        kind = draw(st.sampled_from([schema, *_PROMOTIONS.get(schema, [])]))
        return ["null", kind] if kind != "null" and draw(st.booleans()) else kind
    if schema["type"] == "record":
        return draw(_evolved_record(schema))
    if schema["type"] == "array" and not isinstance(schema["items"], list):
        schema["items"] = draw(_evolved(schema["items"], place))
    elif schema["type"] == "enum":
        schema["symbols"] = draw(st.permutations(["A", "B", "D"]))
        schema["default"] = "D"
    return schema


@st.composite
def _evolved_record(draw: st.DrawFn, record: Schema) -> Schema:
    fields = []
    for field in record["fields"]:
        match draw(st.sampled_from(["keep", "keep", "drop", "rename"])):
            case "keep":
                fields.append({**field, "type": draw(_evolved(field["type"], field["name"]))})
            case "rename":
                renamed = {"name": f"new_{field['name']}", "aliases": [field["name"]]}
                fields.append({**field, **renamed})
    added: list[Schema] = [
        {"name": "added_long", "type": "long", "default": -300},
        {"name": "added_text", "type": ["null", "string"], "default": None},
        {"name": "added_list", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
    ]
    fields += draw(st.lists(st.sampled_from(added), unique_by=lambda field: field["name"]))
    return {**record, "fields": draw(st.permutations(fields))}


def arrow_value(schema: Schema, value: Any) -> Any:  # noqa: PLR0911 - one for each type
    """Return a value that fastavro has read as pyarrow shows it in a column of ours."""
    if isinstance(schema, list):
        return _union_value(schema, value)
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "record":
            return {f["name"]: arrow_value(f["type"], value[f["name"]]) for f in schema["fields"]}
        case "array":
            return [arrow_value(schema["items"], item) for item in value]
        case "map":
            return [(key, arrow_value(schema["values"], item)) for key, item in value.items()]
        case "bytes" if isinstance(value, str):
            return value.encode()
        case "float" | "double":
            return float(value)
        case _:
            return str(value) if isinstance(value, UUID) else value


def _union_value(union: list[Schema], value: Any) -> Any:
    branches = [branch for branch in union if branch != "null"]
    if value is None or not branches:
        return None
    if len(branches) == 1:
        return arrow_value(branches[0], value)
    kinds = {bool: "boolean", int: "long", str: "string", list: "array"}
    kind = kinds.get(type(value), "record")
    return {
        f"member{position}": arrow_value(branch, value) if _kind(branch) == kind else None
        for position, branch in enumerate(branches)
    }


def _kind(branch: Schema) -> str:
    return branch if isinstance(branch, str) else str(branch["type"])
