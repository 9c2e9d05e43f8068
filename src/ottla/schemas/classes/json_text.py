"""The JSON Schema of a class. Its values are written by msgspec and pydantic."""

import json
from collections.abc import Mapping
from typing import Any, Final

from ottla.schemas.classes.class_types import (
    NO_DEFAULT,
    NONE,
    Atom,
    AtomType,
    ClassType,
    DecimalType,
    EnumType,
    ListType,
    MapType,
    RecordType,
    UnionType,
)

DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_ATOMS: Final[Mapping[Atom, Mapping[str, Any]]] = {
    Atom.NULL: {"type": "null"},
    Atom.BOOLEAN: {"type": "boolean"},
    Atom.INT: {"type": "integer"},
    Atom.INT32: {"type": "integer"},
    Atom.FLOAT: {"type": "number"},
    Atom.FLOAT32: {"type": "number"},
    Atom.STRING: {"type": "string"},
    Atom.BYTES: {"type": "string", "contentEncoding": "base64"},
    Atom.DATETIME: {"type": "string", "format": "date-time"},
    Atom.DATE: {"type": "string", "format": "date"},
    Atom.TIME: {"type": "string", "format": "time"},
    Atom.UUID: {"type": "string", "format": "uuid"},
}


def json_schema_text(record: RecordType, namespace: str | None) -> str:
    """Return the schema's text.

    Objects are closed, so that a new field with a default is compatible under every policy.
    """
    writer = _Writer()
    written = writer.object(record)
    title = f"{namespace}.{record.name}" if namespace else record.name
    definitions = writer.definitions
    head: dict[str, Any] = {"$schema": DRAFT, "title": title}
    if record.name in definitions:  # it contains itself
        definitions[record.name] = written
        written = {"allOf": [_reference(record.name)]}
    tail = {"definitions": definitions} if definitions else {}
    return json.dumps(head | written | tail, ensure_ascii=False)


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/definitions/{name}"}


class _Writer:
    """Writes one class; the classes and enums inside it become definitions."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        self._open: set[str] = set()

    def object(self, record: RecordType) -> dict[str, Any]:
        self._open.add(record.name)
        properties: dict[str, Any] = {}
        required: list[str] = []
        if record.tag is not None:
            properties[record.tag[0]] = {"const": record.tag[1]}
            required.append(record.tag[0])
        for row in record.fields:
            properties[row.name] = written = self.type(row.type)
            if row.default is NO_DEFAULT:
                required.append(row.name)
            elif "$ref" not in written:
                written["default"] = default_of(row.default)
        made: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            made["required"] = required
        return made | {"additionalProperties": False}

    def type(self, found: ClassType) -> dict[str, Any]:
        match found:
            case AtomType():
                return dict(_ATOMS[found.atom])
            case DecimalType():
                return {"type": "string", "pattern": "^-?[0-9]+(\\.[0-9]+)?([eE][-+]?[0-9]+)?$"}
            case ListType():
                return {"type": "array", "items": self.type(found.item)}
            case MapType():
                return {"type": "object", "additionalProperties": self.type(found.value)}
            case UnionType():
                return self._union(found.branches)
            case EnumType():
                values = [member.value for member in found.cls]
                self.definitions.setdefault(found.name, {"enum": values})
            case RecordType() if found.name in self._open:
                self.definitions.setdefault(found.name, {})
            case RecordType():
                self.definitions[found.name] = self.object(found)
        return _reference(found.name)

    def _union(self, branches: tuple[ClassType, ...]) -> dict[str, Any]:
        word = "oneOf" if len(branches) == 2 and NONE in branches else "anyOf"
        return {word: [self.type(branch) for branch in branches]}


def default_of(value: Any) -> Any:
    """Return a default as JSON, as msgspec and pydantic write it."""
    import msgspec  # noqa: PLC0415 - part of the extra `schemas`

    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return msgspec.to_builtins(value)
