"""Reads and validates a file that declares connectors: TOML, YAML or JSON, by its suffix.

A file has one connector at the top, or several under `connectors`, which share the settings at the
top. Keys have Kafka's names; `a.b = 1` and a table `[a]` with `b = 1` are the same. `${env:NAME}`
in a value stands for an environment variable.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ottla.model.settings.settings import nearest_to
from ottla.pipelines.connect.declaring.connector import Connector, SinkConnector, SourceConnector
from ottla.pipelines.connect.declaring.errors import DeclarationError
from ottla.pipelines.connect.declaring.settings import (
    REQUIRED,
    Setting,
    SettingError,
    Values,
    is_known,
    read_settings,
    text,
    whole,
    words,
)
from ottla.pipelines.connect.declaring.transforms import TRANSFORMS, transform_name
from ottla.pipelines.spark.spark_version import (
    PACKAGES,
    STREAMS,
    check_spark_extra,
    check_spark_version,
)

DEFAULT_BROKERS: Final = "127.0.0.1:9092"
CONVERTERS: Final = ("json", "string", "bytes", "avro", "json-schema", "protobuf")
CONNECTORS: Final = {
    "files-source": "ottla.pipelines.connect.files.files_source:FilesSource",
    "postgres-source": "ottla.pipelines.connect.postgres.source:PostgresSource",
    "files-sink": "ottla.pipelines.connect.files.files_sink:FilesSink",
    "postgres-sink": "ottla.pipelines.connect.postgres.postgres_sink:PostgresSink",
    "delta-sink": "ottla.pipelines.connect.delta_sink:DeltaSink",
}
"""The built-in connectors, by their names in declarations."""

COMMON: Final = (
    Setting("name", text, REQUIRED, "the name of the connector"),
    Setting("connector.class", text, REQUIRED, f"one of {', '.join(CONNECTORS)}, or module:Class"),
    Setting("bootstrap.servers", text, None, "where the cluster is"),
    Setting("kafka.", text, None, "settings of the Kafka client"),
    Setting("checkpoint.dir", text, "connect-checkpoints", "where progress is kept"),
    Setting("poll.interval.ms", whole, 500, "how often to look for something new"),
    Setting("key.converter", text, "json", "how keys are written in topics", CONVERTERS),
    Setting("value.converter", text, "json", "how values are written in topics", CONVERTERS),
    Setting("registry.url", text, None, "the schema registry of converters with a schema"),
    Setting("value.subject", text, None, "the subject, if it is not the topic's name and -value"),
    Setting("key.schema", text, None, "the fields of JSON keys, such as `id BIGINT`"),
    Setting("value.schema", text, None, "the fields of JSON values, such as `id BIGINT, at DATE`"),
    Setting("errors.tolerance", text, "none", "whether bad records pass by", ("none", "all")),
    Setting("errors.deadletterqueue.topic.name", text, None, "a topic for bad records"),
)
OF_SOURCES: Final = (
    Setting("topic", text, None, "the topic for records that name none"),
    Setting("topic.creation.default.partitions", whole, None, "partitions of topics made here"),
    Setting("topic.creation.default.replication.factor", whole, None, "replicas of such topics"),
    Setting("exactly.once.support", text, "required", "write in transactions, or not",
            ("required", "disabled")),
)  # fmt: skip
OF_SINKS: Final = (
    Setting("topics", words, None, "the topics that are read"),
    Setting("topics.regex", text, None, "or a pattern of their names"),
    Setting("max.batch.records", whole, 100_000, "how many records one batch has at most"),
    Setting("starting.offsets", text, "earliest", "where to begin", ("earliest", "latest")),
)


@dataclass(frozen=True, slots=True)
class DeclaredTransform:
    """A transform with its settings, under the name that it has in the file."""

    name: str
    type: str
    settings: Values


@dataclass(frozen=True, slots=True)
class Declaration:
    """One declared connector: its class, its settings, its transforms in order."""

    place: str
    name: str
    connector: type[Connector]
    settings: Values
    transforms: tuple[DeclaredTransform, ...]
    folder: Path

    @property
    def is_source(self) -> bool:
        """Whether the connector is a source."""
        return issubclass(self.connector, SourceConnector)


def read_declarations(path: Path) -> tuple[Declaration, ...]:
    """Read all connectors of a file; DeclarationError names the fault and its place."""
    given = _parsed(path)
    several = given.pop("connectors", None)
    if several is None:
        return (_declaration(path, str(path), given, {}),)
    if not _is_tables(several):
        raise DeclarationError(str(path), "connectors", "is to be a list of tables")
    shared = flattened(given)
    declared = tuple(
        _declaration(path, f"{path}, connector {one.get('name', number)}", one, shared)
        for number, one in enumerate(several, 1)
    )
    _check_shared(path, declared, shared)
    return declared


def _check_shared(path: Path, declared: Sequence[Declaration], shared: Mapping[str, Any]) -> None:
    """Check that names are unique, and that a connector knows each setting at the top."""
    names = [one.name for one in declared]
    for name in names:
        if names.count(name) > 1:
            raise DeclarationError(str(path), "name", f"two connectors are called {name!r}")
    tables = [setting for one in declared for setting in _table(one.connector)]
    for key in shared:
        if not is_known(key, tables):
            hint = nearest_to(key, [setting.name for setting in tables])
            raise DeclarationError(str(path), key, f"there is no such setting{hint}")


def _parsed(path: Path) -> dict[str, Any]:
    try:
        written = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DeclarationError(str(path), "", "there is no such file") from None
    try:
        if path.suffix == ".toml":
            found: object = tomllib.loads(written)
        elif path.suffix == ".json":
            found = json.loads(written)
        elif path.suffix in {".yaml", ".yml"}:
            found = _yaml(path, written)
        else:
            raise DeclarationError(str(path), "", "is to end in .toml, .yaml or .json")
    except ValueError as error:
        raise DeclarationError(str(path), "", str(error)) from None
    if not isinstance(found, dict):
        raise DeclarationError(str(path), "", "is to be a table of keys and values")
    return found


def _yaml(path: Path, written: str) -> object:
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise DeclarationError(str(path), "", "YAML needs `pip install pyyaml`") from None
    try:
        return yaml.safe_load(written)
    except yaml.YAMLError as error:
        raise DeclarationError(str(path), "", " ".join(str(error).split())) from None


def _declaration(
    path: Path, place: str, given: Mapping[str, Any], shared: Mapping[str, Any]
) -> Declaration:
    flat = flattened(given)
    if "connector" in flat:
        flat.setdefault("connector.class", flat.pop("connector"))
    try:
        connector = _connector(flat.get("connector.class", shared.get("connector.class")))
        table = _table(connector)
        flat = {**{key: value for key, value in shared.items() if is_known(key, table)}, **flat}
        flat = {key: _filled(place, key, value) for key, value in flat.items()}
        transforms = _transforms(place, flat)
        settings = read_settings(flat, table)
        _check_together(settings, connector)
    except SettingError as error:
        raise DeclarationError(place, error.key, error.sentence) from None
    brokers = settings["bootstrap.servers"] or os.environ.get("OTTLA_BROKERS", DEFAULT_BROKERS)
    folder = path.parent / settings["checkpoint.dir"] / settings["name"]
    values = {**settings, "bootstrap.servers": brokers}
    return Declaration(place, settings["name"], connector, values, transforms, folder.absolute())


def _table(connector: type[Connector]) -> tuple[Setting, ...]:
    kind = OF_SOURCES if issubclass(connector, SourceConnector) else OF_SINKS
    return (*COMMON, *kind, *connector.SETTINGS)


def _is_tables(said: object) -> bool:
    return isinstance(said, list) and all(isinstance(one, dict) for one in said)


def _check_together(settings: Values, connector: type[Connector]) -> None:
    if re.fullmatch(r"[\w.-]+", settings["name"]) is None:
        raise SettingError("name", "may have letters, digits, `.`, `_` and `-` only")
    has_topics = bool(settings.get("topics") or settings.get("topics.regex"))
    if issubclass(connector, SinkConnector) and not has_topics:
        raise SettingError("topics", "is missing: the topics that are read, or topics.regex")


def _connector(said: object) -> type[Connector]:
    if not isinstance(said, str):
        raise SettingError("connector.class", f"is missing: one of {', '.join(CONNECTORS)}")
    module, colon, name = CONNECTORS.get(said, said).partition(":")
    if not colon:
        hint = nearest_to(said, CONNECTORS)
        known = ", ".join(CONNECTORS)
        raise SettingError(
            "connector.class", f"{said!r} is none of {known}, nor module:Class{hint}"
        )
    try:
        found = getattr(import_module(module), name, None)
    except ImportError as error:
        reason = _missing_spark(error) or f"{module} cannot be imported: {error}"
        raise SettingError("connector.class", reason) from None
    if not isinstance(found, type) or not issubclass(found, SourceConnector | SinkConnector):
        raise SettingError(
            "connector.class", f"{name} in {module} is no SourceConnector and no SinkConnector"
        )
    return found


def _missing_spark(error: ImportError) -> str | None:
    """Return how to install Spark, if an import failed for lack of it."""
    if error.name is None or error.name.partition(".")[0] not in PACKAGES:
        return None
    try:
        check_spark_extra("pipelines")
        check_spark_version(STREAMS, "a connector")
    except ImportError as missing:
        return str(missing)
    return None


def _transforms(place: str, flat: dict[str, Any]) -> tuple[DeclaredTransform, ...]:
    """Remove the transforms from the keys: a list of tables, or names with keys as in Kafka."""
    if _is_tables(flat.get("transforms")):
        tables = flat.pop("transforms")
        named = {f"transforms[{number}]": flattened(table) for number, table in enumerate(tables)}
    else:
        named = _named_transforms(flat)
    made = []
    for name, given in named.items():
        filled = {key: _filled(place, f"{name}.{key}", value) for key, value in given.items()}
        try:
            made.append(_transform(name, filled))
        except SettingError as error:
            raise SettingError(f"{name}.{error.key}", error.sentence) from None
    return tuple(made)


def _named_transforms(flat: dict[str, Any]) -> dict[str, dict[str, Any]]:
    members = [key for key in flat if key.startswith("transforms.")]
    appearing = dict.fromkeys(key.split(".")[1] for key in members)
    listed = flat.pop("transforms", None)
    order = tuple(appearing) if listed is None else words(listed)
    named: dict[str, dict[str, Any]] = {f"transforms.{name}": {} for name in order}
    for key in members:
        _, name, rest = key.split(".", 2)
        if name not in order:
            raise SettingError(key, f"transforms names no {name!r}{nearest_to(name, order)}")
        named[f"transforms.{name}"][rest] = flat.pop(key)
    return named


def _transform(name: str, given: dict[str, Any]) -> DeclaredTransform:
    said = given.pop("type", None)
    kind = transform_name(str(said))
    if kind is None:
        hint = nearest_to(str(said), TRANSFORMS)
        raise SettingError("type", f"{said!r} is none of {', '.join(TRANSFORMS)}{hint}")
    return DeclaredTransform(name, kind, read_settings(given, TRANSFORMS[kind].settings))


def flattened(given: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested tables as one, with dots between the names."""
    flat: dict[str, Any] = {}
    for key, value in given.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{above}{key}.")
        else:
            flat[f"{above}{key}"] = value
    return flat


_VARIABLE: Final = re.compile(r"\$\{env:([^}]*)\}")


def _filled(place: str, key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value

    def found(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise DeclarationError(place, key, f"the environment has no {match[1]!r}")
        return os.environ[match[1]]

    return _VARIABLE.sub(found, value)
