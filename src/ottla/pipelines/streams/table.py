"""A table: the newest record of each key.

Spark keeps it as the state of one aggregation, `max_by` of the offset, and a join of tables is the
same aggregation over all of their records: then one change of any of them brings the joined row.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ottla.pipelines.streams.columns import (
    DELETED,
    KEY,
    OFFSET,
    Expression,
    column,
    is_of_the_record,
    quoted,
)
from ottla.pipelines.streams.flow import Emit, Form, as_struct, own_columns_as_json
from ottla.pipelines.streams.joins import OTHER, How
from ottla.pipelines.streams.json_records import Schema, fields_of, read_json

if TYPE_CHECKING:
    from ottla.pipelines.streams.pipeline import Pipeline
    from ottla.pipelines.streams.stream import OnError

Changes = Callable[[bool], DataFrame]
"""Returns the changes of a table: all until now as a batch if true is given, else a stream."""
Step = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class Side:
    """A table in a join, or a single table."""

    changes: Changes
    name_by_column: dict[str, str]
    """The names of its columns in the joined table."""
    is_needed: bool = True
    """Whether a joined row requires a row of this side."""


@dataclass(frozen=True, slots=True)
class UnreadTable:
    """A topic as a table, before `json` parses its values."""

    pipeline: "Pipeline"
    topic: str

    def json(
        self,
        schema: Schema,
        *,
        dead_letter_topic: str | None = None,
        on_error: "OnError" = "stop",
    ) -> "Table":
        """Parse values as JSON objects with these fields; a record without a value deletes its key.

        `on_error` handles bad records as for streams. A skipped bad record changes nothing. Records
        without a key are left out.
        """
        must_be_good = dead_letter_topic is None and on_error == "stop"

        def changes(is_static: bool) -> DataFrame:
            raw = self.pipeline.read(self.topic, is_static=is_static)
            marked = raw.where("key IS NOT NULL").withColumn(DELETED, sql.expr("value IS NULL"))
            return read_json(marked, schema).rows(must_be_good=must_be_good)

        if dead_letter_topic is not None:
            raw = self.pipeline.read(self.topic, is_static=self.pipeline.is_batch)
            letters = read_json(raw, schema).dead_letters(self.pipeline.name)
            self.pipeline.add(dead_letter_topic, letters, Emit.FINAL)
        names = fields_of(schema).names
        return Table(self.pipeline, (Side(changes, dict(zip(names, names, strict=True))),))


@dataclass(frozen=True, slots=True)
class Table:
    """Mutable rows by key. The key is the column `_key`."""

    pipeline: "Pipeline"
    sides: tuple[Side, ...]
    steps: tuple[Step, ...] = ()
    form: Form | None = None
    """The format of written values; JSON without a schema by default."""

    @property
    def df(self) -> DataFrame:
        """The rows as a DataFrame: in a batch all rows, in a stream the changed rows.

        Changed rows have a column `_deleted`, and need the output mode update.
        """
        return self.snapshot() if self.pipeline.is_batch else self._latest(is_static=False)

    def snapshot(self) -> DataFrame:
        """Return the rows that exist when the DataFrame is used, or a micro-batch begins."""
        return self._latest(is_static=True).where(~sql.col(DELETED)).drop(DELETED)

    def filter(self, condition: Expression) -> "Table":
        """Keep the rows for which the condition holds; others count as deleted."""
        holds = sql.coalesce(column(condition), sql.lit(False))
        return self._then(lambda rows: rows.withColumn(DELETED, sql.col(DELETED) | ~holds))

    def with_columns(self, **columns: Expression) -> "Table":
        """Add columns, or replace them."""
        made = {name: column(value) for name, value in columns.items()}
        return self._then(lambda rows: rows.withColumns(made))

    def map(self, **columns: Expression) -> "Table":
        """Replace the columns of each row; the keys stay."""
        made = [column(value).alias(name) for name, value in columns.items()]
        return self._then(lambda rows: rows.select(KEY, DELETED, *made))

    def join(self, other: "Table", *, how: How = "inner") -> "Table":
        """Join rows of the same key. Shared column names get the prefix `other_` on one side."""
        if self.steps or other.steps:
            raise ValueError("join tables first, then filter and map the result")
        if how == "outer" and len(self.sides) + len(other.sides) > 2:
            raise ValueError("an outer join has two tables, no more")
        if len(other.sides) > 1:
            raise ValueError("a joined table can be joined with others, not others with it")
        (side,) = other.sides
        taken = {name for mine in self.sides for name in mine.name_by_column.values()}
        names = {
            known: f"{OTHER}{name}" if name in taken else name
            for known, name in side.name_by_column.items()
        }
        mine = [
            replace(known, is_needed=known.is_needed and how != "outer") for known in self.sides
        ]
        added = replace(side, name_by_column=names, is_needed=how == "inner")
        return Table(self.pipeline, (*mine, added))

    def avro(self, *, subject: str | None = None, record_name: str | None = None) -> "Table":
        """Write values as Avro; the columns are registered as their schema."""
        return replace(self, form=Form("avro", subject, record_name))

    def protobuf(self, *, subject: str | None = None, record_name: str | None = None) -> "Table":
        """Write values as Protobuf; the columns are registered as their schema."""
        return replace(self, form=Form("protobuf", subject, record_name))

    def to(
        self,
        topic: str,
        *,
        value: Expression | None = None,
        name: str | None = None,
        exactly_once: bool = True,
    ) -> None:
        """Write each changed row by its key; a deleted row becomes a tombstone."""
        rows = self.df
        if value is not None:
            made = column(value)
        else:
            made = own_columns_as_json(rows) if self.form is None else as_struct(rows)
        if DELETED in rows.columns:
            made = sql.when(~sql.col(DELETED), made)
        written = rows.select(sql.col(KEY).alias("key"), made.alias("value"))
        emit = Emit.FINAL if self.pipeline.is_batch else Emit.UPDATES
        options = self.form.options(self.pipeline.registry_options()) if self.form else None
        self.pipeline.add(
            topic, written, emit, name=name, is_exactly_once=exactly_once, options=options
        )

    def _then(self, step: Step) -> "Table":
        return replace(self, steps=(*self.steps, step))

    def _latest(self, *, is_static: bool) -> DataFrame:
        frames = [_tagged(side, place, is_static) for place, side in enumerate(self.sides)]
        every = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
        newest = [_newest(_tag(place)) for place in range(len(self.sides))]
        rows = self._joined(every.groupBy(KEY).agg(*newest))
        return reduce(lambda frame, step: step(frame), self.steps, rows)

    def _joined(self, newest: DataFrame) -> DataFrame:
        present = [_is_present(_tag(place)) for place in range(len(self.sides))]
        needed = [there for there, side in zip(present, self.sides, strict=True) if side.is_needed]
        exists = reduce(Column.__and__, needed) if needed else reduce(Column.__or__, present)
        fields = [
            sql.when(there, sql.col(f"{_tag(place)}.{quoted(known)}")).alias(name)
            for place, (side, there) in enumerate(zip(self.sides, present, strict=True))
            for known, name in side.name_by_column.items()
        ]
        return newest.select(KEY, (~exists).alias(DELETED), *fields)


def _tag(place: int) -> str:
    return f"_side{place}"


def _tagged(side: Side, place: int, is_static: bool) -> DataFrame:
    """Put a record's value into one column, beside its key and offset."""
    rows = side.changes(is_static)
    own = [name for name in rows.columns if not is_of_the_record(name)]
    packed = sql.struct(DELETED, *(sql.col(quoted(name)) for name in own))
    return rows.select(KEY, OFFSET, packed.alias(_tag(place)))


def _newest(tag: str) -> Column:
    order = sql.when(sql.col(tag).isNotNull(), sql.col(OFFSET))
    return sql.max_by(sql.col(tag), order).alias(tag)


def _is_present(tag: str) -> Column:
    return sql.coalesce(~sql.col(f"{tag}.{DELETED}"), sql.lit(False))
