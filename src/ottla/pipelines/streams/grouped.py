"""Aggregations of rows: by group, in windows of time."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as sql

from ottla.pipelines.streams.columns import TIMESTAMP, Expression, column
from ottla.pipelines.streams.flow import Emit

if TYPE_CHECKING:
    from ottla.pipelines.streams.stream import Stream

WINDOW = "window"


@dataclass(frozen=True, slots=True)
class Grouped:
    """Groups of a stream's rows, before their aggregation.

    Without a window a group never ends: its row is written again in every micro-batch in which it
    has changed. A window of a stream with an event time is written once, at its end.
    """

    stream: "Stream"
    by: tuple[Expression, ...]
    pane: Column | None = None
    emit: Emit = Emit.UPDATES

    def window(self, size: str, *, every: str | None = None) -> "Grouped":
        """Group by windows of time: adjacent, or overlapping with a start `every` interval."""
        return self._in_panes(sql.window(self._time(), size, every))

    def session(self, gap: str) -> "Grouped":
        """Group by sessions, which end after a gap without rows."""
        return self._in_panes(sql.session_window(self._time(), gap))

    def updates(self) -> "Grouped":
        """Write windows whenever they change, not only at their end."""
        return replace(self, emit=Emit.UPDATES)

    def count(self, name: str = "count") -> "Stream":
        """Count the rows of each group."""
        return self.aggregate(**{name: sql.count(sql.lit(1))})

    def aggregate(self, **columns: Expression) -> "Stream":
        """Return one row for each group: its grouping columns, its window, and these columns."""
        groups = [column(expression) for expression in self.by]
        if self.pane is not None:
            groups.append(self.pane.alias(WINDOW))
        made = [column(value).alias(name) for name, value in columns.items()]
        frame = self.stream.df.groupBy(*groups).agg(*made)
        key = tuple(frame.columns[: len(groups)])
        time = self.stream.time if self.emit is Emit.FINAL else None
        if time is not None:
            # The event time of a window's row is the end of the window.
            frame, time = frame.withColumn(TIMESTAMP, sql.window_time(WINDOW)), TIMESTAMP
        return replace(self.stream, df=frame, is_raw=False, key=key, time=time, emit=self.emit)

    def _in_panes(self, pane: Column) -> "Grouped":
        ends = self.stream.time is not None or self.stream.pipeline.is_batch
        return replace(self, pane=pane, emit=Emit.FINAL if ends else Emit.UPDATES)

    def _time(self) -> Column:
        default = "timestamp" if self.stream.is_raw else TIMESTAMP
        return sql.col(self.stream.time or default)
