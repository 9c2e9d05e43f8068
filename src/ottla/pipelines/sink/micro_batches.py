"""Writes the updates of a query, which Spark passes to `foreachBatch` and to no Python sink.

A batch write by Spark's data source API would plan each micro-batch twice, and ask three Python
processes for each of them: one makes the data source, one the writer, one commits. Here the plan of
the query ends in `mapInArrow`, whose tasks write, and `foreachBatch` commits their transactions
(docs/decisions/0047-updates-are-written-by-map-in-arrow.md).
"""

import pickle
from collections.abc import Iterator, Mapping
from contextlib import suppress
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from ottla.pipelines.sink.commit_decision import DecisionError
from ottla.pipelines.sink.exactly_once import Decisions
from ottla.pipelines.sink.options import SinkOptions, read_options
from ottla.pipelines.sink.writers import (
    DYING_SECONDS,
    QUERY_ID,
    commit_with,
    registered,
    write_micro_batch,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WRITTEN: Final = "written"


class MicroBatchWriter:
    """Writes the micro-batches of one query to topics, one after another.

    Pass `written_by_tasks` to `writeStream` and the object itself to `foreachBatch`. Transactional
    ids have the same form as in `StreamWriter`: they name the query, its run and the task, so that
    each micro-batch of a run uses the same few ids.
    """

    def __init__(self, options: Mapping[str, Any], rows: "DataFrame") -> None:
        self._options = registered(read_options(options, rows.schema))
        self._decisions: Decisions | None = None
        self.written_by_tasks = _mapped(rows, _Tasks(self._options))
        """The results of the tasks that have written the rows: one pickled `Written` each."""

    def __call__(self, results: "DataFrame", batch_id: int) -> None:
        """Write a micro-batch; exactly once if the options say so, else at least once."""
        if not self._options.is_exactly_once:
            results.collect()
            return
        query_id = results.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not query_id:
            raise DecisionError("a micro-batch belongs to a query, which Spark does not name")
        query = f"{self._options.prefix}-{query_id}"
        try:
            written = [pickle.loads(row[0]) for row in results.collect()]  # noqa: S301 - our tasks'
            commit_with(self._decisions_of(query), written, batch_id)
        except BaseException:
            self._abort(query)
            raise

    def close(self) -> None:
        """Close the connections of the driver."""
        held, self._decisions = self._decisions, None
        if held is not None:
            held.close()

    def _decisions_of(self, query: str) -> Decisions:
        if self._decisions is None:
            self._decisions = Decisions(self._options.settings, query)
        return self._decisions

    def _abort(self, query: str) -> None:
        """Abort the open transactions of the tasks, and again after the last task has ended."""
        self.close()
        with suppress(Exception), Decisions(self._options.settings, query) as decisions:
            decisions.abort(())
            sleep(DYING_SECONDS)
            decisions.abort(())


class _Tasks:
    """The function that each task of a micro-batch runs; it is pickled for the tasks."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Write the rows of one task, and yield one row with the pickled `Written`."""
        import pyarrow as pa  # noqa: PLC0415 - not used by the driver

        written = write_micro_batch(self._options, batches)
        yield pa.RecordBatch.from_pydict({_WRITTEN: [pickle.dumps(written)]})


def _mapped(rows: "DataFrame", tasks: _Tasks) -> "DataFrame":
    """Return `rows.mapInArrow(tasks, …)`, which asks for pandas although nothing here needs it."""
    from pyspark.sql import DataFrame  # noqa: PLC0415 - this module is loaded in tasks, too
    from pyspark.sql.types import BinaryType, StructField, StructType  # noqa: PLC0415
    from pyspark.sql.udf import UserDefinedFunction  # noqa: PLC0415
    from pyspark.util import PythonEvalType  # noqa: PLC0415

    function = UserDefinedFunction(
        tasks,
        StructType([StructField(_WRITTEN, BinaryType())]),
        name="write",
        evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    )
    columns = [rows[name] for name in rows.columns]
    applied = function(*columns)._jc  # noqa: SLF001 - as `mapInArrow` does it
    mapped = rows._jdf.mapInArrow(applied, False, None)  # noqa: SLF001
    return DataFrame(mapped, rows.sparkSession)
