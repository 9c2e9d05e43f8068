"""The options and columns of the sink, as in Spark's own Kafka sink."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from ottla.pipelines.sink.encoding import ENCODE_NAMES, REGISTRY_NAMES, Encoding, read_encoding
from ottla.pipelines.sink.errors import SinkOptionError

COLUMNS: Final = ("key", "value", "headers", "topic", "partition")
"""The columns that are written; others are ignored, as in Spark's Kafka sink."""
DEFAULT_PREFIX: Final = "ottla"
NAMES: Final = (
    "exactlyOnce",
    "topic",
    "transactionalIdPrefix",
    "txnAppId",
    "txnVersion",
    *ENCODE_NAMES,
    *REGISTRY_NAMES,
)
"""The options that are not producer settings. Spark adds some of its own."""
_KAFKA: Final = "kafka."
_SERVERS: Final = "bootstrap.servers"
_TAKEN: Final = {
    "transactional.id": "transactionalIdPrefix says how the ids of all tasks begin",
    "key.serializer": "columns are sent as they are, or as the option encode.key says",
    "value.serializer": "columns are sent as they are, or as the option encode says",
    "interceptors": "nothing looks at single records here",
    "interceptor.classes": "nothing looks at single records here",
}
"""Producer settings that a user cannot set, each with the reason."""
_TEXT: Final = frozenset({"string", "binary"})
_TYPES: Final = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": frozenset({"string"}),
    "partition": frozenset({"int"}),
    "headers": frozenset({"array<struct<key:string,value:binary>>"}),
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one sink. It can be pickled."""

    settings: Mapping[str, str]
    """The settings of the producers, by Kafka's names."""
    topic: str | None = None
    """The topic of all rows; overrides the column."""
    is_exactly_once: bool = False
    prefix: str = DEFAULT_PREFIX
    """The prefix of all transactional ids."""
    app_id: str | None = None
    """Identifies a repeated batch write, together with the version, as in Delta tables."""
    app_version: int = -1
    columns: tuple[str, ...] = field(default=("value",))
    """The columns that are sent, or encoded."""
    encoding: Encoding | None = None
    """How rows become values of a schema; None if columns are sent as they are."""


def read_options(options: Mapping[str, Any], schema: Any) -> SinkOptions:
    """Read options without regard to case, and check the columns; may raise SinkOptionError."""
    settings = {
        name.lower().removeprefix(_KAFKA): str(value)
        for name, value in options.items()
        if name.lower().startswith(_KAFKA)
    }
    if not settings.get(_SERVERS):
        raise SinkOptionError("option kafka.bootstrap.servers is missing: give HOST:PORT")
    for name, instead in _TAKEN.items():
        if name in settings:
            raise SinkOptionError(f"option kafka.{name} cannot be set: {instead}")
    _check_names(options)
    topic = options.get("topic") or None
    app_id, app_version = _app(options)
    encoding = read_encoding(options, schema, topic)
    columns = _columns(schema, has_topic=topic is not None) if encoding is None else ()
    return SinkOptions(
        settings,
        topic,
        _flag(options, "exactlyOnce") or app_id is not None,
        options.get("transactionalIdPrefix") or DEFAULT_PREFIX,
        app_id,
        app_version,
        columns if encoding is None else encoding.columns,
        encoding,
    )


def _check_names(options: Mapping[str, Any]) -> None:
    """Refuse a name that resembles an option: a misspelt exactlyOnce would go unnoticed."""
    by_small_name = {name.lower(): name for name in NAMES}
    for name in options:
        small = name.lower().replace("_", "").replace("-", "")
        near = get_close_matches(small, by_small_name, n=1, cutoff=0.8)
        if near and name.lower() not in by_small_name:
            raise SinkOptionError(
                f"option {name} is not known: did you mean {by_small_name[near[0]]}?"
            )


def _flag(options: Mapping[str, Any], name: str) -> bool:
    value = str(options.get(name) or "false").lower()
    if value not in {"true", "false"}:
        raise SinkOptionError(f"option {name} is {value!r}: expected true or false")
    return value == "true"


def _app(options: Mapping[str, Any]) -> tuple[str | None, int]:
    app_id, version = options.get("txnAppId"), options.get("txnVersion")
    if (app_id is None) != (version is None):
        raise SinkOptionError("options txnAppId and txnVersion go together")
    if app_id is None or version is None:
        return None, -1
    if not str(version).isdecimal():
        raise SinkOptionError(f"option txnVersion is {version!r}: expected a number, 0 or more")
    return str(app_id), int(version)


def _columns(schema: Any, *, has_topic: bool) -> tuple[str, ...]:
    type_by_name = {column.name: column.dataType.simpleString() for column in schema.fields}
    if "value" not in type_by_name:
        found = ", ".join(type_by_name) or "none"
        raise SinkOptionError(f"column value is missing; the columns are: {found}")
    if not has_topic and "topic" not in type_by_name:
        raise SinkOptionError("no topic: give the option topic, or a column topic")
    used = [
        name for name in COLUMNS if name in type_by_name and not (has_topic and name == "topic")
    ]
    for name in used:
        if type_by_name[name] not in _TYPES[name]:
            wanted = " or ".join(sorted(_TYPES[name]))
            raise SinkOptionError(f"column {name} is {type_by_name[name]}: expected {wanted}")
    return tuple(used)
