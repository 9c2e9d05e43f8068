"""A flow: rows and their target, run as a query or in a batch.

Targets besides topics are directories of files and Delta tables, by connector sinks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ottla.pipelines.connect.declaring.connector import Home, SinkConnector
from ottla.pipelines.connect.declaring.settings import SettingError, Values, read_settings
from ottla.pipelines.connect.delta_sink import DeltaSink
from ottla.pipelines.connect.files.files_sink import FilesSink
from ottla.pipelines.sink.writers import QUERY_ID
from ottla.pipelines.streams.columns import own_columns, quoted

DELTA: Final = "delta"

FORMAT: Final = "ottla"
_FAITHFUL: Final = {"ignoreNullFields": "false"}


@dataclass(frozen=True, slots=True)
class Target:
    """A directory of files or a Delta table."""

    connector: type[SinkConnector]
    settings: Values

    def sink(self, name: str, checkpoint_id: str) -> SinkConnector:
        """Return the sink of a flow; micro-batches are numbered from 0 for each checkpoint id."""
        return self.connector(Home(name, Path(), checkpoint_id), self.settings)

    def write_once(self, name: str, rows: "DataFrame") -> None:
        """Add the rows of a batch that keeps no state."""
        self.sink(name, str(uuid4())).write(rows, 0)


class TargetWriter:
    """Writes the micro-batches of a query to a target, exactly once."""

    def __init__(self, name: str, target: Target) -> None:
        self._name = name
        self._target = target

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        """Write a micro-batch, unless it was written before.

        A query's id belongs to its checkpoint: a new checkpoint begins with batch 0 again.
        """
        query_id = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        assert query_id, "Spark names its queries"
        self._target.sink(self._name, query_id).write(rows, batch_id)

    def close(self) -> None:
        """Do nothing: no resource stays open."""


def target(path: str, form: str, partition_by: Sequence[str]) -> Target:
    """Return a target. ValueError or ConnectorError for a wrong argument or a missing package."""
    kind: type[SinkConnector] = DeltaSink if form == DELTA else FilesSink
    given: dict[str, Any] = {"path": path, "partition.by": list(partition_by)}
    if form != DELTA:
        given["format"] = form
    try:
        found = Target(kind, read_settings(given, kind.SETTINGS))
    except SettingError as error:
        raise ValueError(f"{error.key}: {error.sentence}") from None
    found.sink("", "").check()
    return found


class Emit(StrEnum):
    """The output mode of a query."""

    FINAL = "append"
    """Each row once, when it is final."""
    UPDATES = "update"
    """In each micro-batch, every changed row."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Rows and their target: a topic, files or a Delta table.

    Rows for a topic have the columns key, value and optionally headers. Rows for another target
    have one column, value, a struct of all columns to write.
    """

    name: str
    topic: str
    rows: DataFrame
    emit: Emit
    is_exactly_once: bool
    target: Target | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the sink, such as `encode`."""


@dataclass(frozen=True, slots=True)
class Form:
    """The format of written values: columns of a schema that is registered."""

    encode: str
    """avro, json or protobuf."""
    subject: str | None = None
    record_name: str | None = None

    def options(self, registry: Mapping[str, str]) -> dict[str, str]:
        """Return the options of the sink."""
        given = {
            "encode": self.encode,
            "encode.subject": self.subject,
            "encode.name": self.record_name,
        }
        return {**registry, **{name: text for name, text in given.items() if text is not None}}


def as_struct(frame: DataFrame) -> Column:
    """Return a row's own columns as a struct."""
    names = own_columns(frame.columns)
    if not names:
        raise ValueError(f"nothing is left to write: the columns are {frame.columns}")
    return sql.struct(*(sql.col(quoted(name)) for name in names))


def as_json(frame: DataFrame, names: list[str]) -> Column:
    """Return columns as one JSON object, nulls included."""
    unknown = [name for name in names if name not in frame.columns]
    if unknown:
        raise ValueError(f"there is no column {unknown[0]!r}: there are {frame.columns}")
    return sql.to_json(sql.struct(*(sql.col(quoted(name)) for name in names)), _FAITHFUL)


def own_columns_as_json(frame: DataFrame) -> Column:
    """Return a row's own columns as one JSON object."""
    names = own_columns(frame.columns)
    if not names:
        raise ValueError(f"nothing is left to write: the columns are {frame.columns}")
    return as_json(frame, names)


def key_of(frame: DataFrame, names: tuple[str, ...]) -> Column:
    """Return the key of rows: one column as text, or several as a JSON object."""
    if not names:
        return sql.lit(None).cast("string")
    if len(names) == 1:
        return sql.col(quoted(names[0])).cast("string")
    return as_json(frame, list(names))
