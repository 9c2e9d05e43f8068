"""A flow: rows and their target, run as a query or in a batch."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ottla.pipelines.streams.columns import own_columns, quoted
from ottla.pipelines.streams.targets import Target

FORMAT: Final = "ottla"
_FAITHFUL: Final = {"ignoreNullFields": "false"}


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
