"""Joins of a stream with another stream or a table."""

from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ottla.pipelines.streams.columns import KEY, is_of_the_record, own_columns, quoted

How = Literal["inner", "left", "outer"]
"""Rows without a match: none are kept, or all of the first side, or all of both sides."""
OTHER: Final = "other_"
_ON: Final = "_other_on"
_TIME: Final = "_other_time"


@dataclass(frozen=True, slots=True)
class Times:
    """The event times of two streams, and their largest allowed distance."""

    first: str | None
    other: str | None
    within: str | None

    def are_near(self) -> Column:
        """Whether the event times of two rows are within the allowed distance."""
        if self.within is None:
            raise ValueError(
                "streams are joined within a time, as in within='1 hour': without it every row"
                " would have to be kept for ever"
            )
        if self.first is None or self.other is None:
            raise ValueError("both streams need an event time before they are joined")
        span = f"INTERVAL '{self.within}'"
        first, other = quoted(self.first), quoted(_TIME)
        return sql.expr(f"{other} BETWEEN {first} - {span} AND {first} + {span}")


def with_stream(first: DataFrame, other: DataFrame, on: str, times: Times, how: How) -> DataFrame:
    """Join two streams on a column of both, where their event times are near."""
    near = times.are_near()
    _check_column(first, on)
    _check_column(other, on)
    assert times.other is not None
    marked = other.withColumns({_ON: sql.col(quoted(on)), _TIME: sql.col(quoted(times.other))})
    renamed = _renamed(marked.drop(on), first, {_ON, _TIME})
    same = sql.col(quoted(on)) == sql.col(_ON)
    joined = first.join(renamed, same & near, "full" if how == "outer" else how)
    if how == "outer":
        joined = joined.withColumn(on, sql.coalesce(sql.col(quoted(on)), sql.col(_ON)))
    return joined.drop(_ON, _TIME)


def with_table(first: DataFrame, table: DataFrame, on: str, how: How) -> DataFrame:
    """Join each row with the table's row with the key in the column `on`."""
    if how == "outer":
        raise ValueError("a stream and a table are joined inner or left: a table brings no rows")
    _check_column(first, on)
    renamed = _renamed(table.withColumnRenamed(KEY, _ON), first, {_ON})
    same = sql.col(quoted(on)).cast("string") == sql.col(_ON)
    return first.join(renamed, same, how).drop(_ON)


def _renamed(other: DataFrame, first: DataFrame, kept: set[str]) -> DataFrame:
    """Keep the other side's own columns, with a prefix if the first side has them, too."""
    taken = set(first.columns)
    names = [name for name in other.columns if name in kept or name in own_columns([name])]
    columns = [
        sql.col(quoted(name)).alias(f"{OTHER}{name}" if name in taken else name) for name in names
    ]
    return other.select(*columns)


def _check_column(frame: DataFrame, name: str) -> None:
    if name not in frame.columns:
        there = [known for known in frame.columns if not is_of_the_record(known)]
        raise ValueError(f"there is no column {name!r} to join on: there are {there}")
