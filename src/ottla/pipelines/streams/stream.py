"""A stream: rows that come from records, each with its own life."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ottla.pipelines.streams import joins
from ottla.pipelines.streams.columns import (
    KEY,
    TIMESTAMP,
    Expression,
    column,
    is_of_the_record,
    own_columns,
    quoted,
)
from ottla.pipelines.streams.flow import Emit, key_of, own_columns_as_json
from ottla.pipelines.streams.grouped import Grouped
from ottla.pipelines.streams.json_records import Schema, read_json
from ottla.pipelines.streams.table import Table
from ottla.pipelines.streams.targets import DELTA, target

if TYPE_CHECKING:
    from ottla.pipelines.streams.pipeline import Pipeline

OnError = Literal["stop", "skip"]
FilesFormat = Literal["json", "csv", "parquet"]


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows over a DataFrame, which is always there as `df`. Every call returns another stream.

    Fresh from a topic it has the columns of Spark's Kafka source. After `json` it has the fields
    of the value, and `_key`, `_topic`, `_partition`, `_offset`, `_timestamp` of the record.
    """

    pipeline: "Pipeline"
    df: DataFrame
    """The rows, for anything that is not here: `stream.transform(lambda df: …)` brings it back."""
    is_raw: bool = False
    key: tuple[str, ...] = ()
    """The columns that make the key of what is written."""
    time: str | None = None
    """The column with the event time, after `event_time`."""
    emit: Emit = Emit.FINAL

    def json(
        self,
        schema: Schema,
        *,
        dead_letter_topic: str | None = None,
        on_error: OnError = "stop",
    ) -> "Stream":
        """Read values as JSON objects with these fields; records without a value are left out.

        A bad record ends the query with its topic, partition, offset and what is wrong with it;
        or it is skipped; or it goes to a dead-letter topic, by a query of its own.
        """
        self._check_raw("json")
        records = read_json(self.df.where(sql.col("value").isNotNull()), schema)
        if dead_letter_topic is not None:
            letters = records.dead_letters(self.pipeline.name)
            self.pipeline.add(dead_letter_topic, letters, Emit.FINAL)
        rows = records.rows(must_be_good=dead_letter_topic is None and on_error == "stop")
        return Stream(self.pipeline, rows, key=(KEY,))

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> "Stream":
        """Do anything with the DataFrame."""
        return replace(self, df=function(self.df))

    def filter(self, condition: Expression) -> "Stream":
        """Keep the rows for which this holds."""
        return replace(self, df=self.df.where(column(condition)))

    def map(self, **columns: Expression) -> "Stream":
        """Make new rows: these columns, beside those of the record.

        The event time stays known only if its column does.
        """
        kept = [name for name in self.df.columns if is_of_the_record(name) and not self.is_raw]
        made = [column(value).alias(name) for name, value in columns.items()]
        return replace(
            self,
            df=self.df.select(*kept, *made),
            is_raw=False,
            key=self.key if set(self.key) <= {*kept, *columns} else (),
            time=self.time if self.time in {*kept, *columns} else None,
        )

    def with_columns(self, **columns: Expression) -> "Stream":
        """Add columns, or replace them."""
        made = {name: column(value) for name, value in columns.items()}
        return replace(self, df=self.df.withColumns(made))

    def branch(self, *conditions: Expression) -> "tuple[Stream, ...]":
        """Split: a row goes to the first condition that holds, else to one stream more, the last.

        Each branch that is written is a query of its own and reads its topics itself.
        """
        branches, rest = [], sql.lit(True)
        for condition in conditions:
            holds = sql.coalesce(column(condition), sql.lit(False))
            branches.append(self.filter(rest & holds))
            rest &= ~holds
        return (*branches, self.filter(rest))

    def key_by(self, *names: str) -> "Stream":
        """Say which columns make the key of what is written."""
        key_of(self.df, names)
        return replace(self, key=names)

    def event_time(self, name: str = TIMESTAMP, *, late: str = "0 seconds") -> "Stream":
        """Say which column tells when things happened, and how late rows may come.

        Rows that are later than that may be left out of windows and joins. Windows are written
        once nothing can change them any more.
        """
        return replace(self, df=self.df.withWatermark(name, late), time=name)

    def group(self, *by: Expression) -> Grouped:
        """Take rows together that are alike in these; without any, all."""
        self._check_each_row_once("group")
        return Grouped(self, tuple(by))

    def join(
        self,
        other: "Stream | Table",
        on: str,
        *,
        within: str | None = None,
        how: joins.How = "inner",
    ) -> "Stream":
        """Join with another stream within a time, or with a table by its key.

        Of two streams, `on` is a column of both, and rows meet whose event times are not further
        apart than `within`. With a table, `on` is the column that is compared with its key; the
        table is taken as it is when the micro-batch begins, and its changes alone bring no rows.
        Columns that both have get the prefix `other_` on the other side.
        """
        self._check_each_row_once("join")
        if isinstance(other, Table):
            if within is not None:
                raise ValueError("`within` is for two streams: a table has no time")
            return replace(self, df=joins.with_table(self.df, other.snapshot(), on, how))
        other._check_each_row_once("join")  # noqa: SLF001
        times = joins.Times(self.time, other.time, within)
        return replace(self, df=joins.with_stream(self.df, other.df, on, times, how))

    def to(
        self,
        topic: str,
        *,
        key: Expression | None = None,
        value: Expression | None = None,
        headers: Expression | None = None,
        name: str | None = None,
        exactly_once: bool = True,
    ) -> None:
        """Write to a topic: the row's own columns as JSON, unless a value is given.

        A flow is known by its name, which is the topic's: under it is kept how far it has come.
        """
        made_key = column(key) if key is not None else self._key()
        columns = [made_key.alias("key"), self._value(value).alias("value")]
        if headers is not None:
            columns.append(column(headers).alias("headers"))
        elif self.is_raw and "headers" in self.df.columns:
            columns.append(sql.col("headers"))
        rows = self.df.select(*columns)
        self.pipeline.add(topic, rows, self.emit, name=name, is_exactly_once=exactly_once)

    def to_files(
        self,
        path: str,
        *,
        format: FilesFormat = "parquet",  # noqa: A002 - Spark's word
        partition_by: Sequence[str] = (),
        name: str | None = None,
    ) -> None:
        """Write the row's own columns to files in a folder of this machine, exactly once.

        A flow is known by its name, which is the folder's. Small files are merged.
        """
        self._to_target(path, format, partition_by, name)

    def to_delta(
        self, path: str, *, partition_by: Sequence[str] = (), name: str | None = None
    ) -> None:
        """Append the row's own columns to a Delta table, exactly once. It needs ottla[delta]."""
        self._to_target(path, DELTA, partition_by, name)

    def _to_target(
        self, path: str, form: str, partition_by: Sequence[str], name: str | None
    ) -> None:
        self._check_each_row_once("to_files" if form != DELTA else "to_delta")
        names = self.df.columns if self.is_raw else own_columns(self.df.columns)
        rows = self.df.select(sql.struct(*(sql.col(quoted(each)) for each in names)).alias("value"))
        found = target(path, form, partition_by)
        self.pipeline.add("", rows, self.emit, name=name or Path(path).name, target=found)

    def _key(self) -> Column:
        return sql.col("key") if self.is_raw and not self.key else key_of(self.df, self.key)

    def _value(self, value: Expression | None) -> Column:
        if value is not None:
            return column(value)
        return sql.col("value") if self.is_raw else own_columns_as_json(self.df)

    def _check_raw(self, what: str) -> None:
        if not self.is_raw:
            raise ValueError(f"`{what}` reads records as they come from a topic: call it first")

    def _check_each_row_once(self, what: str) -> None:
        if self.emit is Emit.UPDATES and not self.pipeline.is_batch:
            raise ValueError(
                f"`{what}` needs rows that change no more, and these are updates: write them to a"
                " topic and read that as a table, or use windows with an event time"
            )
