"""Records as typed columns: the fields of a value, then columns of the record with an underscore.

| column | content |
| --- | --- |
| the fields of the value's schema | null if the record has no value |
| `_key` | the key: bytes, or decoded: a struct, or the plain value of a schema without fields |
| `_value` | the bytes of the value, where it is not decoded |
| `_topic`, `_partition`, `_offset`, `_timestamp`, `_headers` | as in `ottla.wire.records.arrow` |
| `_tombstone` | whether the record has no value |
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.clients.schemas.registry_client import RegistryClient
from ottla.clients.schemas.schema_settings import RegistrySettings
from ottla.clients.schemas.typed_values import TypedValues
from ottla.clients.tables.errors import SourceReadError, ValueDecodingError
from ottla.model.settings.settings import nearest_to
from ottla.schemas.parsed_schema import ParsedSchema
from ottla.schemas.parsing import parse_schema
from ottla.schemas.schema import Schema, SchemaType
from ottla.wire.records import arrow

PARTS: Final = ("value", "key")
KEY: Final = "_key"
VALUE: Final = "_value"
TOMBSTONE: Final = "_tombstone"
_OF_THE_RECORD: Final[Mapping[str, str]] = {
    KEY: "key",
    VALUE: "value",
    "_topic": "topic",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_headers": "headers",
    TOMBSTONE: "value",
}
"""The raw column of each column that describes the record."""
_BY_DEFAULT: Final = (KEY, VALUE, "_partition", "_offset", "_timestamp")
_RAW: Final = arrow.schema(include_headers=True)


@dataclass(frozen=True, slots=True)
class Decoding:
    """The schemas of the columns. Picklable: tasks in other processes make decoders of it."""

    schema_by_part: Mapping[str, Schema]
    """The reader's schemas, of value, key or both."""
    registry: RegistrySettings | None
    """None if the values have no framing."""
    message: str | None = None
    """The full name of the Protobuf message of values; by default the first of the file."""


def parts_of(text: str) -> tuple[str, ...]:
    """Parse `value`, `key` or `key,value`; ValueError for another text."""
    parts = tuple(word.strip() for word in text.split(","))
    if not set(parts) <= set(PARTS) or len(set(parts)) != len(parts):
        raise ValueError(f"decode is {text!r}: expected value, key, or key,value")
    return parts


def find_decoding(
    settings: RegistrySettings,
    subject_by_part: Mapping[str, str],
    *,
    version: int | None = None,
    message: str | None = None,
) -> Decoding:
    """Ask the registry for the latest version of each subject.

    `version` selects a version of the value's subject, or of the key's if only keys are decoded.
    """
    found = {}
    versioned = "value" if "value" in subject_by_part else "key"
    with RegistryClient(settings) as registry:
        for part, subject in subject_by_part.items():
            if version is not None and part == versioned:
                row = registry.version(subject, version)
            else:
                row = registry.latest_version(subject)
            found[part] = replace(row.schema, metadata=None, rule_set=None)
    return Decoding(found, settings, message)


_registries: Final[dict[tuple[int, RegistrySettings], RegistryClient]] = {}


def kept_registry(settings: RegistrySettings) -> RegistryClient:
    """Return this process's client of a registry, which caches every schema it has fetched."""
    place = os.getpid(), settings  # a forked process has connections of its own
    if place not in _registries:
        _registries[place] = RegistryClient(settings)
    return _registries[place]


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Decoded records, and the reason for each row that could not be decoded."""

    batch: pa.RecordBatch
    errors: Mapping[int, str]
    bad_columns: Mapping[int, str] = field(default_factory=dict)
    """The raw column, value or key, that could not be decoded, by row."""


class TypedRecords:
    """Decodes raw record batches into typed columns. One thread at a time uses an object.

    `columns` selects columns, in any order; ValueError for a name that there is not. Fields that
    are not selected are not decoded, where the format allows it.
    """

    def __init__(
        self,
        decoding: Decoding,
        registry: RegistryClient | None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._values: dict[str, TypedValues] = {}
        whole = {
            part: _parsed(schema, registry) for part, schema in decoding.schema_by_part.items()
        }
        every = _Columns(whole, decoding, registry)
        names = every.default_names if columns is None else list(columns)
        every.check(names)
        self.fields = every.fields
        """Every column that could be selected, by name."""
        self.schema = pa.schema([every.fields[name] for name in names])
        self._field_names = [name for name in names if name in every.value_names]
        self._is_key_record = every.is_key_record
        if "value" in whole and self._field_names:
            reader = _pruned(whole["value"], set(self._field_names))
            self._values["value"] = TypedValues(registry, reader, message_name=decoding.message)
        if "key" in whole and KEY in names:
            self._values["key"] = TypedValues(registry, whole["key"], part="key")
        self.raw = self._raw_columns(names, has_registry=registry is not None)

    def decode(self, rows: pa.RecordBatch) -> TypedRows:
        """Decode a batch with at least the columns of `raw`.

        The fields of a value that cannot be decoded are null, and so is a key.
        """
        headers = rows.column("headers") if "headers" in self.raw.names else None
        errors: dict[int, str] = {}
        bad: dict[int, str] = {}
        decoded: dict[str, pa.RecordBatch] = {}
        for part, values in self._values.items():
            found = values.decode(rows.column(part), headers)
            decoded[part] = found.batch
            for row, reason in found.errors.items():
                errors.setdefault(row, f"the {part} cannot be decoded: {reason}")
                bad.setdefault(row, part)
        arrays = [self._array(name, rows, decoded, bad) for name in self.schema.names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return TypedRows(batch, dict(sorted(errors.items())), bad)

    def _array(
        self,
        name: str,
        rows: pa.RecordBatch,
        decoded: Mapping[str, pa.RecordBatch],
        bad: Mapping[int, str],
    ) -> pa.Array:
        if name in self._field_names:
            return decoded["value"].column(name)
        if name == TOMBSTONE:
            return rows.column("value").is_null()
        if name == KEY and "key" in decoded:
            return self._key(decoded["key"], rows.column("key"), bad)
        return rows.column(_OF_THE_RECORD[name])

    def _key(self, batch: pa.RecordBatch, keys: pa.Array, bad: Mapping[int, str]) -> pa.Array:
        if not self._is_key_record:
            return batch.column("value")
        is_null = keys.is_null()
        rows = [row for row, part in bad.items() if part == "key"]
        if rows:
            is_null = pc.or_(is_null, pc.is_in(pa.array(range(len(keys))), pa.array(rows)))
        return pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema), mask=is_null)

    def _raw_columns(self, names: Sequence[str], *, has_registry: bool) -> pa.Schema:
        wanted = {_OF_THE_RECORD[name] for name in names if name not in self._field_names}
        wanted |= {"offset", *self._values}
        if has_registry and self._values:
            wanted.add("headers")
        return pa.schema([column for column in _RAW if column.name in wanted])


class _Columns:
    """All columns that records of these schemas have."""

    def __init__(
        self,
        whole: Mapping[str, ParsedSchema],
        decoding: Decoding,
        registry: RegistryClient | None,
    ) -> None:
        fields = {name: _RAW.field(raw) for name, raw in _OF_THE_RECORD.items()}
        fields = {name: column.with_name(name) for name, column in fields.items()}
        fields[TOMBSTONE] = pa.field(TOMBSTONE, pa.bool_())
        typed: list[pa.Field] = []
        if "value" in whole:
            del fields[VALUE]
            schema = TypedValues(registry, whole["value"], message_name=decoding.message).schema
            typed = list(schema)
        self.is_key_record = "key" in whole and _is_record(whole["key"])
        if "key" in whole:
            key = TypedValues(registry, whole["key"], part="key").schema
            kind = pa.struct(list(key)) if self.is_key_record else key.field("value").type
            fields[KEY] = pa.field(KEY, kind)
        _check_distinct(typed, fields)
        self.value_names = {column.name for column in typed}
        self.fields = {column.name: column for column in typed} | fields
        self.default_names = [
            *(column.name for column in typed),
            *(name for name in _BY_DEFAULT if name in fields),
        ]

    def check(self, names: Sequence[str]) -> None:
        """Refuse names that no column has."""
        if not names:
            raise ValueError("columns is empty: at least one column is needed")
        for name in names:
            if name not in self.fields:
                near = nearest_to(name, list(self.fields))
                listed = near or f": there are {', '.join(self.fields)}"
                raise ValueError(f"the schema and the records have no column {name!r}{listed}")


def raise_first(rows: TypedRows, offsets: pa.Array, place: object, advice: str) -> None:
    """Raise ValueDecodingError for the first row that could not be decoded, if there is one."""
    for row, reason in rows.errors.items():
        raise ValueDecodingError(f"{place} offset {offsets[row]}: {reason}; {advice}")


def _check_distinct(typed: Iterable[pa.Field], fields: Mapping[str, Any]) -> None:
    for column in typed:
        if column.name in fields:
            raise SourceReadError(
                f"the schema has a field {column.name}, and records have a column of that name: "
                "read the bytes, and decode them in the program"
            )


def _parsed(schema: Schema, registry: RegistryClient | None) -> ParsedSchema:
    if registry is not None:
        return registry.parsed(schema)
    return parse_schema(schema.type, schema.text)


def _is_record(schema: Any) -> bool:
    """Whether the columns are the fields of a record, and not one column `value`."""
    match schema.type:
        case SchemaType.AVRO:
            return schema.record_name is not None
        case SchemaType.PROTOBUF:
            return True
        case _:
            from ottla.schemas.arrow.json_columns import ColumnMapping  # noqa: PLC0415

            return bool(ColumnMapping(schema).is_record)


def _pruned(schema: Any, names: set[str]) -> Any:
    """Return an Avro record with only these fields, which skips the others; others as they are."""
    if schema.type is not SchemaType.AVRO or schema.record_name is None:
        return schema
    fields = tuple(one for one in schema.root.fields if one.name in names)
    if len(fields) == len(schema.root.fields):
        return schema
    return replace(schema, root=replace(schema.root, fields=fields))
