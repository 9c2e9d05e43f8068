"""Serializers and deserializers of values with a schema in a registry.

A serializer registers its schema when a topic gets its first value, and remembers the id. Asking
the registry needs a wait: a synchronous client waits in the calling thread; an asyncio client
awaits `resolve` before it calls `serialize`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.records.serializers import Headers, MissingSchemaError, complete
from ottla.clients.schemas.framing import (
    HEADER_BY_PART,
    PREFIX_BYTES,
    FramingError,
    find_header,
    header_value,
    prefix,
    read_frame,
)
from ottla.clients.schemas.registry_calls import (
    RegisteredSchema,
    RegistryCalls,
    RegistryError,
)
from ottla.clients.schemas.registry_client import AsyncRegistryClient, RegistryClient
from ottla.clients.schemas.schema_settings import FORM, SchemaSettings, read_schema_settings
from ottla.clients.schemas.value_forms import Read, ValueForm, Write, form_of, with_references
from ottla.schemas.parsed_schema import InvalidSchemaError, ParsedSchema
from ottla.schemas.schema import Schema, SchemaType

TOPICS_MAX: Final = 10_000
"""How many topics a serializer remembers, and how many schemas a deserializer."""
REFUSED_MS: Final = 1_000
"""How long a schema that cannot be read is not asked for again."""


@dataclass(frozen=True, slots=True)
class _Encoding:
    """How one topic's values are written."""

    write: Write
    prefix: bytes
    header: tuple[str, bytes] | None
    until_ms: int | None
    """When the latest version is asked for again."""


class SchemaSerializer:
    """Serializes values by the schema of a class, of a text, or of a Protobuf message class.

    `part` is key or value. The registry client stays the caller's.
    """

    def __init__(
        self,
        schema: Any,
        registry: RegistryClient | AsyncRegistryClient,
        settings: Mapping[str, Any] | SchemaSettings | None = None,
        /,
        *,
        part: str = "value",
        **keywords: Any,
    ) -> None:
        if not isinstance(settings, SchemaSettings):
            settings = read_schema_settings(settings, keywords)
        self._form: ValueForm = _form(schema)
        self.name = self._form.name
        if self._form.schema is None and not _is_by_registry(settings):
            raise InvalidClientSettingError(
                f'the {part} is "schema", without a schema to write by: name a class or a Schema, '
                "or set use.latest.version"
            )
        self.part = part
        self.settings = settings
        self._calls: RegistryCalls = registry.calls
        self.is_blocking = isinstance(registry, RegistryClient)
        self._by_topic: dict[str, _Encoding] = {}
        self.adds_header = settings.schema_id_serializer == "header"

    def serialize(self, topic: str, value: Any, headers: Headers = (), /) -> bytes | None:  # noqa: ARG002
        """Return the bytes of a value; None for None, a tombstone."""
        if value is None:
            return None
        encoding = self._by_topic.get(topic)
        if encoding is None or encoding.until_ms is not None:
            encoding = self._current(topic)
        return encoding.write(value, encoding.prefix)

    def header(self, topic: str) -> tuple[str, bytes] | None:
        """Return the header with the schema's GUID; None unless `schema.id.serializer=header`."""
        encoding = self._by_topic.get(topic)
        return None if encoding is None else encoding.header

    def is_resolved(self, topic: str) -> bool:
        """Whether `serialize` needs nothing from the registry."""
        encoding = self._by_topic.get(topic)
        return encoding is not None and not self._is_old(encoding)

    async def resolve(self, topic: str) -> None:
        """Find or register the schema for a topic."""
        encoding = await self._encoding(topic)
        if len(self._by_topic) >= TOPICS_MAX:
            self._by_topic.clear()
        self._by_topic[topic] = encoding

    def _is_old(self, encoding: _Encoding) -> bool:
        return encoding.until_ms is not None and self._calls.now_ms() >= encoding.until_ms

    def _current(self, topic: str) -> _Encoding:
        if self.is_blocking and not self.is_resolved(topic):
            complete(self.resolve(topic))
        if topic not in self._by_topic:
            raise RuntimeError(f"await resolve({topic!r}) first: this registry client is async")
        return self._by_topic[topic]

    async def _encoding(self, topic: str) -> _Encoding:
        own = await self._own_schema()
        found = await self._registered(topic, own)
        schema = found.schema if found.schema.text else own
        assert schema is not None
        write, indexes = self._form.writer(await self._calls.parsed(schema))
        indexes = indexes if schema.type is SchemaType.PROTOBUF else ()
        is_latest = _is_latest(self.settings)
        until_ms = self._calls.now_ms() + self._calls.settings.latest_ttl_ms if is_latest else None
        if not self.adds_header:
            return _Encoding(write, prefix(found.id, indexes), None, until_ms)
        guid = found.guid or (await self._calls.by_id(found.id, None, None)).guid
        if guid is None:
            raise RegistryError(
                200, 200, "the registry gives no GUID: use schema.id.serializer=prefix"
            )
        header = (HEADER_BY_PART[self.part], header_value(guid, indexes))
        return _Encoding(write, b"", header, until_ms)

    async def _own_schema(self) -> Schema | None:
        """Return the form's schema, after its dependencies are registered."""
        versions: dict[str, int] = {}
        for name, schema in self._form.dependencies.items():
            complete_schema = with_references(schema, versions)
            found = await self._find(name, complete_schema)
            version = found.version
            if version is None:
                version = (await self._calls.look_up(name, complete_schema, False, False)).version
            assert version is not None
            versions[name] = version
        own = self._form.schema
        return with_references(own, versions) if own is not None and versions else own

    async def _registered(self, topic: str, own: Schema | None) -> RegisteredSchema:
        settings, calls = self.settings, self._calls
        if settings.use_schema_id is not None:
            return await calls.by_id(settings.use_schema_id, None, None)
        parsed = None if own is None else await calls.parsed(own)
        record_name = None if parsed is None else parsed.record_name
        subject = settings.subject_name_strategy(topic, self.part, record_name)
        if settings.use_latest_with_metadata is not None:
            found = await calls.latest_with_metadata(subject, settings.use_latest_with_metadata)
        elif settings.use_latest_version:
            found = await calls.latest_version(subject, None)
        else:
            assert own is not None
            return await self._find(subject, own)
        if settings.latest_compatibility_strict and parsed is not None:
            _check(subject, await calls.parsed(found.schema), parsed)
        return found

    async def _find(self, subject: str, schema: Schema) -> RegisteredSchema:
        normalize = self.settings.normalize_schemas
        if self.settings.auto_register_schemas:
            return await self._calls.register(subject, schema, normalize)
        return await self._calls.look_up(subject, schema, normalize, False)


def _form(given: Any) -> ValueForm:
    try:
        return form_of(given)
    except TypeError:
        raise InvalidClientSettingError(f"{given!r} is not {FORM.allowed}") from None


def _is_latest(settings: SchemaSettings) -> bool:
    return settings.use_schema_id is None and (
        settings.use_latest_version or settings.use_latest_with_metadata is not None
    )


def _is_by_registry(settings: SchemaSettings) -> bool:
    return settings.use_schema_id is not None or _is_latest(settings)


def _check(subject: str, latest: ParsedSchema, own: ParsedSchema) -> None:
    if latest.type is not own.type:
        raise InvalidSchemaError(
            f"the latest version of {subject} is of type {latest.type}, the values of {own.type}"
        )
    reasons = latest.reading(own)
    if reasons:
        raise InvalidSchemaError(
            f"the latest version of {subject} cannot read these values: "
            f"{'; '.join(row.message for row in reasons[:5])}; register this schema, or set "
            "latest.compatibility.strict=false"
        )


# -- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Refused:
    """A schema that cannot be read, for a moment."""

    reason: str
    until_ms: int


_Key = tuple[int | str, tuple[int, ...]]
"""An id or GUID, and the path of the Protobuf message."""


class SchemaDeserializer:
    """Deserializes values by their writer's schema, into objects of a class or plain values.

    `deserialize` blocks for an unknown schema, if the registry client is synchronous. Consumers
    call `deserialize_known`, which never waits.
    """

    def __init__(
        self,
        schema: Any,
        registry: RegistryClient | AsyncRegistryClient,
        *,
        part: str = "value",
    ) -> None:
        self._form = _form(schema)
        self.name = self._form.name
        self.part = part
        self._calls: RegistryCalls = registry.calls
        self._is_blocking = isinstance(registry, RegistryClient)
        self._by_id: dict[bytes, Read] = {}
        """By the first five bytes, for types without message paths: the fast case."""
        self._by_key: dict[_Key, Read | _Refused] = {}
        self._type_by_schema: dict[int | str, SchemaType] = {}

    def deserialize(self, topic: str, data: bytes, headers: Headers = (), /) -> Any:
        """Return the value; ValueError if the bytes do not fit their schema."""
        while True:
            try:
                return self.deserialize_known(topic, data, headers)
            except MissingSchemaError as missing:
                if not self._is_blocking:
                    raise
                complete(missing.fetch())

    def deserialize_known(self, topic: str, data: bytes, headers: Headers, /) -> Any:
        """Return the value; MissingSchemaError, which can fetch the schema, if it is not known."""
        if not headers or find_header(headers, self.part) is None:
            read = self._by_id.get(data[:PREFIX_BYTES])
            if read is not None:
                return read(data, PREFIX_BYTES)
        return self._deserialize(topic, data, headers)

    def _deserialize(self, topic: str, data: bytes, headers: Headers) -> Any:
        frame = read_frame(data, headers, self.part, has_indexes=False)
        schema_id: int | str = frame.id if frame.guid is None else frame.guid  # type: ignore[assignment]
        schema_type = self._type_by_schema.get(schema_id)
        if schema_type is SchemaType.PROTOBUF:
            frame = read_frame(data, headers, self.part, has_indexes=True)
        key = (schema_id, frame.indexes)
        found = self._by_key.get(key)
        if isinstance(found, _Refused):
            if self._calls.now_ms() < found.until_ms:
                raise ValueError(found.reason)
            found = None
        if found is None:
            raise MissingSchemaError(
                f"topic {topic!r}: the schema {schema_id} is not known yet",
                self.part,
                lambda: self._fetch(topic, data, headers, schema_id),
            )
        return found(data, frame.payload_start)

    async def _fetch(self, topic: str, data: bytes, headers: Headers, schema_id: int | str) -> None:
        """Fetch and parse a schema; a refusal is remembered for a moment, and not raised here."""
        key: _Key = (schema_id, ())
        try:
            if isinstance(schema_id, int):
                found = await self._calls.by_id(schema_id, None, None)
            else:
                found = await self._calls.by_guid(schema_id, None)
            is_protobuf = found.schema.type is SchemaType.PROTOBUF
            frame = read_frame(data, headers, self.part, has_indexes=is_protobuf)
            key = (schema_id, frame.indexes)
            writer = await self._calls.parsed(found.schema)
            own = self._form.schema
            parsed = None if own is None else await self._parsed(own)
            read = self._form.reader(writer, parsed, frame.indexes)
        except (RegistryError, InvalidSchemaError, FramingError) as error:
            reason = f"topic {topic!r}: the schema {schema_id} cannot be used: {error}"
            self._remember(key, _Refused(reason, self._calls.now_ms() + REFUSED_MS))
            return
        self._type_by_schema[schema_id] = found.schema.type
        self._remember(key, read)
        if not is_protobuf and frame.payload_start == PREFIX_BYTES:
            self._by_id[bytes(data[:PREFIX_BYTES])] = read

    async def _parsed(self, own: Schema) -> ParsedSchema | None:
        """Parse the form's schema; generated Protobuf messages need none."""
        return None if self._form.dependencies else await self._calls.parsed(own)

    def _remember(self, key: _Key, found: Read | _Refused) -> None:
        if len(self._by_key) >= TOPICS_MAX:
            self._by_key.clear()
            self._by_id.clear()
        self._by_key[key] = found
