"""Events as Avro, with schemas that are made from the columns of their table, as by Debezium.

| in PostgreSQL | in Avro |
| --- | --- |
| integers; floats; booleans; bytea | long; double; boolean; bytes |
| timestamp, timestamptz | local-timestamp-micros, timestamp-micros |
| numeric, json and all others | string: the text in JSON events, so that no digit is lost |
| arrays of one dimension | array of nullable elements |

The columns of the key are required in a key, and all other columns are nullable: a delete has only
the key of the old row. When the columns of a table change, its schema gets a new version, so
the registry refuses changes of a column's type. A timestamp outside of the years 1 to 9999, such as
`infinity`, becomes the first or the last microsecond of these years. An unsent long value is
Debezium's placeholder in strings and bytes, and null in other types.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ottla.pipelines.connect.declaring.connector import Routes, routed
from ottla.pipelines.connect.declaring.errors import ConnectorError
from ottla.pipelines.connect.postgres.events import UNAVAILABLE
from ottla.pipelines.connect.postgres.rendering import ColumnType, Kind, RowShape

if TYPE_CHECKING:
    from ottla.clients.schemas.registry_client import RegistryClient

PARTS: Final = ("key", "value")
_NOT_IN_NAMES: Final = re.compile("[^A-Za-z0-9_]")
_UNAVAILABLE: Final = UNAVAILABLE.encode()
_PLACEHOLDER: Final = UNAVAILABLE.strip('"')
_ROWS: Final = ("before", "after")

Read = Callable[[bytes], Any]
"""Returns the Avro value for the JSON of a column that is not null."""


@dataclass(frozen=True, slots=True)
class AvroOptions:
    """Which parts of a record become Avro, and where their schemas are registered. Picklable."""

    parts: frozenset[str]
    registry_url: str
    subject: str | None
    """The subject of values, if it is not the topic's name and `-value`."""
    routes: Routes = ()
    """How the connector's transforms rename the topics."""


class AvroEvents:
    """Encodes keys and values of events. Schemas are registered at their first event."""

    def __init__(self, options: AvroOptions) -> None:
        self.parts = options.parts
        self._options = options
        self._encode_by_shape: dict[tuple[str, RowShape], Callable[[bytes], bytes | None]] = {}

    def encoded(self, part: str, shape: RowShape, text: str | None) -> bytes | None:
        """Return the Avro bytes of a JSON text; None for a tombstone, or a missing key.

        ConnectorError if the registry refuses the schema, or a value has no form in Avro.
        """
        if text is None:
            return None
        place = part, shape
        encode = self._encode_by_shape.get(place)
        if encode is None:
            encode = self._encode_by_shape[place] = self._encoding(part, shape)
        return encode(text.encode())

    def _encoding(self, part: str, shape: RowShape) -> Callable[[bytes], bytes | None]:
        shape = replace(shape, topic=routed(shape.topic, self._options.routes))
        from ottla.clients.records.serializers import complete  # noqa: PLC0415
        from ottla.clients.schemas.registry_calls import (  # noqa: PLC0415
            RegistryError,
            RegistryUnreachableError,
        )
        from ottla.clients.schemas.serializers import SchemaSerializer  # noqa: PLC0415
        from ottla.schemas.schema import Schema  # noqa: PLC0415

        subject = (self._options.subject if part == "value" else None) or f"{shape.topic}-{part}"
        schema = Schema(value_schema(shape) if part == "value" else key_schema(shape))
        serializer = SchemaSerializer(
            schema,
            _registry(self._options.registry_url),
            {"subject.name.strategy": lambda *_: subject},
            part=part,
        )
        try:
            complete(serializer.resolve(shape.topic))
        except (RegistryError, RegistryUnreachableError) as error:
            raise ConnectorError(f"subject {subject}: {error}") from None
        read = _value_reader(shape) if part == "value" else _row_reader(shape)
        return lambda text: serializer.serialize(shape.topic, read(text))


def _registry(url: str) -> "RegistryClient":
    from ottla.clients.schemas.schema_settings import read_registry_settings  # noqa: PLC0415
    from ottla.clients.tables.typed_records import kept_registry  # noqa: PLC0415

    return kept_registry(read_registry_settings({"schema.registry.url": url}, {}))


# -- schemas


def key_schema(shape: RowShape) -> str:
    """Return the Avro schema of the table's keys."""
    names = avro_names(shape)
    fields = [
        {"name": names[name], "type": _avro_type(of)}
        for name, of in shape.columns
        if name in shape.key
    ]
    return _record("Key", fields, namespace=_namespace(shape.topic))


def value_schema(shape: RowShape) -> str:
    """Return the Avro schema of the table's events: an envelope with the row before and after."""
    names = avro_names(shape)
    columns = [
        {"name": names[name], "type": _avro_type(of)}
        if name in shape.key
        else _nullable(names[name], _avro_type(of))
        for name, of in shape.columns
    ]
    row = {"type": "record", "name": "Value", "fields": columns}
    strings = ("connector", "name", "db", "snapshot", "schema", "table")
    source = {
        "type": "record",
        "name": "Source",
        "fields": [
            *({"name": name, "type": "string"} for name in strings),
            {"name": "ts_ms", "type": "long"},
            _nullable("txId", "long"),
            _nullable("lsn", "long"),
        ],
    }
    fields = [
        _nullable("before", row),
        _nullable("after", "Value"),
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": "long"},
    ]
    return _record("Envelope", fields, namespace=_namespace(shape.topic))


def avro_names(shape: RowShape) -> dict[str, str]:
    """Return the fields' names by column; ConnectorError if two columns get the same name."""
    found: dict[str, str] = {}
    for name, _ in shape.columns:
        adjusted = _adjusted(name)
        if adjusted in found.values():
            raise ConnectorError(
                f"{shape.topic}: two columns have the Avro name {adjusted!r}: rename one column"
            )
        found[name] = adjusted
    return found


def _record(name: str, fields: list[dict[str, Any]], *, namespace: str) -> str:
    return json.dumps({"type": "record", "name": name, "namespace": namespace, "fields": fields})


def _namespace(topic: str) -> str:
    return ".".join(map(_adjusted, topic.split(".")))


def _adjusted(name: str) -> str:
    found = _NOT_IN_NAMES.sub("_", name)
    return f"_{found}" if found[:1].isdigit() or not found else found


def _nullable(name: str, of_type: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", of_type], "default": None}


def _avro_type(of: ColumnType) -> Any:
    element = _AVRO_BY_KIND[of.kind]
    return {"type": "array", "items": ["null", element]} if of.is_array else element


_AVRO_BY_KIND: Final[Mapping[Kind, Any]] = {
    Kind.NUMBER: "long",
    Kind.FLOAT: "double",
    Kind.BOOLEAN: "boolean",
    Kind.JSON: "string",
    Kind.BYTES: "bytes",
    Kind.TIMESTAMP: {"type": "long", "logicalType": "local-timestamp-micros"},
    Kind.TIMESTAMP_UTC: {"type": "long", "logicalType": "timestamp-micros"},
    Kind.TEXT: "string",
}


# -- values


def _value_reader(shape: RowShape) -> Read:
    import msgspec  # noqa: PLC0415

    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    row = _row_reader(shape)

    def read(text: bytes) -> dict[str, Any]:
        members = decoder.decode(text)
        return {
            name: _row_of(bytes(raw), row) if name in _ROWS else msgspec.json.decode(raw)
            for name, raw in members.items()
        }

    return read


def _row_of(text: bytes, read: Read) -> Any:
    return None if text == b"null" else read(text)


def _row_reader(shape: RowShape) -> Read:
    """Return the reader of a row, or of a part of it; absent columns are left out."""
    import msgspec  # noqa: PLC0415

    decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    names = avro_names(shape)
    reads = {name: (names[name], _column_reader(name, of)) for name, of in shape.columns}

    def read(text: bytes) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for column, raw in decoder.decode(text).items():
            name, read_column = reads[column]
            found[name] = _row_of(bytes(raw), read_column)
        return found

    return read


def _column_reader(name: str, of: ColumnType) -> Read:
    read = _READ_BY_KIND[of.kind]
    placeholder = None if of.is_array else _PLACEHOLDER_BY_KIND.get(of.kind)
    of_sent = _array_reader(name, of.kind, read) if of.is_array else read
    return lambda raw: placeholder if raw == _UNAVAILABLE else of_sent(raw)


def _array_reader(name: str, kind: Kind, read: Read) -> Read:
    import msgspec  # noqa: PLC0415

    decoder = msgspec.json.Decoder(list[msgspec.Raw])

    def read_array(raw: bytes) -> list[Any]:
        items = list(map(bytes, decoder.decode(raw)))
        if kind is not Kind.JSON and any(item.startswith(b"[") for item in items):
            raise ConnectorError(
                f"column {name}: an array of several dimensions has no Avro type;"
                " write JSON, or declare value.schema"
            )
        return [_row_of(item, read) for item in items]

    return read_array


def _text(raw: bytes) -> str:
    return str(json.loads(raw))


def _float(raw: bytes) -> float:
    return float(raw.strip(b'"'))


def _bytes(raw: bytes) -> bytes:
    return b64decode(_text(raw))


def _timestamp(raw: bytes) -> datetime:
    text = _text(raw)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        is_early = text.startswith("-") or text.endswith("BC")
        return datetime.min if is_early else datetime.max  # noqa: DTZ901 - a wall clock


def _timestamp_utc(raw: bytes) -> datetime:
    found = _timestamp(raw)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


_READ_BY_KIND: Final[Mapping[Kind, Read]] = {
    Kind.NUMBER: int,
    Kind.FLOAT: _float,
    Kind.BOOLEAN: lambda raw: raw == b"true",
    Kind.JSON: lambda raw: raw.decode(),
    Kind.BYTES: _bytes,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMP_UTC: _timestamp_utc,
    Kind.TEXT: _text,
}
_PLACEHOLDER_BY_KIND: Final[Mapping[Kind, Any]] = {
    Kind.JSON: _PLACEHOLDER,
    Kind.TEXT: _PLACEHOLDER,
    Kind.BYTES: _PLACEHOLDER.encode(),
}
