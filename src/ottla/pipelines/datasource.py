"""The format "ottla" of Spark's readers and writers.

Spark imports this module in each of its Python processes, before their purpose is known. The
readers and writers are imported at first use.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ottla.pipelines.spark.gc_freeze import spare_what_is_there
from ottla.pipelines.spark.spark_version import (
    BATCHES,
    STREAM_WRITES,
    STREAMS,
    check_spark_version,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from ottla.pipelines.source.typed_source import TypedSource


class OttlaDataSource(DataSource):
    """Topics of a Kafka cluster, with the options and columns of Spark's own Kafka source.

    With the option decode, the columns are the fields of a schema. It is looked up when a query is
    loaded: Spark makes one object then, and sends copies of it to its other processes.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._typed: TypedSource | None = None
        if any(name.lower().startswith("decode") for name in options):
            from ottla.pipelines.source.typed_source import find_typed_source  # noqa: PLC0415

            self._typed = find_typed_source(self.options)

    @classmethod
    def name(cls) -> str:
        """Return the argument of `format`."""
        return "ottla"

    def schema(self) -> "StructType":
        """Return all columns of records; `.schema(…)` of the reader may name fewer."""
        if self._typed is not None:
            return self._typed.columns()
        from ottla.pipelines.source.columns import all_columns  # noqa: PLC0415

        return all_columns(self.options)

    def reader(self, schema: "StructType") -> "DataSourceReader":
        """Return the reader of offset ranges that are fixed before the query runs."""
        check_spark_version(BATCHES, "reading topics")
        from ottla.pipelines.source.batch_reader import BatchReader  # noqa: PLC0415

        spare_what_is_there(BatchReader.__module__)
        return BatchReader(self.options, schema, self._typed)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802
        """Return the reader of micro-batches."""
        check_spark_version(STREAMS, "reading topics as a stream")
        from ottla.pipelines.source.stream_reader import StreamReader  # noqa: PLC0415

        spare_what_is_there(StreamReader.__module__)
        return StreamReader(self.options, schema, self._typed)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
        """Return the writer of a DataFrame, which appends to topics; ValueError for overwrite."""
        check_spark_version(BATCHES, "writing topics")
        from ottla.pipelines.sink.writers import BatchWriter  # noqa: PLC0415

        if overwrite:
            raise ValueError("a topic cannot be overwritten, only added to: say mode('append')")
        spare_what_is_there(BatchWriter.__module__)
        return BatchWriter(self.options, schema)

    def streamWriter(  # noqa: N802
        self, schema: "StructType", overwrite: bool
    ) -> "DataSourceStreamArrowWriter":
        """Return the writer of micro-batches."""
        check_spark_version(STREAM_WRITES, "writing a stream to topics")
        from ottla.pipelines.sink.stream_writer import StreamWriter  # noqa: PLC0415

        del overwrite
        spare_what_is_there(StreamWriter.__module__)
        return StreamWriter(self.options, schema)
