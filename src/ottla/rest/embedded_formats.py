"""Keys and values inside of requests and responses: JSON on this side, a record's bytes there.

    BINARY       base64 in a string
    JSON         any JSON
    STRING       a string; bytes that are not UTF-8 are an error
    AVRO         Avro's JSON encoding, JSONSCHEMA any JSON that fits, PROTOBUF Protobuf's JSON form

The last three have a schema of the registry: its id is before the bytes, in Confluent's wire
format. Null is a record without this part; a null value is a tombstone.
"""

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from ottla.clients.schemas.framing import FramingError, find_header, prefix, read_frame
from ottla.clients.schemas.registry_calls import RegisteredSchema, RegistryError
from ottla.clients.schemas.registry_client import AsyncRegistryClient
from ottla.clients.schemas.subject_names import STRATEGY_NAMES, find_strategy
from ottla.rest.avro_json import avro_from_json, json_from_avro
from ottla.rest.rest_errors import RestError, conversion_failed, short
from ottla.schemas.json_schema.json_text import DEPTH_MAX, TooDeepError, check_depth
from ottla.schemas.parsed_schema import InvalidSchemaError, ParsedSchema
from ottla.schemas.schema import Schema, SchemaType
from ottla.schemas.values import InvalidValueError
from ottla.wire.records.record import RecordHeader

NO_REGISTRY: Final = (
    "This broker has no schema registry: set ottla.schema.registry.listener, or use the formats "
    "binary and json."
)


class DataType(StrEnum):
    """The format of a key or a value."""

    BINARY = "BINARY"
    JSON = "JSON"
    STRING = "STRING"
    AVRO = "AVRO"
    JSONSCHEMA = "JSONSCHEMA"
    PROTOBUF = "PROTOBUF"


TYPE_BY_FORMAT: Final = {
    "binary": DataType.BINARY,
    "json": DataType.JSON,
    "avro": DataType.AVRO,
    "jsonschema": DataType.JSONSCHEMA,
    "protobuf": DataType.PROTOBUF,
}
"""By the word in a content type of version 2."""
SCHEMA_TYPE_BY_TYPE: Final = {
    DataType.AVRO: SchemaType.AVRO,
    DataType.JSONSCHEMA: SchemaType.JSON,
    DataType.PROTOBUF: SchemaType.PROTOBUF,
}
_TYPE_BY_SCHEMA_TYPE: Final = {schema: data for data, schema in SCHEMA_TYPE_BY_TYPE.items()}
_MISSING_CODE_BY_PART: Final = {"key": 42201, "value": 42202}


@dataclass(frozen=True, slots=True)
class SchemaChoice:
    """How a request names the schema of its keys or values; all empty: the subject's latest."""

    type: DataType | None = None
    id: int | None = None
    version: int | None = None
    text: str | None = None
    subject: str | None = None
    strategy: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaWriter:
    """Writes JSON values with a registered schema."""

    type: DataType
    schema_id: int
    subject: str | None
    version: int | None
    write: Callable[[Any], bytes]

    def written(self, value: Any, place: str) -> bytes | None:
        """Return the bytes of a value; RestError 42203 if it does not fit the schema."""
        if value is None:
            return None
        try:
            return self.write(value)
        except (InvalidValueError, RecursionError) as error:
            raise conversion_failed(place, error) from None


@dataclass(frozen=True, slots=True)
class Decoded:
    """A key or value as JSON, and its format."""

    type: DataType | None
    value: Any


def plain_bytes(form: DataType, value: Any, place: str) -> bytes | None:
    """Return the bytes of a value without a schema; RestError 42203 if it is of another form."""
    if value is None:
        return None
    if form is DataType.JSON:
        return msgspec.json.encode(value)
    if not isinstance(value, str):
        raise conversion_failed(place, f"the format {form.value} needs a string")
    if form is DataType.STRING:
        return value.encode(errors="surrogatepass")
    return from_base64(value, place)


def from_base64(text: str, place: str) -> bytes:
    """Return the bytes of base64; RestError 42203 if it is not."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise conversion_failed(place, f"this is not base64: {error}") from None


def to_base64(data: bytes | None) -> str | None:
    """Return bytes as base64."""
    return None if data is None else base64.b64encode(data).decode()


def json_value(data: bytes) -> Any:
    """Return the value of JSON text of bounded depth; InvalidValueError if it is not JSON."""
    try:
        if data.count(b"[") + data.count(b"{") > DEPTH_MAX:
            check_depth(data.decode())
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, TooDeepError, RecursionError) as error:
        raise InvalidValueError(f"this is not JSON: {error}") from None


class Formats:
    """Encodes and decodes, with the schemas of a registry if there is one."""

    def __init__(self, registry: AsyncRegistryClient | None) -> None:
        self._registry = registry

    @property
    def registry(self) -> AsyncRegistryClient:
        """The client of the registry; RestError without one."""
        if self._registry is None:
            raise RestError(42205, NO_REGISTRY)
        return self._registry

    async def writer(self, topic: str, part: str, choice: SchemaChoice) -> SchemaWriter:
        """Find or register the schema of a part, key or value, of a topic's records."""
        found = await self._registered(topic, part, choice)
        wanted = None if choice.type is None else SCHEMA_TYPE_BY_TYPE[choice.type]
        if wanted is not None and found.schema.type is not wanted:
            raise RestError(
                42205,
                f"The schema {found.id} of the {part} is of type {found.schema.type.value}, not "
                f"{wanted.value}.",
            )
        parsed = await self.registry.parsed(found.schema)
        return SchemaWriter(
            _TYPE_BY_SCHEMA_TYPE[found.schema.type],
            found.id,
            found.subject or choice.subject,
            found.version,
            _writing(parsed, found.id),
        )

    async def _registered(self, topic: str, part: str, choice: SchemaChoice) -> RegisteredSchema:
        registry = self.registry
        if choice.id is not None:
            return await registry.schema_by_id(choice.id, subject=choice.subject)
        if choice.text is not None:
            if choice.type is None:
                raise RestError(42206, f"The {part} has a schema and no type.")
            schema = Schema(choice.text, SCHEMA_TYPE_BY_TYPE[choice.type])
            parsed = await registry.parsed(schema)
            return await registry.register(_subject(topic, part, choice, parsed), schema)
        subject = _subject(topic, part, choice, None)
        try:
            if choice.version is not None:
                return await registry.version(subject, choice.version)
            return await registry.latest_version(subject)
        except RegistryError as error:
            raise RestError(
                _MISSING_CODE_BY_PART[part],
                f"The {part} needs a schema, and subject {subject} has none: "
                f"{short(error.message)}",
            ) from None

    async def json_of(
        self,
        form: DataType,
        part: str,
        data: bytes | None,
        headers: Iterable[RecordHeader],
    ) -> Any:
        """Return a key or value as JSON; InvalidValueError if it is not of this format."""
        if data is None:
            return None
        if form is DataType.BINARY:
            return to_base64(data)
        if form is DataType.JSON:
            return json_value(data)
        if form is DataType.STRING:
            return _text(data)
        decoded = await self._with_schema(part, data, headers)
        if decoded.type is not form:
            found = "no schema" if decoded.type is None else f"the type {decoded.type.value}"
            raise InvalidValueError(f"the {part} has {found}, not {form.value}")
        return decoded.value

    async def recognized(
        self, part: str, data: bytes | None, headers: Iterable[RecordHeader]
    ) -> Decoded:
        """Return a key or value in the first format that fits: its schema's, JSON, text, bytes."""
        if data is None:
            return Decoded(None, None)
        try:
            if self._registry is not None and _has_frame(part, data, headers):
                return await self._with_schema(part, data, headers)
        except (InvalidValueError, InvalidSchemaError, RegistryError, OSError):
            pass
        try:
            return Decoded(DataType.JSON, json_value(data))
        except InvalidValueError:
            pass
        try:
            return Decoded(DataType.STRING, _text(data))
        except InvalidValueError:
            return Decoded(DataType.BINARY, to_base64(data))

    async def _with_schema(
        self, part: str, data: bytes, headers: Iterable[RecordHeader]
    ) -> Decoded:
        headers = tuple(headers)
        registry = self.registry
        try:
            frame = read_frame(data, headers, part, has_indexes=False)
            if frame.guid is not None:
                found = await registry.schema_by_guid(frame.guid)
            else:
                assert frame.id is not None
                found = await registry.schema_by_id(frame.id)
            if found.schema.type is SchemaType.PROTOBUF:
                frame = read_frame(data, headers, part, has_indexes=True)
        except FramingError as error:
            raise InvalidValueError(str(error)) from None
        parsed = await registry.parsed(found.schema)
        value = _reading(parsed, memoryview(data)[frame.payload_start :], frame.indexes)
        return Decoded(_TYPE_BY_SCHEMA_TYPE[found.schema.type], value)


def _has_frame(part: str, data: bytes, headers: Iterable[RecordHeader]) -> bool:
    return data[:1] == b"\0" or find_header(headers, part) is not None


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"this is not UTF-8: {error.reason}") from None


def _subject(topic: str, part: str, choice: SchemaChoice, parsed: ParsedSchema | None) -> str:
    if choice.subject is not None:
        return choice.subject
    try:
        strategy = find_strategy(choice.strategy or "TopicNameStrategy")
    except ValueError:
        raise RestError(
            42206, f"There is no subject_name_strategy {choice.strategy!r}: use {STRATEGY_NAMES}."
        ) from None
    try:
        return strategy(topic, part, None if parsed is None else parsed.record_name)
    except ValueError as error:
        raise RestError(42206, short(error)) from None


def _writing(schema: Any, schema_id: int) -> Callable[[Any], bytes]:
    match schema.type:
        case SchemaType.AVRO:
            start = prefix(schema_id)
            return lambda value: start + avro_from_json(schema.root, value)
        case SchemaType.JSON:
            from ottla.schemas.json_schema.json_values import JsonWriter  # noqa: PLC0415

            start, writer = prefix(schema_id), JsonWriter(schema)
            return lambda value: start + writer.write(value)
        case _:
            return _message_writing(schema, schema_id)


def _message_writing(schema: Any, schema_id: int) -> Callable[[Any], bytes]:
    from ottla.schemas.protobuf.protobuf_values import (  # noqa: PLC0415
        message_from_dict,
        message_name_of,
    )

    try:
        name = message_name_of(schema, None)
    except ValueError as error:
        raise RestError(42205, short(error)) from None
    start = prefix(schema_id, schema.indexes(name))

    def write(value: Any) -> bytes:
        if not isinstance(value, dict):
            raise InvalidValueError(f"a message {name} is an object in JSON")
        encoded: bytes = message_from_dict(schema, value, name).SerializeToString()
        return start + encoded

    return write


def _reading(schema: Any, payload: memoryview, indexes: tuple[int, ...]) -> Any:
    match schema.type:
        case SchemaType.AVRO:
            return json_from_avro(schema.root, payload)
        case SchemaType.JSON:
            return json_value(bytes(payload))
        case _:
            from ottla.schemas.protobuf.protobuf_values import (  # noqa: PLC0415
                ProtobufReader,
                dict_of,
            )

            try:
                name = schema.message(indexes)
            except KeyError:
                raise InvalidValueError(f"the schema has no message {list(indexes)}") from None
            return dict_of(ProtobufReader(schema, name).read(payload), schema)
