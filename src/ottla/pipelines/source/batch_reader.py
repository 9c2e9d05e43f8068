"""Reads a range of topics that is fixed before the query runs."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ottla.clients.tables.errors import DataLossError
from ottla.clients.tables.range_reader import split
from ottla.clients.tables.topic_cluster import TopicCluster, kept_cluster
from ottla.model.identifiers import TopicPartition
from ottla.model.isolation_level import LATEST
from ottla.pipelines.source.columns import check_columns
from ottla.pipelines.source.errors import ADVICE_ON_LOSS
from ottla.pipelines.source.offset_resolution import all_topics, partitions_of, resolve
from ottla.pipelines.source.options import SourceOptions, read_options
from ottla.pipelines.source.planning import TaskRange, Wanted
from ottla.pipelines.spark.gc_freeze import spare_what_is_there
from ottla.pipelines.spark.spark_version import FILTERS, STREAMS, spark_version

if TYPE_CHECKING:
    from ottla.pipelines.source.typed_source import TypedSource

_IN_UTC: Final[Mapping[str, Any]] = {"timezone": "UTC"} if spark_version() >= STREAMS else {}
"""PySpark before 4.2 has no such argument, and its timestamps are always in UTC."""


class BatchReader(DataSourceReader):
    """The records between startingOffsets and endingOffsets."""

    def __init__(
        self, options: Mapping[str, str], schema: StructType, typed: "TypedSource | None" = None
    ) -> None:
        self._options = read_options(options, is_streaming=False)
        self._columns: pa.Schema = to_arrow_schema(schema, **_IN_UTC)
        self._typed = typed
        if typed is None:
            check_columns(schema)
        else:
            typed.check(schema)
        self.wanted = Wanted()
        if spark_version() >= FILTERS:
            from ottla.pipelines.source.filters import PushFilters  # noqa: PLC0415 - not in 4.0

            self.pushFilters: Any = PushFilters(self, "" if typed is None else "_")

    def partitions(self) -> list[InputPartition]:
        """Look up the start and end offsets, and split the ranges between them into tasks."""
        return list(planned(kept_cluster(self._options.client), self._options, self.wanted))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range, in a task."""
        spare_what_is_there(__name__)
        if not isinstance(partition, TaskRange):
            return iter(())  # there was no range: Spark then invents a partition
        return read_columns(self._options, partition, self._columns, self._typed)


def read_columns(
    options: SourceOptions,
    partition: TaskRange,
    columns: pa.Schema,
    typed: "TypedSource | None",
) -> Iterator[pa.RecordBatch]:
    """Read one range into columns of records, or typed columns."""
    from ottla.clients.tables.range_reader import read_range  # noqa: PLC0415 - not to plan

    reading = None
    if typed is not None:
        from ottla.pipelines.source.typed_source import TypedReading  # noqa: PLC0415

        reading = TypedReading(typed, columns)
    batches = read_range(
        kept_cluster(options.client),
        partition,
        options.fetching,
        columns if reading is None else reading.raw,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    return batches if reading is None else reading.read(batches, partition)


def planned(cluster: TopicCluster, options: SourceOptions, wanted: Wanted) -> list[TaskRange]:
    """Return the ranges that a batch reads."""
    shapes = all_topics(cluster, options.topics)
    names = [name for name in partitions_of(shapes) if wanted.has(name)]
    is_committed_only = options.fetching.is_committed_only
    starts = resolve(
        cluster,
        options.starting,
        partitions_of(shapes),
        is_committed_only=is_committed_only,
        is_latest_where_time_is_missing=options.is_latest_where_time_is_missing,
    )
    ends = resolve(
        cluster,
        options.ending,
        partitions_of(shapes),
        is_committed_only=is_committed_only,
        is_latest_where_time_is_missing=True,
    )
    if options.ending.offset_by_partition is not None:
        ends = _there(cluster, options, ends)
    ranges = [
        TaskRange(*name, *wanted.within(starts[name], ends[name]), shapes[name.topic].topic_id)
        for name in names
    ]
    return split(
        ranges,
        min_partitions=options.min_partitions,
        records_per_partition_max=options.records_per_partition_max,
    )


def _there(
    cluster: TopicCluster, options: SourceOptions, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Limit the given ends to the log ends; DataLossError if an end is beyond its log end."""
    is_committed_only = options.fetching.is_committed_only
    latest = cluster.find(dict.fromkeys(ends, LATEST), is_committed_only=is_committed_only)
    for name, end in ends.items():
        if end > latest[name] and options.fail_on_data_loss:
            raise DataLossError(
                f"endingOffsets says {end} for {name}, which ends at {latest[name]}; "
                f"{ADVICE_ON_LOSS}"
            )
    return {name: min(end, latest[name]) for name, end in ends.items()}
