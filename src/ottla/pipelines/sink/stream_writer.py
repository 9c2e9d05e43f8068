"""Spark's writer of a stream: `write` runs in tasks, `commit` and `abort` in the driver."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamArrowWriter

from ottla.pipelines.sink.options import read_options
from ottla.pipelines.sink.writers import (
    Written,
    abort_written,
    commit_written,
    registered,
    write_micro_batch,
)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query."""

    def __init__(self, options: Mapping[str, Any], schema: Any) -> None:
        self._options = registered(read_options(options, schema))

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write the rows of one task of a micro-batch."""
        return write_micro_batch(self._options, iterator)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit a micro-batch exactly once."""
        if self._options.is_exactly_once and messages:
            commit_written(self._options, messages, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Abort the transactions of the tasks that did not fail."""
        del batchId
        queries = {message.query for message in messages if message is not None}
        if self._options.is_exactly_once and queries:
            abort_written(self._options, queries.pop(), messages)
