"""Writes the micro-batches that `foreachBatch` hands to Python.

A batch write by Spark's data source API asks three Python processes for each micro-batch: one makes
the data source, one the writer, one commits. Here the tasks write in `mapInArrow`, and this process
commits. The latency and the CPU time that this saves are in docs/pipeline-latency.md.
"""

import logging
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
    RUN_ID,
    Written,
    attempt_name,
    commit_with,
    run_part,
    write_at_least_once,
    write_in_transaction,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MESSAGE: Final = "message"
_log = logging.getLogger(__name__)


class MicroBatchWriter:
    """Writes the micro-batches of one query to topics, one after another, in the driver's process.

    Transactional ids have the same form as in `StreamWriter`: they name the query, its run and the
    task, so that each micro-batch of a run uses the same few ids.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._decisions: Decisions | None = None

    def __call__(self, rows: "DataFrame", batch_id: int) -> None:
        """Write a micro-batch; exactly once if the options say so, else at least once."""
        options = read_options(self._options, rows.schema)
        context = rows.sparkSession.sparkContext
        query_id, run_id = map(context.getLocalProperty, (QUERY_ID, RUN_ID))
        if not (query_id and run_id):
            raise DecisionError("a micro-batch belongs to a query, which Spark does not name")
        query = f"{options.prefix}-{query_id}"
        tasks = _Tasks(options, query, run_part(run_id), batch_id)
        if not options.is_exactly_once:
            _run(rows, tasks)
            return
        try:
            written = _run(rows, tasks)
            commit_with(self._held(options, query), written, batch_id)
        except BaseException:
            self._abort(options, query)
            raise

    def close(self) -> None:
        """Close the connections of the driver."""
        held, self._decisions = self._decisions, None
        if held is not None:
            held.close()

    def _held(self, options: SinkOptions, query: str) -> Decisions:
        if self._decisions is None:
            self._decisions = Decisions(options.settings, query)
        return self._decisions

    def _abort(self, options: SinkOptions, query: str) -> None:
        """Abort the open transactions of the tasks, and again after the last task has ended."""
        self.close()
        with suppress(Exception), Decisions(options.settings, query) as decisions:
            decisions.abort(())
            sleep(DYING_SECONDS)
            decisions.abort(())


class _Tasks:
    """The function that each task of a micro-batch runs; it is pickled for the tasks."""

    def __init__(self, options: SinkOptions, query: str, run: str, batch_id: int) -> None:
        self._options = options
        self._query = query
        self._run = run
        self._batch_id = batch_id

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Write the rows of one task, and yield one row with the pickled `Written`."""
        import pyarrow as pa  # noqa: PLC0415 - not used by the driver

        if self._options.is_exactly_once:
            name = attempt_name(self._query, self._run)
            written = write_in_transaction(self._options, batches, name, self._batch_id)
        else:
            written = write_at_least_once(self._options, batches)
        yield pa.RecordBatch.from_pydict({_MESSAGE: [pickle.dumps(written)]})


def _run(rows: "DataFrame", tasks: _Tasks) -> list[Written]:
    found = _mapped(rows, tasks).collect()
    return [pickle.loads(row[0]) for row in found]  # noqa: S301 - written by our own tasks


def _mapped(rows: "DataFrame", tasks: _Tasks) -> "DataFrame":
    """Return `rows.mapInArrow(tasks, …)`, which asks for pandas although nothing here needs it."""
    from pyspark.sql import DataFrame  # noqa: PLC0415 - this module is loaded in tasks, too
    from pyspark.sql.types import BinaryType, StructField, StructType  # noqa: PLC0415
    from pyspark.sql.udf import UserDefinedFunction  # noqa: PLC0415
    from pyspark.util import PythonEvalType  # noqa: PLC0415

    function = UserDefinedFunction(
        tasks,
        StructType([StructField(_MESSAGE, BinaryType())]),
        name="write",
        evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    )
    columns = [rows[name] for name in rows.columns]
    applied = function(*columns)._jc  # noqa: SLF001 - as `mapInArrow` does it
    mapped = rows._jdf.mapInArrow(applied, False, None)  # noqa: SLF001
    return DataFrame(mapped, rows.sparkSession)
