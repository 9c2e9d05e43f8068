"""A stream: independent rows that come from records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ottla.pipelines.source.typed_columns import CORRUPT
from ottla.pipelines.streams import joins
from ottla.pipelines.streams.columns import (
    KEY,
    TIMESTAMP,
    TOPIC,
    Expression,
    column,
    is_of_the_record,
    own_columns,
    quoted,
)
from ottla.pipelines.streams.flow import (
    DELTA,
    Emit,
    Form,
    as_struct,
    key_of,
    own_columns_as_json,
    target,
)
from ottla.pipelines.streams.grouped import Grouped
from ottla.pipelines.streams.json_records import Schema, read_json
from ottla.pipelines.streams.table import Table

if TYPE_CHECKING:
    from ottla.pipelines.streams.pipeline import Pipeline

OnError = Literal["stop", "skip"]
FilesFormat = Literal["json", "csv", "parquet"]


@dataclass(frozen=True, slots=True)
class Origin:
    """A topic as it was read, and how to read it with more options."""

    topic: str
    df: DataFrame
    read: Callable[[Mapping[str, str]], DataFrame]


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows over a DataFrame, which is always available as `df`. Every call returns a new stream.

    A new stream has the columns of Spark's Kafka source. After `json` or `typed` it has the fields
    of the value, and `_key`, `_topic`, `_partition`, `_offset`, `_timestamp` of the record.
    """

    pipeline: "Pipeline"
    df: DataFrame
    """The rows, for any other operation: `stream.transform(lambda df: …)` returns a stream."""
    is_raw: bool = False
    key: tuple[str, ...] = ()
    """The columns of the written key."""
    time: str | None = None
    """The column with the event time, after `event_time`."""
    emit: Emit = Emit.FINAL
    form: Form | None = None
    """The format of written values; JSON without a schema by default."""
    origin: Origin | None = None
    """How a stream that is still raw was read."""

    def typed(
        self,
        *,
        subject: str | None = None,
        version: int | None = None,
        decode: str = "value",
        dead_letter_topic: str | None = None,
        on_error: OnError = "stop",
    ) -> "Stream":
        """Decode values by the schema registry, into the columns of the subject's latest version.

        Records without a value are left out. A bad record ends the query with an error that has its
        partition, offset and reason. With `on_error` it is skipped, or goes to a dead-letter topic.
        `decode` may be `key,value`: then `_key` is decoded, too.
        """
        self._check_raw("typed")
        if self.origin is None or self.origin.df is not self.df:
            raise ValueError("`typed` reads a topic by its schema: call it before other operations")
        given = {"decode.subject": subject, "decode.dlq.topic": dead_letter_topic}
        given["decode.version"] = None if version is None else str(version)
        wanted = {name: text for name, text in given.items() if text is not None}
        wanted |= {"decode": decode, "decode.tombstones": "drop"}
        if dead_letter_topic is not None:
            wanted["decode.mode"] = "dlq"
        elif on_error == "skip":
            wanted["decode.mode"] = "permissive"
        rows = self.origin.read({**self.pipeline.registry_options(), **wanted})
        if CORRUPT in rows.columns:
            rows = rows.where(sql.col(CORRUPT).isNull()).drop(CORRUPT)
        if TOPIC not in rows.columns:
            rows = rows.withColumn(TOPIC, sql.lit(self.origin.topic))
        if "key" not in decode:
            rows = rows.withColumn(KEY, sql.col(KEY).cast("string"))
        is_plain = rows.schema[KEY].dataType.typeName() != "struct"
        return Stream(self.pipeline, rows, key=(KEY,) if is_plain else ())

    def avro(self, *, subject: str | None = None, record_name: str | None = None) -> "Stream":
        """Write values as Avro; the row's own columns are registered as their schema."""
        return replace(self, form=Form("avro", subject, record_name))

    def protobuf(self, *, subject: str | None = None, record_name: str | None = None) -> "Stream":
        """Write values as Protobuf; the row's own columns are registered as their schema."""
        return replace(self, form=Form("protobuf", subject, record_name))

    def json_schema(
        self, *, subject: str | None = None, record_name: str | None = None
    ) -> "Stream":
        """Write values as JSON with a registered schema, and the id of the schema before them."""
        return replace(self, form=Form("json", subject, record_name))

    def json(
        self,
        schema: Schema,
        *,
        dead_letter_topic: str | None = None,
        on_error: OnError = "stop",
    ) -> "Stream":
        """Parse values as JSON objects with these fields; records without a value are left out.

        A bad record ends the query with an error that has its topic, partition, offset and reason.
        With `on_error` it is skipped, or goes to a dead-letter topic, by a separate query.
        """
        self._check_raw("json")
        records = read_json(self.df.where(sql.col("value").isNotNull()), schema)
        if dead_letter_topic is not None:
            letters = records.dead_letters(self.pipeline.name)
            self.pipeline.add(dead_letter_topic, letters, Emit.FINAL)
        rows = records.rows(must_be_good=dead_letter_topic is None and on_error == "stop")
        return Stream(self.pipeline, rows, key=(KEY,))

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> "Stream":
        """Apply a function to the DataFrame."""
        return replace(self, df=function(self.df))

    def filter(self, condition: Expression) -> "Stream":
        """Keep the rows for which the condition holds."""
        return replace(self, df=self.df.where(column(condition)))

    def map(self, **columns: Expression) -> "Stream":
        """Replace the row's own columns with these; the record's columns stay.

        The event time is lost unless its column is among them.
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
        """Split: a row goes to the stream of the first condition that holds, else to the last.

        Each branch that is written is a query of its own and reads its topics itself.
        """
        branches, rest = [], sql.lit(True)
        for condition in conditions:
            holds = sql.coalesce(column(condition), sql.lit(False))
            branches.append(self.filter(rest & holds))
            rest &= ~holds
        return (*branches, self.filter(rest))

    def key_by(self, *names: str) -> "Stream":
        """Set the columns of the written key."""
        key_of(self.df, names)
        return replace(self, key=names)

    def event_time(self, name: str = TIMESTAMP, *, late: str = "0 seconds") -> "Stream":
        """Set the column of the event time, and how late rows may arrive.

        Rows that are later may be left out of windows and joins. Windows are written once no
        allowed row can change them.
        """
        return replace(self, df=self.df.withWatermark(name, late), time=name)

    def group(self, *by: Expression) -> Grouped:
        """Group rows with equal values of these expressions; without any, all rows."""
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

        For two streams, `on` is a column of both, and rows match if their event times differ by at
        most `within`. For a table, `on` is the column to compare with its key. The table is read at
        the start of each micro-batch, and its changes alone produce no rows. Columns that both
        sides have get the prefix `other_` on the other side.
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

        After `avro`, `protobuf` or `json_schema`, a given value must be a struct.

        The name of the flow, by default the topic's, identifies its position.
        """
        made_key = column(key) if key is not None else self._key()
        columns = [made_key.alias("key"), self._value(value).alias("value")]
        if headers is not None:
            columns.append(column(headers).alias("headers"))
        elif self.is_raw and "headers" in self.df.columns:
            columns.append(sql.col("headers"))
        self.pipeline.add(
            topic,
            self.df.select(*columns),
            self.emit,
            name=name,
            is_exactly_once=exactly_once,
            options=self.form.options(self.pipeline.registry_options()) if self.form else None,
        )

    def to_files(
        self,
        path: str,
        *,
        format: FilesFormat = "parquet",  # noqa: A002 - Spark's word
        partition_by: Sequence[str] = (),
        name: str | None = None,
    ) -> None:
        """Write the row's own columns to files in a local directory, exactly once.

        The name of the flow is by default the directory's. Small files are merged.
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
        if self.form is not None:
            if self.is_raw:
                raise ValueError("records are bytes: `json`, `typed` or `map` makes columns first")
            return as_struct(self.df)
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
