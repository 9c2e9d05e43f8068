"""The options of typed topics: `decode` and the options that begin with `decode.`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.schemas.schema_settings import (
    REGISTRY_SETTINGS,
    RegistrySettings,
    read_registry_settings,
)
from ottla.model.settings.settings import nearest_to
from ottla.pipelines.source.errors import SourceOptionError
from ottla.schemas.parsed_schema import InvalidSchemaError
from ottla.schemas.parsing import parse_schema
from ottla.schemas.schema import Schema, SchemaType

DECODE: Final = "decode"
REGISTRY_NAMES: Final = tuple(row.name for row in REGISTRY_SETTINGS)
DECODE_NAMES: Final = (
    DECODE,
    "decode.subject",
    "decode.key.subject",
    "decode.version",
    "decode.message",
    "decode.mode",
    "decode.dlq.topic",
    "decode.follow",
    "decode.tombstones",
    "decode.schema",
    "decode.framing",
)
_TYPE_BY_SUFFIX: Final = {
    ".avsc": SchemaType.AVRO,
    ".json": SchemaType.JSON,
    ".proto": SchemaType.PROTOBUF,
}
_PARTS: Final = frozenset({"value", "key"})
SCHEMA_FILE_BYTES_MAX: Final = 1 << 20


class BadRecords(StrEnum):
    """The treatment of a record that cannot be decoded."""

    FAILFAST = "failfast"
    """The query fails, with the record's partition and offset."""
    PERMISSIVE = "permissive"
    """The fields of the row are null, and `_corrupt` has the bytes."""
    DLQ = "dlq"
    """The record goes to another topic, and the row is left out."""


class Tombstones(StrEnum):
    """The treatment of a record without a value."""

    KEEP = "keep"
    """A row of null fields."""
    MARK = "mark"
    """The same, and a column `_tombstone` is true."""
    DROP = "drop"
    """No row."""


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How records become typed columns."""

    parts: tuple[str, ...]
    """value, key or both; value first."""
    registry: RegistrySettings | None
    """None if the values have no id of a schema before them."""
    subject: str | None
    key_subject: str | None
    version: int | None
    message: str | None
    schema: Schema | None
    """The schema of the columns from a file, in place of the registry's latest version."""
    bad_records: BadRecords
    dlq_topic: str | None
    is_following: bool
    """Whether the query ends when the subject has a version with other columns."""
    tombstones: Tombstones


def read_decode_options(options: Mapping[str, str]) -> DecodeOptions | None:
    """Read the options; None without `decode`. SourceOptionError names the wrong option."""
    given = {name.lower(): value for name, value in options.items()}
    refuse_without_decode(given)
    if DECODE not in given:
        return None
    bad_records = BadRecords(_word(given, "decode.mode", list(BadRecords)))
    schema, is_framed = _schema(given), _is_framed(given)
    read = DecodeOptions(
        parts=_parts(given[DECODE]),
        registry=_registry(given) if is_framed else None,
        subject=given.get("decode.subject"),
        key_subject=given.get("decode.key.subject"),
        version=_version(given),
        message=given.get("decode.message"),
        schema=schema,
        bad_records=bad_records,
        dlq_topic=given.get("decode.dlq.topic"),
        is_following=_flag(given, "decode.follow"),
        tombstones=Tombstones(_word(given, "decode.tombstones", list(Tombstones))),
    )
    _check_together(read)
    return read


def refuse_without_decode(given: Mapping[str, str]) -> None:
    """Refuse options of typed topics if `decode` is missing; names are in small letters."""
    if DECODE in given:
        return
    for name in given:
        if name in DECODE_NAMES or name in REGISTRY_NAMES:
            raise SourceOptionError(
                f"{name} is for typed topics: add the option decode, such as value"
            )


def _parts(text: str) -> tuple[str, ...]:
    found = [word.strip().lower() for word in text.split(",")]
    if not set(found) <= _PARTS or len(set(found)) != len(found):
        raise SourceOptionError(f"decode cannot be {text!r}: it must be value, key or key,value")
    return tuple(sorted(found, reverse=True))


def _word(given: Mapping[str, str], name: str, known: Sequence[str]) -> str:
    """Return the value of an option, by default the first known one."""
    text = given.get(name, known[0]).strip().lower()
    if text not in known:
        near = nearest_to(text, known)
        raise SourceOptionError(f"{name} cannot be {text!r}: it must be {', '.join(known)}{near}")
    return text


def _is_framed(given: Mapping[str, str]) -> bool:
    return _word(given, "decode.framing", ["registry", "none"]) == "registry"


def _registry(given: Mapping[str, str]) -> RegistrySettings:
    settings = {name: value for name, value in given.items() if name in REGISTRY_NAMES}
    if "schema.registry.url" not in settings:
        raise SourceOptionError(
            "decode needs schema.registry.url; for values without the id of a schema, give "
            "decode.framing=none and decode.schema=FILE"
        )
    try:
        return read_registry_settings(settings, {})
    except InvalidClientSettingError as error:
        raise SourceOptionError(f"an option of the registry is wrong: {error}") from None


def _version(given: Mapping[str, str]) -> int | None:
    text = given.get("decode.version", "latest").strip()
    if text == "latest":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise SourceOptionError(
            f"decode.version cannot be {text!r}: it must be latest, or a number from 1 on"
        )
    return int(text)


def _flag(given: Mapping[str, str], name: str) -> bool:
    return _word(given, name, ["false", "true"]) == "true"


def _schema(given: Mapping[str, str]) -> Schema | None:
    """Read the file of decode.schema, in the driver."""
    if "decode.schema" not in given:
        return None
    path = Path(given["decode.schema"])
    schema_type = _TYPE_BY_SUFFIX.get(path.suffix)
    if schema_type is None:
        known = ", ".join(_TYPE_BY_SUFFIX)
        raise SourceOptionError(f"decode.schema is {str(path)!r}: its suffix must be of {known}")
    try:
        if path.stat().st_size > SCHEMA_FILE_BYTES_MAX:
            raise SourceOptionError(f"decode.schema: {path} has over {SCHEMA_FILE_BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8")
        if schema_type is not SchemaType.PROTOBUF:
            json.loads(text)
        parse_schema(schema_type, text)
    except OSError as error:
        raise SourceOptionError(f"decode.schema: {path}: {error.strerror}") from None
    except (InvalidSchemaError, ValueError) as error:
        if isinstance(error, SourceOptionError):
            raise
        raise SourceOptionError(f"decode.schema: {path} is no schema: {error}") from None
    return Schema(text, schema_type)


def _check_together(read: DecodeOptions) -> None:
    is_dlq = read.bad_records is BadRecords.DLQ
    if is_dlq and not read.dlq_topic:
        raise SourceOptionError("decode.mode=dlq needs decode.dlq.topic, for the bad records")
    if read.dlq_topic and not is_dlq:
        raise SourceOptionError("decode.dlq.topic is for decode.mode=dlq")
    if read.schema is None and read.registry is None:
        raise SourceOptionError("decode.framing=none needs decode.schema, a file")
    if read.schema is not None:
        if len(read.parts) != 1:
            raise SourceOptionError("decode.schema is for one part: decode value or key")
        if read.subject or read.version or read.is_following:
            raise SourceOptionError(
                "decode.schema excludes decode.subject, decode.version and decode.follow"
            )
    if read.is_following and read.version is not None:
        raise SourceOptionError("decode.follow and decode.version exclude each other")
