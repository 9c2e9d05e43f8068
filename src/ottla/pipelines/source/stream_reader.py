"""Reads topics continuously, one micro-batch after another."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ottla.clients.tables.errors import SourceReadError
from ottla.clients.tables.topic_cluster import kept_cluster
from ottla.pipelines.source.batch_reader import read_columns
from ottla.pipelines.source.columns import check_columns
from ottla.pipelines.source.offset_resolution import SourceOffsets, offsets_of
from ottla.pipelines.source.options import read_options
from ottla.pipelines.source.planning import TaskRange
from ottla.pipelines.source.stream_plan import StreamPlan
from ottla.pipelines.spark.gc_freeze import spare_what_is_there

if TYPE_CHECKING:
    from ottla.pipelines.source.typed_source import SubjectFollower, TypedSource

_log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Implements Spark's reader interface for a streaming query.

    Spark makes one for its own process, and sends a copy of another to the tasks, which only call
    `read`.
    """

    def __init__(
        self, options: Mapping[str, str], schema: StructType, typed: "TypedSource | None" = None
    ) -> None:
        self._options = read_options(options, is_streaming=True)
        self._columns: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._typed = typed
        if typed is None:
            check_columns(schema)
        else:
            typed.check(schema)

    @cached_property
    def _plan(self) -> StreamPlan:
        return StreamPlan(kept_cluster(self._options.client), self._options)

    @cached_property
    def _follower(self) -> "SubjectFollower | None":
        from ottla.pipelines.source.typed_source import SubjectFollower  # noqa: PLC0415

        return None if self._typed is None else SubjectFollower(self._typed)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the start offsets of a query that has no checkpoint."""
        return self._plan.initial().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of maxOffsetsPerTrigger or minOffsetsPerTrigger."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch; the same object if there is nothing to read."""
        if self._follower is not None:
            self._follower.check()
        begins = offsets_of(start)
        ends = self._plan.latest(
            begins,
            limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            is_delay_allowed=not isinstance(limit, ReadAllAvailable),
        )
        return start if ends is begins else ends.as_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the last known ends of the partitions, from which Spark computes the lag."""
        return SourceOffsets(self._plan.newest).as_json() if self._plan.newest else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit the stream to the records that exist now."""
        self._plan.stop_at_what_is_there()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Split a micro-batch into the ranges of tasks."""
        return self._plan.ranges(offsets_of(start), offsets_of(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range, in a task."""
        spare_what_is_there(__name__)
        assert isinstance(partition, TaskRange), partition
        return read_columns(self._options, partition, self._columns, self._typed)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the offsets for kafka.group.id, for monitoring; the checkpoint has the position.

        A query without that option is shown by `query_groups`, which knows its name.
        """
        if self._options.group_id is None:
            return
        try:
            ends = offsets_of(end).offset_by_partition
            kept_cluster(self._options.client).commit(self._options.group_id, ends)
        except SourceReadError as error:
            _log.warning("group %s does not show this query: %s", self._options.group_id, error)
