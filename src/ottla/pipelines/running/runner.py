"""Runs a pipeline in this process, from its definition to its end.

A flow runs as a continuous query, until it has caught up, or as a batch. When its old checkpoint is
discarded, its open transactions are ended first: the next run of the same checkpoint would end
them. Without the checkpoint they would stay open, and consumers of committed records would never
get past them.
"""

import json
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JNetworkError

from ottla import Admin, TransactionFilter, TransactionStatus
from ottla.pipelines.running.failures import sentence_of
from ottla.pipelines.running.folders import (
    PipelineDirectory,
    pipeline_folder,
    read_json,
    state_folder,
    write_json,
)
from ottla.pipelines.running.progress import FlowProgress
from ottla.pipelines.running.registry import Outcome, PipelineError, ProcessName, Record, claimed
from ottla.pipelines.sink.commit_decision import OpenTransaction, is_of_query
from ottla.pipelines.sink.exactly_once import DecisionError, Decisions
from ottla.pipelines.sink.options import DEFAULT_PREFIX
from ottla.pipelines.spark.jvm_listener import JvmListener
from ottla.pipelines.streams.definition import Definition, defining
from ottla.pipelines.streams.pace import RunPlan
from ottla.pipelines.streams.pipeline import Pipeline
from ottla.pipelines.streams.queries import micro_batches_of, start_flow, write_batch

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


_log = logging.getLogger(__name__)

UP_SECONDS_MAX: Final = 30
START_LOOK_SECONDS: Final = 0.02
COMING_UP: Final = "Initializing sources"
"""Spark's status message of a query while its Python process starts."""
STARTS_MAX: Final = 5
"""How often a query is started if its Python process was too slow to start."""
SLOW_PYTHON: Final = "Python worker failed to connect back"
"""Spark's message if a Python process takes more than ten seconds to start. The limit cannot be
set, and a busy machine exceeds it."""

LOOK_SECONDS: Final = 0.2
"""The interval of checks whether a query has ended."""
Watcher = Callable[[list[FlowProgress]], None]


def end_transactions_of(checkpoint: Path, settings: Mapping[str, str]) -> None:
    """Commit the decided transactions of a checkpoint's runs, and abort the others.

    Decided transactions that can no longer be committed are logged: all input is read again, so
    nothing is lost.
    """
    found = read_json(checkpoint / "metadata")
    if found is None:
        return
    query = f"{DEFAULT_PREFIX}-{found['id']}"
    with Decisions(settings, query) as decisions:
        try:
            decisions.commit(decisions.last_batch_id(), ())
        except DecisionError as error:
            _log.warning("%s begins again all the same: %s", checkpoint.name, error)
        decisions.abort(_left_open(settings, query))


def _left_open(settings: Mapping[str, str], query: str) -> list[OpenTransaction]:
    with Admin(dict(settings)) as admin:
        listed = admin.transactions.list(TransactionFilter(states={TransactionStatus.ONGOING}))
        names = [row.transactional_id for row in listed if is_of_query(row.transactional_id, query)]
        found = admin.transactions.describe(names) if names else {}
    return [
        OpenTransaction(row.transactional_id, row.producer_id, row.producer_epoch)
        for row in found.values()
    ]


class ProgressFile(JvmListener):
    """Writes the progress of a session's queries after every report."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._progress_by_query: dict[str, FlowProgress] = {}
        self._lock = threading.Lock()
        write_json(path, [])

    def progress(self) -> list[FlowProgress]:
        """Return the progress of the flows."""
        with self._lock:
            return list(self._progress_by_query.values())

    def progressed(self, progress_json: str) -> None:
        """Write the new progress."""
        said = json.loads(progress_json)
        with self._lock:
            before = self._progress_by_query.get(said["id"])
            self._progress_by_query[said["id"]] = FlowProgress.of(said, before)
            flows = [asdict(flow) for flow in self._progress_by_query.values()]
            write_json(self._path, flows)


@dataclass(slots=True)
class RunningFlow:
    """A flow, or a query that was started manually."""

    name: str
    query: "StreamingQuery"
    start: "Callable[[], StreamingQuery] | None" = None
    """Restarts the query from its checkpoint."""
    starts: int = 1
    at_end: "Callable[[], None] | None" = None
    """Called when the query has been stopped."""

    def wait_until_up(self) -> None:
        """Wait until the query has initialized its sources, or has ended.

        Queries that start at the same time slow each other down, and may exceed Spark's timeout.
        """
        deadline = time.monotonic() + UP_SECONDS_MAX
        while (
            self.query.isActive
            and self.query.status["message"] == COMING_UP
            and time.monotonic() < deadline
        ):
            time.sleep(START_LOOK_SECONDS)

    def stop(self) -> None:
        """Stop the query, if it still runs."""
        with suppress(Py4JError, OSError):
            self.query.stop()
        if self.at_end is not None:
            self.at_end()

    def goes_on(self) -> bool:
        """Whether the query continues. PipelineError has the reason of a failure."""
        try:
            return self._goes_on()
        except (Py4JNetworkError, OSError) as error:
            raise PipelineError(f"flow {self.name}: Spark's JVM has gone ({error})") from error

    def _goes_on(self) -> bool:
        if self.query.isActive:
            return True
        error = self.query.exception()
        if error is None:
            return False
        if self.start is None or SLOW_PYTHON not in str(error) or self.starts == STARTS_MAX:
            raise PipelineError(f"flow {self.name}: {sentence_of(error)}") from error
        self.starts += 1
        self.query = self.start()
        return True


def run(
    definition: Definition,
    pipeline: Pipeline,
    plan: RunPlan,
    stopping: threading.Event | None = None,
    watch: Watcher | None = None,
) -> Outcome:
    """Define a pipeline and run its flows until they end, fail, or are stopped.

    PipelineError names the failed flow and the reason; its checkpoint stays, and the next run
    continues there.
    """
    folder = pipeline_folder(state_folder(plan.state_dir), pipeline.name)
    with claimed(folder), _recorded(folder, pipeline, plan) as ended:
        spark = pipeline.spark
        _note_jvm(folder, spark)
        before = {query.id for query in spark.streams.active}
        with defining(pipeline):
            definition()
        with _listening(spark, ProgressFile(folder.progress)) as progress:
            own = [
                RunningFlow(query.name or str(query.id), query)
                for query in spark.streams.active
                if query.id not in before
            ]
            flows = [*own, *_start(pipeline, plan, folder)]
            check_flows(flows)
            told = (lambda: watch(progress.progress())) if watch else None
            ended.append(_wait(flows, stopping or threading.Event(), told))
    return ended[-1]


@contextmanager
def _recorded(
    folder: PipelineDirectory, pipeline: Pipeline, plan: RunPlan
) -> Iterator[list[Outcome]]:
    """Record the process that runs a pipeline and, at the end, the outcome."""
    first = Record.of_this_process(plan.file, pipeline.brokers, pipeline.master or "")
    first.write(folder)
    ended: list[Outcome] = []
    outcome, failure = Outcome.FAILED, ""
    try:
        yield ended
        outcome = ended[-1]
    except KeyboardInterrupt:
        outcome = Outcome.STOPPED
        raise
    except BaseException as error:
        failure = sentence_of(error)
        raise
    finally:
        last = Record.read(folder) or first
        replace(last, outcome=outcome, failure=failure).write(folder)


def _wait(
    flows: list[RunningFlow], stopping: threading.Event, tell: Callable[[], None] | None
) -> Outcome:
    """Wait until flows have ended or a stop is requested, and stop them all."""
    try:
        while not stopping.wait(LOOK_SECONDS):
            going_on = [flow for flow in flows if flow.goes_on()]
            if not going_on:
                return Outcome.DONE
            if tell is not None:
                tell()
        return Outcome.STOPPED
    finally:
        for flow in flows:
            flow.stop()


def _note_jvm(folder: PipelineDirectory, spark: Any) -> None:
    """Record the JVM of this process: it may briefly outlive it."""
    process = spark.sparkContext._gateway.proc  # noqa: SLF001 - PySpark keeps it nowhere else
    record = Record.read(folder)
    if record is not None and process is not None:
        replace(record, jvm=ProcessName.of(process.pid)).write(folder)


def run_batches(definition: Definition, pipeline: Pipeline) -> None:
    """Define a pipeline, and write its present results to the targets of its flows."""
    assert pipeline.is_batch
    with defining(pipeline):
        definition()
    check_flows(pipeline.flows)
    for flow in pipeline.flows:
        try:
            write_batch(pipeline, flow)
        except Exception as error:
            raise PipelineError(f"flow {flow.name}: {sentence_of(error)}") from error


def check_flows(flows: Sequence[object]) -> None:
    """Refuse a pipeline without flows."""
    if not flows:
        raise PipelineError(
            "nothing goes anywhere: no stream or table has a `.to(topic)` or `.to_files(folder)`"
        )


@contextmanager
def _listening(spark: Any, progress: ProgressFile) -> Iterator[ProgressFile]:
    spark.streams.addListener(progress)
    try:
        yield progress
    finally:
        with suppress(Py4JError, OSError):  # the JVM may have ended
            spark.streams.removeListener(progress)


def _start(pipeline: Pipeline, plan: RunPlan, folder: PipelineDirectory) -> list[RunningFlow]:
    if plan.from_beginning:
        _forget(pipeline, plan, folder)
    place = plan.checkpoint_dir or str(folder.checkpoints)
    started: list[RunningFlow] = []
    for flow in pipeline.flows:
        try:
            writer = micro_batches_of(pipeline, flow)
            start = partial(start_flow, pipeline, flow, f"{place}/{flow.name}", plan.pace, writer)
            at_end = None if writer is None else writer.close
            started.append(RunningFlow(flow.name, start(), start, at_end=at_end))
            started[-1].wait_until_up()
        except Exception as error:
            for before in started:
                before.stop()
            raise PipelineError(f"flow {flow.name}: {sentence_of(error)}") from error
    return started


def _forget(pipeline: Pipeline, plan: RunPlan, folder: PipelineDirectory) -> None:
    if plan.checkpoint_dir is not None:
        raise PipelineError(
            f"checkpoints in {plan.checkpoint_dir} are not removed from here: to begin again,"
            " name another place"
        )
    for checkpoint in sorted(folder.checkpoints.glob("*")):
        end_transactions_of(checkpoint, client_settings(pipeline))
        shutil.rmtree(checkpoint)


def client_settings(pipeline: Pipeline) -> Mapping[str, str]:
    """Return the settings that source and sink share, by Kafka's names."""
    shared = {
        name.removeprefix("kafka."): value
        for name, value in pipeline.options.items()
        if name.startswith("kafka.") and name != "kafka.isolation.level"
    }
    return {**shared, "bootstrap.servers": pipeline.brokers}
