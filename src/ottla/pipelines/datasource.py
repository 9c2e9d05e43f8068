"""The format "ottla" of Spark's readers and writers.

Spark imports this in each of its Python processes, before it is known what they are for: what
reads and what writes is imported when it is asked for.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ottla.pipelines.spark.gc_freeze import spare_what_is_there

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


class OttlaDataSource(DataSource):
    """Topics of a Kafka cluster, with the options and columns of Spark's own Kafka source."""

    @classmethod
    def name(cls) -> str:
        """Return what is given to `format`."""
        return "ottla"

    def schema(self) -> "StructType":
        """Return all columns that records have; `.schema(…)` of the reader may name fewer."""
        from ottla.pipelines.source.columns import all_columns  # noqa: PLC0415

        return all_columns(self.options)

    def reader(self, schema: "StructType") -> "DataSourceReader":
        """Read offset ranges that are known before the query runs."""
        from ottla.pipelines.source.batch_reader import BatchReader  # noqa: PLC0415

        spare_what_is_there(BatchReader.__module__)
        return BatchReader(self.options, schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802
        """Read on and on."""
        from ottla.pipelines.source.stream_reader import StreamReader  # noqa: PLC0415

        spare_what_is_there(StreamReader.__module__)
        return StreamReader(self.options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
        """Write a DataFrame, which is added to a topic. ValueError if it is to overwrite one."""
        from ottla.pipelines.sink.writers import BatchWriter  # noqa: PLC0415

        if overwrite:
            raise ValueError("a topic cannot be overwritten, only added to: say mode('append')")
        spare_what_is_there(BatchWriter.__module__)
        return BatchWriter(self.options, schema)

    def streamWriter(  # noqa: N802
        self, schema: "StructType", overwrite: bool
    ) -> "DataSourceStreamArrowWriter":
        """Write one micro-batch after another."""
        from ottla.pipelines.sink.writers import StreamWriter  # noqa: PLC0415

        del overwrite
        spare_what_is_there(StreamWriter.__module__)
        return StreamWriter(self.options, schema)
