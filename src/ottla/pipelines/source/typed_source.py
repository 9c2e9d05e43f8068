"""Typed topics: the driver finds the schemas once, and tasks decode records into their columns.

`TypedSource` is made with the query, and travels to the tasks; each worker process makes decoders
of it, and keeps them for further tasks.
"""

import logging
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.clients.schemas.registry_calls import RegistryError, RegistryUnreachableError
from ottla.clients.tables.errors import SourceReadError
from ottla.clients.tables.range_reader import OffsetRange
from ottla.clients.tables.typed_records import (
    KEY,
    TOMBSTONE,
    Decoding,
    TypedRecords,
    TypedRows,
    find_decoding,
    kept_registry,
    raise_first,
)
from ottla.model.settings.settings import nearest_to
from ottla.pipelines.source.decode_options import (
    BadRecords,
    DecodeOptions,
    Tombstones,
    read_decode_options,
)
from ottla.pipelines.source.errors import SourceOptionError
from ottla.pipelines.source.options import includes_headers
from ottla.pipelines.source.typed_columns import CORRUPT, cast, spark_type
from ottla.schemas.parsed_schema import InvalidSchemaError
from ottla.wire.records import arrow

if TYPE_CHECKING:
    from ottla.clients.producer.producer import Producer

_ADVICE: Final = "decode.mode can be permissive or dlq, to pass over such records"
_ORIGIN: Final = "__connect.errors."
"""The prefix of the headers of a dead letter, as Kafka Connect names them."""
DECODERS_KEPT_MAX: Final = 16
"""The queries for which a worker process keeps decoders."""
_log = logging.getLogger(__name__)


class SchemaChangedError(SourceReadError):
    """The subject has a version with other columns; the query has to be started again."""


@dataclass(frozen=True, slots=True)
class TypedSource:
    """The schemas of a query's columns, and the treatment of bad records. Picklable."""

    options: DecodeOptions
    decoding: Decoding
    subject_by_part: Mapping[str, str]
    """Empty if the schema is from a file."""
    producer_settings: Mapping[str, str]
    """The settings of the producer of dead letters."""
    has_headers: bool
    has_topic: bool

    @property
    def is_permissive(self) -> bool:
        """Whether there is a column `_corrupt`."""
        return self.options.bad_records is BadRecords.PERMISSIVE

    def columns(self) -> StructType:
        """Return all default columns."""
        records = kept_records(self.decoding, None)
        names = list(records.schema.names)
        if self.has_topic:
            names.insert(names.index("_partition"), "_topic")
        if self.has_headers:
            names.append("_headers")
        if self.options.tombstones is Tombstones.MARK:
            names.append(TOMBSTONE)
        fields = [StructField(name, self._type(records, name)) for name in names]
        if self.is_permissive:
            fields.append(StructField(CORRUPT, BinaryType()))
        return StructType(fields)

    def check(self, schema: StructType) -> None:
        """Refuse a schema that names a column that there is not, or another type for it."""
        records = kept_records(self.decoding, None)
        if not schema.fields:
            raise SourceOptionError("the schema names no column: name at least one")
        known = [*records.fields, *([CORRUPT] if self.is_permissive else [])]
        for field in schema.fields:
            if field.name not in known:
                near = nearest_to(field.name, known) or f": there are {', '.join(known)}"
                raise SourceOptionError(f"the schema names a column {field.name!r}{near}")
            kind = BinaryType() if field.name == CORRUPT else self._type(records, field.name)
            if field.dataType != kind:
                raise SourceOptionError(
                    f"the schema says that {field.name} is {field.dataType.simpleString()}: it is "
                    f"{kind.simpleString()}, to be cast in the DataFrame"
                )

    @staticmethod
    def _type(records: TypedRecords, name: str) -> Any:
        return spark_type(records.fields[name].type, name)


def find_typed_source(options: Mapping[str, str]) -> TypedSource | None:
    """Ask the registry for the schemas of a query; None without the option `decode`."""
    read = read_decode_options(options)
    if read is None:
        return None
    given = {name.lower(): value for name, value in options.items()}
    topic = _only_topic(given)
    subjects = {} if read.schema is not None else _subjects(read, topic)
    found = TypedSource(
        read,
        _decoding(read, subjects),
        subjects,
        _producer_settings(given) if read.bad_records is BadRecords.DLQ else {},
        has_headers=includes_headers(options),
        has_topic=topic is None,
    )
    found.columns()  # raises errors of the schemas where the user sees them
    return found


def _only_topic(given: Mapping[str, str]) -> str | None:
    names = [name.strip() for name in given.get("subscribe", "").split(",") if name.strip()]
    return names[0] if len(names) == 1 else None


def _subjects(read: DecodeOptions, topic: str | None) -> dict[str, str]:
    is_key_only = read.parts == ("key",)
    named = {
        "value": read.subject,
        "key": read.key_subject or (read.subject if is_key_only else None),
    }
    found = {}
    for part in read.parts:
        subject = named[part] or (f"{topic}-{part}" if topic else None)
        if subject is None:
            name = "decode.subject" if part == "value" else "decode.key.subject"
            raise SourceOptionError(
                f"{name} is missing: it is certain by itself only if subscribe has one topic"
            )
        found[part] = subject
    return found


def _decoding(read: DecodeOptions, subjects: Mapping[str, str]) -> Decoding:
    if read.schema is not None:
        return Decoding({read.parts[0]: read.schema}, read.registry, read.message)
    assert read.registry is not None
    try:
        return find_decoding(read.registry, subjects, version=read.version, message=read.message)
    except RegistryError as error:
        names = ", ".join(subjects.values())
        raise SourceOptionError(
            f"the registry has no columns for {names}: {error}; register a schema, or give "
            "decode.subject and decode.version"
        ) from None
    except (RegistryUnreachableError, InvalidSchemaError) as error:
        raise SourceReadError(f"the schemas of the columns: {error}") from error


def _producer_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the consumer's settings that a producer has, too."""
    from ottla.clients.config.settings import CLIENT_SETTINGS  # noqa: PLC0415 - for dead letters

    known = {name for row in CLIENT_SETTINGS for name in (row.name, *row.aliases)}
    settings = {name.removeprefix("kafka."): value for name, value in given.items()}
    return {name: value for name, value in settings.items() if name in known}


# -- in tasks -------------------------------------------------------------------------------------

_records: Final[dict[Any, TypedRecords]] = {}


def kept_records(decoding: Decoding, columns: tuple[str, ...] | None) -> TypedRecords:
    """Return this process's decoders of some columns."""
    schemas = tuple(sorted(decoding.schema_by_part.items()))
    place = os.getpid(), schemas, decoding.registry, decoding.message, columns
    if place not in _records:
        while len(_records) >= DECODERS_KEPT_MAX:
            _records.pop(next(iter(_records)))
        settings = decoding.registry
        registry = None if settings is None else kept_registry(settings)
        _records[place] = TypedRecords(decoding, registry, columns)
    return _records[place]


class TypedReading:
    """The columns of one query, in a task."""

    def __init__(self, source: TypedSource, columns: pa.Schema) -> None:
        self._source = source
        self._columns = columns

    @cached_property
    def _decoder(self) -> TypedRecords:
        names = tuple(name for name in self._columns.names if name != CORRUPT)
        if self._source.options.bad_records is not BadRecords.FAILFAST:
            # Every field decides whether a record is bad, also a field that is not read.
            whole = kept_records(self._source.decoding, None)
            names = (
                *whole.schema.names,
                *(name for name in names if name not in whole.schema.names),
            )
        return kept_records(self._source.decoding, names)

    @property
    def raw(self) -> pa.Schema:
        """The columns to read from the topic."""
        names = {*self._decoder.raw.names}
        if self._source.options.bad_records is not BadRecords.FAILFAST:
            names |= {"key", "value", "offset"}
        if self._source.options.bad_records is BadRecords.DLQ:
            names.add("headers")
        if self._source.options.tombstones is Tombstones.DROP:
            names.add("value")
        return pa.schema([one for one in arrow.schema(include_headers=True) if one.name in names])

    def read(
        self, batches: Generator[pa.RecordBatch, None, None], wanted: OffsetRange
    ) -> Iterator[pa.RecordBatch]:
        """Decode the batches of a range; SourceReadError as the options say."""
        with ExitStack() as stack:
            stack.enter_context(closing(batches))
            letters = stack.enter_context(_DeadLetters(self._source, wanted))
            for batch in batches:
                try:
                    rows = self._decoder.decode(batch)
                except (RegistryError, RegistryUnreachableError) as error:
                    raise SourceReadError(f"{wanted}: the registry fails: {error}") from error
                yield from self._with_types(batch, rows, wanted, letters)

    def _with_types(
        self, raw: pa.RecordBatch, rows: TypedRows, wanted: OffsetRange, letters: "_DeadLetters"
    ) -> Iterator[pa.RecordBatch]:
        """Yield a batch in Spark's types, after the bad rows are dealt with."""
        errors, parts = dict(rows.errors), dict(rows.bad_columns)
        arrays = {}
        for column in self._columns:
            if column.name == CORRUPT:
                continue
            made, bad = cast(rows.batch.column(column.name), column.type)
            arrays[column.name] = made
            for row in bad:
                errors.setdefault(row, f"{column.name} has a value beyond {column.type}")
                parts.setdefault(row, "key" if column.name == KEY else "value")
        rows = TypedRows(rows.batch, dict(sorted(errors.items())), parts)
        if errors and self._source.options.bad_records is BadRecords.FAILFAST:
            raise_first(rows, raw.column("offset"), wanted.name, _ADVICE)
        if CORRUPT in self._columns.names:
            arrays[CORRUPT] = _corrupt(raw, rows)
        made_rows = [arrays[name] for name in self._columns.names]
        batch = pa.RecordBatch.from_arrays(made_rows, schema=self._columns)
        kept = None
        if errors and self._source.options.bad_records is BadRecords.DLQ:
            letters.send(raw, rows)
            kept = pa.array([row not in errors for row in range(batch.num_rows)], pa.bool_())
        if self._source.options.tombstones is Tombstones.DROP and raw.column("value").null_count:
            is_valid = raw.column("value").is_valid()
            kept = is_valid if kept is None else pc.and_(kept, is_valid)
        if kept is not None:
            batch = batch.filter(kept)
        if batch.num_rows:
            yield batch


def _corrupt(raw: pa.RecordBatch, rows: TypedRows) -> pa.Array:
    if not rows.errors:
        return pa.nulls(raw.num_rows, pa.binary())
    return pa.array(
        [
            raw.column(rows.bad_columns[row])[row].as_py() if row in rows.errors else None
            for row in range(raw.num_rows)
        ],
        pa.binary(),
    )


class _DeadLetters:
    """Sends bad records to the dead-letter topic; a task that is repeated sends them again."""

    def __init__(self, source: TypedSource, wanted: OffsetRange) -> None:
        self._settings = source.producer_settings
        self._topic = source.options.dlq_topic or ""
        self._wanted = wanted
        self._producer: Producer | None = None

    def __enter__(self) -> "_DeadLetters":
        return self

    def __exit__(self, *_: object) -> None:
        if self._producer is not None:
            self._producer.close()

    def send(self, raw: pa.RecordBatch, rows: TypedRows) -> None:
        """Send the bad records, and return when they are acknowledged."""
        from ottla.clients.producer.producer import Producer  # noqa: PLC0415 - rarely needed

        if self._producer is None:
            self._producer = Producer(dict(self._settings))
        bad = raw.take(pa.array(list(rows.errors), pa.int64())).to_pylist()
        deliveries = [
            self._producer.send(
                self._topic, record["value"], key=record["key"], headers=self._headers(record, why)
            )
            for record, why in zip(bad, rows.errors.values(), strict=True)
        ]
        for delivery in deliveries:
            delivery.result()

    def _headers(self, record: Mapping[str, Any], reason: str) -> list[tuple[str, bytes]]:
        own = [(header["key"], header["value"]) for header in record["headers"] or ()]
        said = {
            "topic": self._wanted.topic,
            "partition": self._wanted.partition,
            "offset": record["offset"],
            "exception.message": reason,
        }
        return [*own, *((f"{_ORIGIN}{name}", str(text).encode()) for name, text in said.items())]


# -- in the driver, while the query runs ----------------------------------------------------------


class SubjectFollower:
    """Looks whether a subject has a version with other columns than the query's.

    The registry's client caches the latest version for latest.cache.ttl.ms, so that a check of each
    micro-batch costs a request a minute.
    """

    def __init__(self, source: TypedSource) -> None:
        self._source = source
        self._seen = dict(source.decoding.schema_by_part)

    def check(self) -> None:
        """Raise SchemaChangedError with decode.follow, else log once for each new version."""
        settings = self._source.decoding.registry
        if settings is None or self._source.options.version is not None:
            return
        for part, subject in self._source.subject_by_part.items():
            try:
                latest = kept_registry(settings).latest_version(subject)
            except (RegistryError, RegistryUnreachableError) as error:
                _log.warning("subject %s cannot be followed: %s", subject, error)
                continue
            if latest.schema.text != self._seen[part].text:
                self._seen[part] = latest.schema
                self._compare(part, subject, latest)

    def _compare(self, part: str, subject: str, latest: Any) -> None:
        schema = replace(latest.schema, metadata=None, rule_set=None)
        schemas = {**self._source.decoding.schema_by_part, part: schema}
        newer = kept_records(replace(self._source.decoding, schema_by_part=schemas), None)
        old = kept_records(self._source.decoding, None)
        if newer.schema.equals(old.schema):
            return
        added = [name for name in newer.schema.names if name not in old.schema.names]
        columns = f"new columns {', '.join(added)}" if added else "other columns"
        sentence = f"subject {subject} has version {latest.version}, with {columns}"
        if self._source.options.is_following:
            raise SchemaChangedError(
                f"{sentence}: load the stream again, and start the query again from its checkpoint"
            )
        _log.warning("%s, which this query does not read until it is started again", sentence)
