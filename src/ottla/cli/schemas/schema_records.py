"""Keys and values of records through a registry: decoded to JSON, and encoded from JSON.

Types that JSON lacks are texts: timestamps, dates and times as ISO 8601, decimals and UUIDs as
digits, bytes in base64, and NaN and infinities by name.
"""

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from ottla.cli.schemas.schema_registry import (
    find_registered,
    is_local,
    load_local,
    register_references,
    registry_settings,
    with_registry,
)
from ottla.cli.support.exit_codes import WrongCallError
from ottla.cli.support.record_format import JsonBytes
from ottla.clients.records.serializers import MissingSchemaError
from ottla.clients.schemas.registry_client import AsyncRegistryClient, RegistryClient
from ottla.clients.schemas.schema_settings import SchemaSettings
from ottla.clients.schemas.serializers import SchemaDeserializer, SchemaSerializer
from ottla.schemas.avro.avro_parser import branch_name
from ottla.schemas.avro.avro_schema import AvroSchema
from ottla.schemas.avro.avro_types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enum,
    Fixed,
    Kind,
    Map,
    Primitive,
    Record,
    Union,
)
from ottla.schemas.parsed_schema import ParsedSchema
from ottla.schemas.schema import Schema
from ottla.wire.records.consumer_record import ConsumerRecord

PARTS: Final = ("key", "value")
_FLOAT_BY_NAME: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BITS: Final = {Kind.INT: 31, Kind.LONG: 63}


class UnfitRecordError(ValueError):
    """A record does not fit its schema; the message has the place."""


def parse_parts(words: str | None) -> tuple[str, ...]:
    """Read `value`, `key` or `key,value`; anything else is a wrong call."""
    parts = tuple(word.strip() for word in (words or "").split(",") if word.strip())
    if any(part not in PARTS for part in parts):
        raise WrongCallError(f"--decode is value, key, or key,value, not {words!r}")
    return parts


@dataclass(frozen=True, slots=True)
class PartSchema:
    """The schema of keys or of values, from the command line."""

    part: str
    schema: Schema
    parsed: ParsedSchema
    id: int | None
    """None for a local schema, which is registered when a topic gets its first record."""


def part_schemas(
    url: str, key: str | None, value: str | None, *, is_registering: bool
) -> list[PartSchema]:
    """Load the schemas of --key-schema and --value-schema.

    Each is a file, a class, a subject, `subject@version` or an id. Referenced files are registered,
    if a record is going to be written.
    """
    given = [(part, word) for part, word in zip(PARTS, (key, value), strict=True) if word]
    if not given:
        return []

    def load(client: RegistryClient) -> list[PartSchema]:
        return [_load_part(client, part, word, is_registering) for part, word in given]

    return with_registry(url, load)


def _load_part(client: RegistryClient, part: str, word: str, is_registering: bool) -> PartSchema:
    if not is_local(word):
        found = find_registered(client, f"id:{word}" if word.isdecimal() else word)
        return PartSchema(part, found.schema, client.parsed(found.schema), found.id)
    local = load_local(word, [])
    references = register_references(client, local) if is_registering else ()
    return PartSchema(part, replace(local.schema, references=references), local.parsed, None)


# -- reading --------------------------------------------------------------------------------------


class RecordDecoder:
    """Decodes parts of records by their writers' schemas. Use it in `async with`."""

    def __init__(self, url: str, parts: Sequence[str], readers: Sequence[PartSchema]) -> None:
        self._client = AsyncRegistryClient(registry_settings(url))
        reader_by_part = {reader.part: reader for reader in readers}
        self._deserializers = {
            part: SchemaDeserializer(
                reader_by_part[part].schema if part in reader_by_part else "schema",
                self._client,
                part=part,
            )
            for part in dict.fromkeys([*parts, *reader_by_part])
        }

    async def __aenter__(self) -> "RecordDecoder":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def decoded(self, record: ConsumerRecord) -> ConsumerRecord:
        """Return a record with JSON; UnfitRecordError if a part cannot be decoded."""
        changed: dict[str, Any] = {}
        for part, deserializer in self._deserializers.items():
            data = getattr(record, part)
            if data is None:
                continue
            try:
                value = await self._value(deserializer, record, data)
            except (ValueError, TypeError) as error:
                place = f"{record.topic}-{record.partition}, offset {record.offset}"
                raise UnfitRecordError(
                    f"{place}: the {part} cannot be decoded: {error}; `--from` and `--to` leave "
                    "records out"
                ) from None
            changed[part] = JsonBytes(json_text(value))
        return record._replace(**changed)

    @staticmethod
    async def _value(deserializer: SchemaDeserializer, record: ConsumerRecord, data: bytes) -> Any:
        while True:
            try:
                return deserializer.deserialize_known(record.topic, data, record.headers)
            except MissingSchemaError as missing:
                await missing.fetch()


def json_text(value: Any) -> bytes:
    """Return a decoded value as JSON on one line."""
    return json.dumps(to_json(value), ensure_ascii=False).encode()


def to_json(value: Any) -> Any:  # noqa: PLR0911 - a row per type
    """Return a decoded value with JSON's types only."""
    match value:
        case dict():
            return {str(name): to_json(inner) for name, inner in value.items()}
        case list() | tuple():
            return [to_json(inner) for inner in value]
        case float() if not math.isfinite(value):
            return next(name for name, one in _FLOAT_BY_NAME.items() if str(one) == str(value))
        case None | bool() | int() | float() | str():
            return value
        case bytes() | bytearray() | memoryview():
            return b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case _:
            return str(value)


# -- writing --------------------------------------------------------------------------------------


class RecordEncoder:
    """Encodes parts of records from JSON. Use it in `async with`."""

    def __init__(self, url: str, schemas: Sequence[PartSchema]) -> None:
        self._client = AsyncRegistryClient(registry_settings(url))
        self._rows = {row.part: (row, _serializer(row, self._client)) for row in schemas}

    async def __aenter__(self) -> "RecordEncoder":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    @property
    def parts(self) -> frozenset[str]:
        """The parts that are encoded."""
        return frozenset(self._rows)

    async def encoded(self, topic: str, part: str, number: int, text: bytes | None) -> bytes | None:
        """Return a part of a record as bytes; UnfitRecordError has the number of the record."""
        row = self._rows.get(part)
        if row is None or text is None:
            return text
        schema, serializer = row
        if not serializer.is_resolved(topic):
            await serializer.resolve(topic)
        try:
            value = json.loads(text)
            if isinstance(schema.parsed, AvroSchema):
                value = from_json(schema.parsed.root, value, "")
            return serializer.serialize(topic, value)
        except json.JSONDecodeError as error:
            reason = f"it is not JSON: {error}"
        except (ValueError, TypeError, RecursionError) as error:
            reason = str(error)
        raise UnfitRecordError(f"record {number}: the {part} does not fit its schema: {reason}")


def _serializer(row: PartSchema, client: AsyncRegistryClient) -> SchemaSerializer:
    if row.id is None:
        return SchemaSerializer(row.schema, client, SchemaSettings(), part=row.part)
    settings = SchemaSettings(auto_register_schemas=False, use_schema_id=row.id)
    return SchemaSerializer("schema", client, settings, part=row.part)


def from_json(kind: AvroType, value: Any, path: str) -> Any:
    """Return the value of an Avro type from JSON; ValueError has the path of the field."""
    match kind:
        case Union():
            return _branch(kind, value, path)
        case Record():
            return _record(kind, value, path)
        case Array():
            items = _typed(value, list, "an array", path)
            return [from_json(kind.items, one, f"{path}/{at}") for at, one in enumerate(items)]
        case Map():
            members = _typed(value, dict, "an object", path)
            return {
                name: from_json(kind.values, one, f"{path}/{name}") for name, one in members.items()
            }
        case Enum():
            if value not in kind.symbols:
                raise _unfit(path, f"{_shown(value)} is none of {', '.join(kind.symbols[:20])}")
            return value
        case Primitive() | Fixed():
            return _scalar(kind, value, path)


def _record(kind: Record, value: Any, path: str) -> dict[str, Any]:
    members = _typed(value, dict, "an object", path)
    field_by_name = {one.name: one for one in kind.fields}
    for name in members:
        if name not in field_by_name:
            known = ", ".join(list(field_by_name)[:20])
            raise _unfit(f"{path}/{name}", f"the schema has no such field: there are {known}")
    for name, one in field_by_name.items():
        if name not in members and one.default is NO_DEFAULT:
            raise _unfit(f"{path}/{name}", "the field is missing and has no default")
    return {
        name: from_json(field_by_name[name].type, one, f"{path}/{name}")
        for name, one in members.items()
    }


def _branch(kind: Union, value: Any, path: str) -> Any:
    """Return the first branch that fits; a value may also name it, as in Avro's JSON."""
    if value is None and any(_is_null(branch) for branch in kind.branches):
        return None
    reasons = []
    for branch in kind.branches:
        try:
            return branch_name(branch), from_json(branch, value, path)
        except ValueError as error:
            if not _is_null(branch):
                reasons.append(error)
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        for branch in kind.branches:
            if branch_name(branch) == name:
                return name, from_json(branch, inner, f"{path}/{name}")
    if len(reasons) == 1:
        raise reasons[0]
    names = ", ".join(map(branch_name, kind.branches))
    raise _unfit(path, f"{_shown(value)} fits no branch of the union: {names}")


def _is_null(kind: AvroType) -> bool:
    return isinstance(kind, Primitive) and kind.kind is Kind.NULL


def _scalar(kind: Primitive | Fixed, value: Any, path: str) -> Any:
    if kind.logical is not None:
        convert = _CONVERT_BY_LOGICAL.get(kind.logical.name)
        if convert is not None and (isinstance(value, str) or kind.logical.name == "decimal"):
            try:
                return convert(value)
            except (ValueError, InvalidOperation):
                raise _unfit(path, f"{_shown(value)} is no {kind.logical.name}") from None
    if isinstance(kind, Fixed) or kind.kind is Kind.BYTES:
        try:
            return b64decode(_typed(value, str, "bytes in base64", path), validate=True)
        except ValueError:
            raise _unfit(path, f"{_shown(value)} is not bytes in base64") from None
    return _primitive(kind.kind, value, path)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(value)  # noqa: TRY004 - the caller has the sentence
    return Decimal(str(value))


_CONVERT_BY_LOGICAL: Final[Mapping[str, Callable[[Any], Any]]] = {
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
    "timestamp-nanos": datetime.fromisoformat,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat,
    "local-timestamp-nanos": datetime.fromisoformat,
    "uuid": UUID,
    "decimal": _decimal,
}


def _primitive(kind: Kind, value: Any, path: str) -> Any:
    match kind:
        case Kind.INT | Kind.LONG:
            number = _typed(value, int, f"an {kind}" if kind is Kind.INT else "a long", path)
            limit = 1 << _BITS[kind]
            if not -limit <= number < limit:
                raise _unfit(path, f"{_shown(value)} is too large for {kind}")
            return number
        case Kind.FLOAT | Kind.DOUBLE:
            found = _FLOAT_BY_NAME.get(value, value) if isinstance(value, str) else value
            return float(_typed(found, (int, float), "a number", path))
        case Kind.BOOLEAN:
            return _typed(value, bool, "a boolean", path)
        case Kind.NULL:
            return _typed(value, type(None), "null", path)
        case _:
            return _typed(value, str, "a string", path)


def _typed(value: Any, kind: Any, expected: str, path: str) -> Any:
    is_number = isinstance(value, bool) and kind is not bool
    if isinstance(value, kind) and not is_number:
        return value
    raise _unfit(path, f"{_shown(value)} is not {expected}")


def _unfit(path: str, reason: str) -> ValueError:
    return ValueError(f"at {path or '/'}: {reason}")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"
