"""Typed sinks: the columns of a DataFrame become values of a schema in the registry.

A DataFrame has one of two forms. With a struct `value`, its members are the fields, and key, topic,
partition and headers are beside it, as for bytes. Otherwise all columns are fields, except `key`,
`headers`, `partition`, a `topic` that no option replaces, and the columns that begin with an
underscore. Of those, `_key` and `_headers` are written as key and headers: a typed topic can be
copied as it is. The driver registers the schemas, and tasks encode.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.schemas.framing import prefix
from ottla.clients.schemas.registry_calls import RegistryError, RegistryUnreachableError
from ottla.clients.schemas.registry_client import RegistryClient
from ottla.clients.schemas.schema_settings import (
    REGISTRY_SETTINGS,
    RegistrySettings,
    read_registry_settings,
)
from ottla.pipelines.sink.errors import SinkOptionError
from ottla.schemas.parsed_schema import InvalidSchemaError
from ottla.schemas.schema import Schema, SchemaType

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.schemas.arrow.arrow_codec import ArrowEncoder

REGISTRY_NAMES: Final = tuple(row.name for row in REGISTRY_SETTINGS)
ENCODE_NAMES: Final = (
    "encode",
    "encode.key",
    "encode.subject",
    "encode.key.subject",
    "encode.name",
    "auto.register.schemas",
    "use.latest.version",
)
RECORD_COLUMNS: Final = ("key", "headers", "partition", "topic")
_TYPE_BY_WORD: Final = {
    "avro": SchemaType.AVRO,
    "json": SchemaType.JSON,
    "protobuf": SchemaType.PROTOBUF,
}
_HEADERS: Final = "array<struct<key:string,value:binary>>"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.]")


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema in the registry, and the bytes before each of its values."""

    schema: Schema
    prefix: bytes
    message: str | None = None
    """The full name of the Protobuf message."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How rows become keys and values. Picklable."""

    type_by_part: Mapping[str, SchemaType]
    """value, key or both."""
    subject_by_part: Mapping[str, str]
    """The subjects that do not follow from the topic."""
    registry: RegistrySettings
    name: str | None
    """The full name of the value's record; by default the name in the registry, or the topic's."""
    is_registering: bool
    is_latest: bool
    """Whether the values are written by the latest version, and nothing is registered."""
    fields: tuple[str, ...]
    """The columns that are fields of the value; empty if there is a struct `value`."""
    source_by_column: Mapping[str, str]
    """The DataFrame's column of each of key, headers, topic and partition."""
    columns_by_part: Mapping[str, "pa.Schema"]
    registered: Mapping[tuple[str, str], Registered] = field(default_factory=dict)
    """The schemas that the driver has registered, by topic and part."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the DataFrame that are needed."""
        return (*(self.fields or ("value",)), *self.source_by_column.values())


def read_encoding(options: Mapping[str, Any], schema: Any, topic: str | None) -> Encoding | None:
    """Read the options of a typed sink; None without `encode`, SinkOptionError for a wrong one."""
    given = {name.lower(): str(value) for name, value in options.items()}
    if "encode" not in given:
        for name in given:
            if name in ENCODE_NAMES or name in REGISTRY_NAMES:
                raise SinkOptionError(f"option {name} needs the option encode, such as avro")
        return None
    type_by_part = {"value": _schema_type(given, "encode")}
    if "encode.key" in given:
        type_by_part["key"] = _schema_type(given, "encode.key")
    subjects = {"value": given.get("encode.subject"), "key": given.get("encode.key.subject")}
    fields, sources = _shape(schema, has_topic=topic is not None)
    if "key" in type_by_part and "key" not in sources:
        raise SinkOptionError("encode.key needs a column key or _key")
    kind_by_column = {column.name: column for column in schema.fields}
    if "key" in sources and "key" not in type_by_part:
        _check_bytes(kind_by_column[sources["key"]])
    is_latest = _flag(given, "use.latest.version", default=False)
    return Encoding(
        type_by_part,
        {part: subject for part, subject in subjects.items() if subject},
        _registry(given),
        given.get("encode.name"),
        is_registering=_flag(given, "auto.register.schemas", default=not is_latest),
        is_latest=is_latest,
        fields=fields,
        source_by_column=sources,
        columns_by_part=_columns_by_part(schema, type_by_part, fields, sources),
    )


def _schema_type(given: Mapping[str, str], option: str) -> SchemaType:
    word = given[option].strip().lower()
    if word not in _TYPE_BY_WORD:
        known = ", ".join(_TYPE_BY_WORD)
        raise SinkOptionError(f"option {option} is {word!r}: expected one of {known}")
    return _TYPE_BY_WORD[word]


def _registry(given: Mapping[str, str]) -> RegistrySettings:
    settings = {name: value for name, value in given.items() if name in REGISTRY_NAMES}
    if "schema.registry.url" not in settings:
        raise SinkOptionError("option encode needs schema.registry.url: give http://HOST:PORT")
    try:
        return read_registry_settings(settings, {})
    except InvalidClientSettingError as error:
        raise SinkOptionError(f"an option of the registry is wrong: {error}") from None


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise SinkOptionError(f"option {name} is {text!r}: expected true or false")
    return text == "true"


def _shape(schema: Any, *, has_topic: bool) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the fields of the value, and the column of each part of the record."""
    type_by_name = {column.name: column.dataType.simpleString() for column in schema.fields}
    names = [name for name in RECORD_COLUMNS if name in type_by_name]
    if has_topic and "topic" in names:
        names.remove("topic")
    elif not has_topic and "topic" not in names:
        raise SinkOptionError("no topic: give the option topic, or a column topic")
    sources = {name: name for name in names}
    for name in ("key", "headers"):
        if name not in sources and f"_{name}" in type_by_name:
            sources[name] = f"_{name}"
    wanted = {"topic": "string", "partition": "int", "headers": _HEADERS}
    for name, column in sources.items():
        if name in wanted and type_by_name[column] != wanted[name]:
            raise SinkOptionError(
                f"column {column} is {type_by_name[column]}: expected {wanted[name]}; a field of "
                "this name goes into a struct: struct(…) AS value"
            )
    if type_by_name.get("value", "").startswith("struct<"):
        return (), sources
    fields = tuple(name for name in type_by_name if name not in names and not name.startswith("_"))
    if not fields:
        raise SinkOptionError(f"no column is a field of the value: {', '.join(type_by_name)}")
    return fields, sources


def _check_bytes(column: Any) -> None:
    kind = column.dataType.simpleString()
    if kind not in {"string", "binary"}:
        raise SinkOptionError(
            f"column {column.name} is {kind}: expected string or binary, or the option encode.key"
        )


def _columns_by_part(
    schema: Any,
    type_by_part: Mapping[str, SchemaType],
    fields: tuple[str, ...],
    sources: Mapping[str, str],
) -> dict[str, "pa.Schema"]:
    """Return the Arrow columns of the DataFrame's value and key."""
    from pyspark.sql.types import StructType  # noqa: PLC0415 - this module is loaded in tasks, too

    column_by_name = {column.name: column for column in schema.fields}
    if fields:
        value = StructType([column_by_name[name] for name in fields])
    else:
        value = column_by_name["value"].dataType
    found = {"value": _arrow(value)}
    if "key" in type_by_part:
        key = column_by_name[sources["key"]]
        if isinstance(key.dataType, StructType):
            found["key"] = _arrow(key.dataType)
        elif type_by_part["key"] is SchemaType.AVRO:
            found["key"] = _arrow(StructType([type(key)("value", key.dataType, key.nullable)]))
        else:
            raise SinkOptionError(
                f"column {key.name} is no struct: only Avro has schemas of single values"
            )
    return found


def _arrow(kind: Any) -> "pa.Schema":
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - see above

    return to_arrow_schema(kind, timezone="UTC")


# -- the registry ---------------------------------------------------------------------------------


def register(encoding: Encoding, registry: RegistryClient, topic: str, part: str) -> Registered:
    """Register the schema of a topic's keys or values, or find it, as the options say.

    SinkOptionError if the registry refuses it.
    """
    subject = encoding.subject_by_part.get(part) or f"{topic}-{part}"
    try:
        latest = _latest(registry, subject)
        if encoding.is_latest:
            if latest is None:
                raise SinkOptionError(f"use.latest.version: there is no subject {subject}")
            return _framed(registry, latest)
        name = (encoding.name if part == "value" else None) or _name(registry, latest, topic, part)
        schema = _schema_of(encoding, part, name)
        if encoding.is_registering:
            return _framed(registry, registry.register(subject, schema))
        return _framed(registry, registry.look_up(subject, schema))
    except (RegistryError, InvalidSchemaError) as error:
        raise SinkOptionError(f"subject {subject}: {error}") from None
    except RegistryUnreachableError as error:
        raise SinkOptionError(f"the registry cannot be reached: {error}") from error


def _latest(registry: RegistryClient, subject: str) -> Any:
    try:
        return registry.latest_version(subject)
    except RegistryError as error:
        if error.status != 404:
            raise
        return None


def _name(registry: RegistryClient, latest: Any, topic: str, part: str) -> str:
    """Return the name of the registered record: with another name, schemas are incompatible."""
    if latest is not None and (found := registry.parsed(latest.schema).record_name):
        return found
    word = _NOT_IN_NAMES.sub("_", topic).replace(".", "_")
    word = f"_{word}" if word[:1].isdigit() else word
    return word if part == "value" else f"{word}_{part}"


def _schema_of(encoding: Encoding, part: str, name: str) -> Schema:
    """Return the schema of the DataFrame's columns."""
    kind, columns = encoding.type_by_part[part], encoding.columns_by_part[part]
    try:
        match kind:
            case SchemaType.AVRO:
                return Schema(_avro_text(columns, name, is_single=_is_single(encoding, part)), kind)
            case SchemaType.JSON:
                from ottla.schemas.arrow.json_arrow_encoder import json_text_of  # noqa: PLC0415

                return Schema(json_text_of(columns, name), kind)
            case _:
                from ottla.schemas.arrow.protobuf_arrow import protobuf_text_of  # noqa: PLC0415

                return Schema(protobuf_text_of(columns, name), kind)
    except ValueError as error:
        raise SinkOptionError(f"encode: {error}") from None


def _avro_text(columns: "pa.Schema", name: str, *, is_single: bool) -> str:
    from ottla.schemas.arrow.avro_arrow import avro_text_of  # noqa: PLC0415

    text = avro_text_of(columns, name)
    return json.dumps(json.loads(text)["fields"][0]["type"]) if is_single else text


def _is_single(encoding: Encoding, part: str) -> bool:
    """Whether the key is one value, and no struct."""
    return part == "key" and encoding.columns_by_part["key"].names == ["value"]


def _framed(registry: RegistryClient, row: Any) -> Registered:
    schema = Schema(row.schema.text, row.schema.type, row.schema.references)
    if schema.type is not SchemaType.PROTOBUF:
        return Registered(schema, prefix(row.id))
    parsed: Any = registry.parsed(schema)
    name = parsed.record_name
    return Registered(schema, prefix(row.id, tuple(parsed.indexes(name))), name)


def with_registered(encoding: Encoding, topic: str | None) -> Encoding:
    """Register the schemas for a topic, in the driver; without a topic, tasks do it."""
    from ottla.clients.tables.typed_records import kept_registry  # noqa: PLC0415

    if topic is None:
        return encoding
    registry = kept_registry(encoding.registry)
    found = {
        (topic, part): register(encoding, registry, topic, part) for part in encoding.type_by_part
    }
    return replace(encoding, registered=found)


# -- in tasks -------------------------------------------------------------------------------------


class RowEncoder:
    """Encodes the rows of one task. Schemas of further topics are registered as they come."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._registered = dict(encoding.registered)
        self._encoders: dict[tuple[str, str], tuple[Any, ArrowEncoder]] = {}

    def encoded(self, topic: str, rows: "pa.RecordBatch") -> "pa.RecordBatch":
        """Return key, value, headers and partition; ValueError if a row does not fit its schema."""
        import pyarrow as pa  # noqa: PLC0415 - not needed by the driver

        sources = self._encoding.source_by_column
        arrays = {"value": self._part(topic, "value", self._values(rows))}
        if "key" in self._encoding.type_by_part:
            arrays["key"] = self._part(topic, "key", rows.column(sources["key"]))
        for name, column in sources.items():
            if name not in arrays and name != "topic":
                arrays[name] = rows.column(column)
        return pa.RecordBatch.from_pydict(arrays)

    def _values(self, rows: "pa.RecordBatch") -> Any:
        if not self._encoding.fields:
            return rows.column("value")
        return rows.select(list(self._encoding.fields)).to_struct_array()

    def _part(self, topic: str, part: str, array: Any) -> Any:
        """Encode an array; a null is no value, such as a tombstone."""
        import pyarrow as pa  # noqa: PLC0415 - not needed by the driver
        import pyarrow.compute as pc  # noqa: PLC0415

        sound = array.drop_null() if array.null_count else array
        if _is_struct(sound):
            batch = pa.RecordBatch.from_struct_array(sound)
        else:
            batch = pa.RecordBatch.from_arrays([sound], names=["value"])
        registered, encoder = self._encoder(topic, part, batch.schema)
        try:
            values = encoder.encode(batch, registered.prefix)
        except ValueError as error:
            raise ValueError(f"topic {topic}, {part}: {error}") from None
        if not array.null_count:
            return values
        places = pc.subtract(pc.cumulative_sum(array.is_valid().cast(pa.int64())), 1)
        return values.take(pc.if_else(array.is_valid(), places, None))

    def _encoder(self, topic: str, part: str, columns: Any) -> tuple[Registered, "ArrowEncoder"]:
        place = topic, part
        found = self._encoders.get(place)
        registered = self._registered.get(place)
        if found is not None and registered is not None and found[0].equals(columns):
            return registered, found[1]
        from ottla.clients.tables.typed_records import kept_registry  # noqa: PLC0415

        registry = kept_registry(self._encoding.registry)
        if registered is None:
            registered = register(self._encoding, registry, topic, part)
            self._registered[place] = registered
        encoder = _make_encoder(registry, registered, columns)
        self._encoders[place] = columns, encoder
        return registered, encoder


def _is_struct(array: Any) -> bool:
    import pyarrow as pa  # noqa: PLC0415 - not needed by the driver

    return bool(pa.types.is_struct(array.type))


def _make_encoder(
    registry: RegistryClient, registered: Registered, columns: "pa.Schema"
) -> "ArrowEncoder":
    schema: Any = registry.parsed(registered.schema)
    match registered.schema.type:
        case SchemaType.AVRO:
            from ottla.schemas.arrow.avro_arrow import AvroArrowEncoder  # noqa: PLC0415

            return AvroArrowEncoder(schema, columns)
        case SchemaType.JSON:
            from ottla.schemas.arrow.json_arrow_encoder import JsonArrowEncoder  # noqa: PLC0415

            return JsonArrowEncoder(schema, columns)
        case _:
            from ottla.schemas.arrow.protobuf_arrow import (  # noqa: PLC0415
                ProtobufArrowEncoder,
            )

            return ProtobufArrowEncoder(schema, columns, registered.message)
