"""`@ottla.schema(format="avro")`: declares how a class becomes a schema."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from ottla.schemas.classes.avro_text import avro_text
from ottla.schemas.classes.class_types import NAME, RecordType, is_record_class, record_of
from ottla.schemas.classes.json_text import json_schema_text
from ottla.schemas.classes.protobuf_text import protobuf_text
from ottla.schemas.schema import Schema, SchemaType

C = TypeVar("C", bound=type)
_TYPE_BY_FORMAT: Final[Mapping[str, SchemaType]] = {
    "avro": SchemaType.AVRO,
    "json": SchemaType.JSON,
    "jsonschema": SchemaType.JSON,
    "protobuf": SchemaType.PROTOBUF,
}
_WRITE_BY_TYPE: Final[Mapping[SchemaType, Callable[[RecordType, str | None], str]]] = {
    SchemaType.AVRO: avro_text,
    SchemaType.JSON: json_schema_text,
    SchemaType.PROTOBUF: protobuf_text,
}


@dataclass(frozen=True, slots=True)
class Declaration:
    """The language, name and namespace of a class's schema."""

    type: SchemaType = SchemaType.AVRO
    name: str | None = None
    namespace: str | None = None


_declared: Final[WeakKeyDictionary[type, Declaration]] = WeakKeyDictionary()
"""Beside the classes, because a Struct or TypedDict takes no further attributes."""


def schema(
    *,
    format: str = "avro",  # noqa: A002
    name: str | None = None,
    namespace: str | None = None,
) -> Callable[[C], C]:
    """Declare a class as a schema: avro, json or protobuf, maybe under another name.

    InvalidSchemaError, where the class is defined, if a field's type has no place in the schema.
    """
    declaration = Declaration(schema_type_of(format), name, namespace)
    for part in (namespace or "").split(".") if namespace else ():
        if not NAME.fullmatch(part):
            raise ValueError(f"{namespace!r} is not a namespace: expected names and dots")

    def declare(cls: C) -> C:
        _declared[cls] = declaration
        schema_of_class(cls)
        return cls

    return declare


def schema_type_of(word: str) -> SchemaType:
    """Return the type of a schema by its format's name."""
    try:
        return _TYPE_BY_FORMAT[word.lower()]
    except KeyError:
        raise ValueError(f"the format {word!r} is not one of avro, json and protobuf") from None


def is_class_with_schema(given: Any) -> bool:
    """Whether a value is a class that has a schema, declared or not."""
    return is_record_class(given)


def declaration_of(cls: type) -> Declaration:
    """Return the declaration of a class; without a decorator its format is Avro."""
    return _declared.get(cls, Declaration())


def schema_of_class(cls: type) -> Schema:
    """Return the schema of a class; InvalidSchemaError if a field has no place in it."""
    return _schema_of(cls, declaration_of(cls))


@lru_cache(maxsize=256)
def _schema_of(cls: type, declaration: Declaration) -> Schema:
    record = record_of(cls, declaration.name)
    text = _WRITE_BY_TYPE[declaration.type](record, declaration.namespace)
    return Schema(text, declaration.type)
