"""Forms of values: objects of a class, plain values of a schema's text, Protobuf messages.

A form knows its schema, how its values are written with a registered schema, and how they are read
from another version of it.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from ottla.schemas.classes.class_types import RecordType, record_of
from ottla.schemas.classes.declaration import (
    declaration_of,
    is_class_with_schema,
    schema_of_class,
)
from ottla.schemas.parsed_schema import InvalidSchemaError, ParsedSchema
from ottla.schemas.schema import Schema, SchemaReference, SchemaType

Write = Callable[[Any, bytes], bytes]
"""Returns a value's bytes after a prefix."""
Read = Callable[[bytes, int], Any]
"""Returns the value after this many bytes."""
EXTRA: Final = "schemas need packages that are not installed: pip install 'ottla[schemas]'"
_KNOWN_IMPORTS: Final = ("google/protobuf/", "google/type/", "confluent/")
_WRITER_WORD: Final = "schema"


class ValueForm(Protocol):
    """The values that the application sends and receives."""

    @property
    def name(self) -> str:
        """A name for error texts."""
        ...

    @property
    def schema(self) -> Schema | None:
        """The schema of the values; None if each value is read by its writer's schema."""
        ...

    @property
    def dependencies(self) -> Mapping[str, Schema]:
        """Schemas to register before, by name; each refers only to those before it."""
        ...

    def writer(self, schema: ParsedSchema) -> tuple[Write, tuple[int, ...]]:
        """Return how values are written with a schema, and the path of the Protobuf message."""
        ...

    def reader(
        self, writer: ParsedSchema, own: ParsedSchema | None, indexes: tuple[int, ...]
    ) -> Read:
        """Return how values of a writer's schema are read; `own` is this form's parsed schema."""
        ...


def form_of(given: Any) -> ValueForm:
    """Return the form for a class, a Schema, a Protobuf message class, or the word "schema".

    TypeError if it is none of these; InvalidSchemaError if a class has no schema.
    """
    if isinstance(given, Schema):
        return TextForm(given)
    if given == _WRITER_WORD:
        return TextForm(None)
    if isinstance(given, type) and hasattr(given, "DESCRIPTOR"):
        return MessageForm(given)
    if is_class_with_schema(given):
        return ClassForm(given)
    raise TypeError(given)


# -- objects of a class ---------------------------------------------------------------------------


class ClassForm:
    """Objects of a dataclass, msgspec.Struct, pydantic model or TypedDict."""

    dependencies: Final[Mapping[str, Schema]] = {}

    def __init__(self, cls: type) -> None:
        self.name = cls.__name__
        self.schema: Schema | None = schema_of_class(cls)
        self._record = record_of(cls, declaration_of(cls).name)

    def writer(self, schema: ParsedSchema) -> tuple[Write, tuple[int, ...]]:
        """Return how objects are written."""
        match schema.type:
            case SchemaType.AVRO:
                return _avro_object_writer(schema, self._record), ()
            case SchemaType.JSON:
                return _json_object_writer(schema), ()
            case SchemaType.PROTOBUF:
                return _message_object_writer(schema, self._record)

    def reader(
        self, writer: ParsedSchema, own: ParsedSchema | None, indexes: tuple[int, ...]
    ) -> Read:
        """Return how objects are read."""
        match writer.type:
            case SchemaType.AVRO:
                return _avro_object_reader(writer, own, self._record)
            case SchemaType.JSON:
                return _json_object_reader(writer, self._record)
            case SchemaType.PROTOBUF:
                return _message_object_reader(writer, indexes, self._record)


def _avro_object_writer(schema: Any, record: RecordType) -> Write:
    from ottla.schemas.avro.avro_values import AvroWriter  # noqa: PLC0415
    from ottla.schemas.classes.conversions import to_plain  # noqa: PLC0415
    from ottla.schemas.classes.object_plan import NoPlanError, plan  # noqa: PLC0415
    from ottla.schemas.classes.objects import Objects  # noqa: PLC0415

    try:
        root = plan(schema.root, record)
    except NoPlanError:
        root = None
    if root is not None and is_writable(root):
        return Objects(root).encode
    writer = AvroWriter(schema)
    namespace = (schema.record_name or "").rpartition(".")[0]
    return lambda value, prefix: writer.write(to_plain(record, value, namespace), prefix)


def is_writable(root: Any) -> bool:
    """Whether a plan can write: every record has all fields, every union and enum all values."""
    seen, left = set(), [root]
    while left:
        step = left.pop()
        if id(step) not in seen:
            seen.add(id(step))
            left += step.children
            if not step.is_writable:
                return False
    return True


def _avro_object_reader(writer: Any, own: Any, record: RecordType) -> Read:
    from ottla.schemas.avro.avro_values import AvroReader  # noqa: PLC0415
    from ottla.schemas.classes.conversions import from_plain  # noqa: PLC0415
    from ottla.schemas.classes.object_plan import NoPlanError, plan  # noqa: PLC0415
    from ottla.schemas.classes.objects import Objects  # noqa: PLC0415

    try:
        return Objects(plan(writer.root, record)).decode
    except NoPlanError:
        pass
    is_same_type = own is not None and own.type is SchemaType.AVRO
    reader = AvroReader(writer, own if is_same_type else writer)
    return lambda data, start: from_plain(record, reader.read(data, start))


def _json_object_writer(schema: Any) -> Write:
    from ottla.schemas.classes.conversions import to_json_plain  # noqa: PLC0415
    from ottla.schemas.json_schema.json_values import JsonWriter  # noqa: PLC0415

    writer = JsonWriter(schema)
    return lambda value, prefix: prefix + writer.write(to_json_plain(value))


def _json_object_reader(writer: Any, record: RecordType) -> Read:
    from ottla.schemas.classes.conversions import from_json_plain  # noqa: PLC0415
    from ottla.schemas.json_schema.json_values import JsonReader  # noqa: PLC0415

    reader = JsonReader(writer)
    return lambda data, start: from_json_plain(record, reader.read(memoryview(data)[start:]))


def _message_object_writer(schema: Any, record: RecordType) -> tuple[Write, tuple[int, ...]]:
    from ottla.schemas.classes.conversions import to_message  # noqa: PLC0415

    indexes = _indexes_named(schema, record.name)
    message_class = schema.message_class(schema.message(indexes))

    def write(value: Any, prefix: bytes) -> bytes:
        encoded: bytes = to_message(record, value, message_class()).SerializeToString()
        return prefix + encoded

    return write, indexes


def _message_object_reader(writer: Any, indexes: tuple[int, ...], record: RecordType) -> Read:
    from ottla.schemas.classes.conversions import from_message  # noqa: PLC0415

    message_class = _message_class(writer, indexes)
    return lambda data, start: from_message(record, _parsed(message_class, data, start))


def _indexes_named(schema: Any, name: str) -> tuple[int, ...]:
    """Return the path of the first top-level message with a name, else of the first message."""
    for index, message in enumerate(schema.descriptor.message_type):
        if message.name == name:
            return (index,)
    return (0,)


def _message_class(schema: Any, indexes: tuple[int, ...]) -> Any:
    try:
        return schema.message_class(schema.message(indexes))
    except KeyError:
        raise InvalidSchemaError(f"the schema has no Protobuf message at {list(indexes)}") from None


def _parsed(message_class: Any, data: bytes, start: int) -> Any:
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    try:
        return message_class.FromString(data[start:])
    except DecodeError as error:
        raise ValueError(f"the bytes are no message: {error}") from None


# -- plain values of a schema's text --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextForm:
    """Dicts, lists and scalars of a schema; without a schema, of each writer's schema."""

    schema: Schema | None

    @property
    def name(self) -> str:
        """A name for error texts."""
        return "a schema" if self.schema is None else f"a schema of type {self.schema.type}"

    @property
    def dependencies(self) -> Mapping[str, Schema]:
        """None: the Schema has its references."""
        return {}

    def writer(self, schema: Any) -> tuple[Write, tuple[int, ...]]:
        """Return how plain values are written."""
        match schema.type:
            case SchemaType.AVRO:
                from ottla.schemas.avro.avro_values import AvroWriter  # noqa: PLC0415

                return AvroWriter(schema).write, ()
            case SchemaType.JSON:
                return _json_object_writer(schema), ()
            case _:
                return _protobuf_writer(schema), (0,)

    def reader(self, writer: Any, own: Any, indexes: tuple[int, ...]) -> Read:
        """Return how plain values are read: by the own schema, if its type is the writer's."""
        reader = own if own is not None and own.type is writer.type else writer
        match writer.type:
            case SchemaType.AVRO:
                from ottla.schemas.avro.avro_values import AvroReader  # noqa: PLC0415

                return AvroReader(writer, reader).read
            case SchemaType.JSON:
                from ottla.schemas.json_schema.json_values import JsonReader  # noqa: PLC0415

                json_reader = JsonReader(reader)
                return lambda data, start: json_reader.read(memoryview(data)[start:])
            case _:
                return _protobuf_reader(writer, indexes)


def _protobuf_writer(schema: Any) -> Write:
    """Write dicts in Protobuf's JSON form as the file's first message."""
    from ottla.schemas.protobuf.protobuf_values import message_from_dict  # noqa: PLC0415

    def write(value: Any, prefix: bytes) -> bytes:
        encoded: bytes = message_from_dict(schema, value).SerializeToString()
        return prefix + encoded

    return write


def _protobuf_reader(writer: Any, indexes: tuple[int, ...]) -> Read:
    from ottla.schemas.protobuf.protobuf_values import dict_of  # noqa: PLC0415

    message_class = _message_class(writer, indexes)
    return lambda data, start: dict_of(_parsed(message_class, data, start), writer)


# -- generated Protobuf messages ------------------------------------------------------------------


class MessageForm:
    """Messages of a class that protoc has generated."""

    def __init__(self, message_class: Any) -> None:
        self._class = message_class
        descriptor = message_class.DESCRIPTOR
        self.name: str = descriptor.full_name
        self.dependencies: Mapping[str, Schema] = _imports_of(descriptor.file)
        self.schema: Schema | None = Schema(_serialized(descriptor.file), SchemaType.PROTOBUF)

    def writer(self, schema: Any) -> tuple[Write, tuple[int, ...]]:
        """Return how messages are written."""
        message_class = self._class
        try:
            indexes = schema.indexes(self.name)
        except KeyError:
            raise InvalidSchemaError(f"the schema has no message {self.name}") from None

        def write(value: Any, prefix: bytes) -> bytes:
            if not isinstance(value, message_class):
                raise TypeError(f"{type(value).__name__} is not {message_class.__name__}")
            encoded: bytes = value.SerializeToString()
            return prefix + encoded

        return write, indexes

    def reader(
        self,
        writer: ParsedSchema,  # noqa: ARG002 - Protobuf needs only the reader's fields
        own: ParsedSchema | None,  # noqa: ARG002
        indexes: tuple[int, ...],  # noqa: ARG002
    ) -> Read:
        """Return how messages are read."""
        return lambda data, start: _parsed(self._class, data, start)


def _imports_of(file: Any) -> dict[str, Schema]:
    """Return the imported files that a registry does not know, each after its own imports."""
    found: dict[str, Schema] = {}
    for imported in file.dependencies:
        if not imported.name.startswith(_KNOWN_IMPORTS):
            found |= _imports_of(imported)
            found[imported.name] = Schema(_serialized(imported), SchemaType.PROTOBUF)
    return found


def _serialized(file: Any) -> str:
    return base64.b64encode(file.serialized_pb).decode()


def with_references(schema: Schema, version_by_name: Mapping[str, int]) -> Schema:
    """Return a schema that refers to registered files; the subject has the name of the file."""
    rows = tuple(SchemaReference(name, name, row) for name, row in version_by_name.items())
    return replace(schema, references=rows)
