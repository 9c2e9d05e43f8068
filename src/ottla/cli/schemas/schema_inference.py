"""Finds a schema for JSON values: Avro or JSON Schema.

Texts that are all timestamps, dates or UUIDs get that type. A member that some objects lack, or
that is null, is optional. An object with very many different members is a map.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

from ottla.cli.support.exit_codes import CommandError
from ottla.schemas.schema import Schema, SchemaType
from ottla.wire.records.consumer_record import ConsumerRecord

MEMBERS_MAX: Final = 200
"""An object with more different members is a map."""
DEPTH_MAX: Final = 50
LONG_BITS: Final = 63
FILE_BYTES_MAX: Final = 256 << 20
TAKEN_MAX: Final = 2_000
"""The most records to take at once."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_TIMESTAMP: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_AVRO_TYPE_BY_FORM: Final[dict[str, Any]] = {
    "date-time": {"type": "long", "logicalType": "timestamp-micros"},
    "date": {"type": "int", "logicalType": "date"},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "": "string",
}


@dataclass(slots=True)
class ObservedValues:
    """The kinds of the values at one place, and the places inside."""

    kinds: set[str] = field(default_factory=set)
    """Of null, boolean, integer, number, string, array and object."""
    forms: set[str] = field(default_factory=set)
    """Of the texts: date-time, date, uuid, or the empty text for all others."""
    is_long: bool = True
    """Whether all integers have 64 bits."""
    items: "ObservedValues | None" = None
    members: dict[str, "ObservedValues"] = field(default_factory=dict)
    count_by_member: dict[str, int] = field(default_factory=dict)
    object_count: int = 0
    values: "ObservedValues | None" = None
    """Of a map: then there are no members."""

    def add(self, value: Any, depth: int = 0) -> None:
        """Take one value into account; CommandError if it is nested too deep."""
        if depth > DEPTH_MAX:
            raise CommandError(f"the values have more than {DEPTH_MAX} levels")
        match value:
            case None:
                self.kinds.add("null")
            case bool():
                self.kinds.add("boolean")
            case int():
                self.kinds.add("integer")
                self.is_long = self.is_long and value.bit_length() <= LONG_BITS
            case float():
                self.kinds.add("number")
            case str():
                self.kinds.add("string")
                self.forms.add(_form_of(value))
            case list():
                self._add_items(value, depth)
            case _:
                self._add_members(value, depth)

    def _add_items(self, values: list[Any], depth: int) -> None:
        self.kinds.add("array")
        self.items = self.items or ObservedValues()
        for value in values:
            self.items.add(value, depth + 1)

    def _add_members(self, members: dict[str, Any], depth: int) -> None:
        self.kinds.add("object")
        self.object_count += 1
        for name, value in members.items():
            if self.values is None and name not in self.members:
                self._add_member(name)
            if self.values is not None:
                self.values.add(value, depth + 1)
                continue
            self.members[name].add(value, depth + 1)
            self.count_by_member[name] += 1

    def _add_member(self, name: str) -> None:
        if len(self.members) < MEMBERS_MAX:
            self.members[name], self.count_by_member[name] = ObservedValues(), 0
            return
        self.values = ObservedValues()
        for member in self.members.values():
            self.values.merge(member)
        self.members.clear()

    def merge(self, other: "ObservedValues") -> None:
        """Take the values of another place into account."""
        self.kinds |= other.kinds
        self.forms |= other.forms
        self.is_long = self.is_long and other.is_long
        self.object_count += other.object_count
        for name in ("items", "values"):
            theirs = getattr(other, name)
            if theirs is not None:
                ours = getattr(self, name) or ObservedValues()
                ours.merge(theirs)
                setattr(self, name, ours)
        for name, member in other.members.items():
            if self.values is None and name not in self.members:
                self._add_member(name)
            target = self.members[name] if self.values is None else self.values
            target.merge(member)
            if self.values is None:
                self.count_by_member[name] += other.count_by_member[name]

    def is_optional(self, name: str) -> bool:
        """Whether an object lacks a member."""
        return self.count_by_member[name] < self.object_count

    @property
    def form(self) -> str:
        """The form that all texts have; empty if there is none."""
        return next(iter(self.forms)) if len(self.forms) == 1 else ""


def _form_of(text: str) -> str:
    if _UUID.fullmatch(text):
        return "uuid"
    try:
        if _TIMESTAMP.fullmatch(text):
            datetime.fromisoformat(text)
            return "date-time"
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return "date"
    except ValueError:
        pass
    return ""


def infer(values: Iterable[Any], schema_type: SchemaType, name: str) -> Schema:
    """Return a schema that all values fit; CommandError if there is no value."""
    observed = ObservedValues()
    for value in values:
        observed.add(value)
    if not observed.kinds:
        raise CommandError("there is no value to infer a schema from")
    if schema_type is SchemaType.AVRO:
        document = _AvroNames().type_of(observed, _record_name(name))
    else:
        draft = "http://json-schema.org/draft-07/schema#"
        document = {"$schema": draft, "title": _record_name(name), **_json_schema(observed)}
    return Schema(json.dumps(document, indent=2, ensure_ascii=False), schema_type)


def _record_name(text: str) -> str:
    """Return `OrderLines` for `order-lines`."""
    words = re.split(r"[^A-Za-z0-9]+", text)
    made = "".join(word[:1].upper() + word[1:] for word in words)
    return made if _NAME.fullmatch(made) else f"Record{made}"


# -- Avro -----------------------------------------------------------------------------------------


class _AvroNames:
    """Makes Avro types; every record gets a name of its own."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def type_of(self, found: ObservedValues, name: str, *, is_optional: bool = False) -> Any:
        """Return the type of the values at one place; null is its first branch."""
        branches: list[Any] = []
        if is_optional or not found.kinds - {"null"} or "null" in found.kinds:
            branches.append("null")
        if "boolean" in found.kinds:
            branches.append("boolean")
        if "number" in found.kinds or ("integer" in found.kinds and not found.is_long):
            branches.append("double")
        elif "integer" in found.kinds:
            branches.append("long")
        if "string" in found.kinds:
            # Beside a number, a logical type of a number would be ambiguous.
            form = found.form if not found.kinds & {"integer", "number"} else ""
            branches.append(_AVRO_TYPE_BY_FORM[form])
        if "array" in found.kinds:
            items = found.items or ObservedValues()
            branches.append({"type": "array", "items": self.type_of(items, f"{name}Item")})
        if "object" in found.kinds:
            branches.append(self._object(found, name))
        if branches == ["null"]:
            branches.append("string")
        return branches[0] if len(branches) == 1 else branches

    def _object(self, found: ObservedValues, name: str) -> Any:
        if found.values is not None:
            return {"type": "map", "values": self.type_of(found.values, f"{name}Value")}
        own, number = name, 1
        while own in self._names:
            number += 1
            own = f"{name}{number}"
        self._names.add(own)
        return {
            "type": "record",
            "name": own,
            "fields": [self._field(found, member, own) for member in found.members],
        }

    def _field(self, found: ObservedValues, member: str, owner: str) -> dict[str, Any]:
        if not _NAME.fullmatch(member):
            raise CommandError(f"{member!r} cannot be the name of an Avro field: give --type json")
        inner = found.members[member]
        is_optional = found.is_optional(member)
        made = self.type_of(inner, f"{owner}{_record_name(member)}", is_optional=is_optional)
        is_nullable = isinstance(made, list) and made[0] == "null"
        default = {"default": None} if is_nullable else {}
        return {"name": member, "type": made, **default}


# -- JSON Schema ----------------------------------------------------------------------------------


def _json_schema(found: ObservedValues) -> dict[str, Any]:
    kinds = set(found.kinds)
    if kinds == {"null"}:
        return {}  # nothing is known of the values
    if "number" in kinds:
        kinds.discard("integer")
    made: dict[str, Any] = {}
    if kinds:
        made["type"] = next(iter(kinds)) if len(kinds) == 1 else sorted(kinds)
    if "string" in kinds and found.form:
        made["format"] = found.form
    if found.items is not None and found.items.kinds:
        made["items"] = _json_schema(found.items)
    if found.values is not None:
        made["additionalProperties"] = _json_schema(found.values)
    elif "object" in kinds:
        made["properties"] = {name: _json_schema(member) for name, member in found.members.items()}
        required = [name for name in found.members if not found.is_optional(name)]
        if required:
            made["required"] = required
    return made


# -- samples ------------------------------------------------------------------------------------


class JsonSample:
    """Takes the JSON values of records until there are enough."""

    def __init__(self, count_max: int, part: str) -> None:
        self.values: list[Any] = []
        self._count_max = count_max
        self._part = part

    @property
    def is_done(self) -> bool:
        """Whether there are enough values."""
        return len(self.values) >= self._count_max

    @property
    def wanted_max(self) -> int:
        """The largest number of records to take at once."""
        return min(self._count_max - len(self.values), TAKEN_MAX)

    async def take(self, records: Sequence[ConsumerRecord]) -> None:
        """Parse the records; tombstones are left out."""
        for one in records:
            data = one.key if self._part == "key" else one.value
            if data is not None:
                place = f"{one.topic}-{one.partition}, offset {one.offset}"
                self.values.append(_parsed(data, place))


def _parsed(data: bytes, place: str) -> Any:
    if data[:1] == b"\0":
        raise CommandError(f"{place} is not JSON: it begins with the id of a schema in a registry")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{place} is not JSON: {error}") from None


def values_in(path: Path, count: int) -> list[Any]:
    """Return the values of a file: one per line, or of one array over several lines."""
    content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    if len(content) > FILE_BYTES_MAX:
        raise CommandError(f"{path} has more than {FILE_BYTES_MAX} bytes: take a part of it")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        lines = [line for line in content.splitlines() if line.strip()][:count]
        return [_parsed(line, f"{path}, line {at}") for at, line in enumerate(lines, 1)]
    return found[:count] if isinstance(found, list) else [found]
