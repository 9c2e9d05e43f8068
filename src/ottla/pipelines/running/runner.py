"""Runs a pipeline in this process, from its definition to its end."""

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from py4j.protocol import Py4JError

from ottla.pipelines.running.abandoned_transactions import end_transactions_of
from ottla.pipelines.running.failures import sentence_of
from ottla.pipelines.running.folders import PipelineFolder, pipeline_folder, state_folder
from ottla.pipelines.running.plan import RunPlan
from ottla.pipelines.running.progress import FlowProgress
from ottla.pipelines.running.progress_listener import ProgressFile
from ottla.pipelines.running.registry import Outcome, PipelineError, ProcessName, Record, claimed
from ottla.pipelines.running.running_flow import RunningFlow
from ottla.pipelines.streams.definition import Definition, defining
from ottla.pipelines.streams.pipeline import Pipeline
from ottla.pipelines.streams.queries import micro_batches_of, start_flow, write_batch

LOOK_SECONDS: Final = 0.2
"""The interval of checks whether a query has ended."""
Watcher = Callable[[list[FlowProgress]], None]


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
def _recorded(folder: PipelineFolder, pipeline: Pipeline, plan: RunPlan) -> Iterator[list[Outcome]]:
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


def _note_jvm(folder: PipelineFolder, spark: Any) -> None:
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


def _start(pipeline: Pipeline, plan: RunPlan, folder: PipelineFolder) -> list[RunningFlow]:
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


def _forget(pipeline: Pipeline, plan: RunPlan, folder: PipelineFolder) -> None:
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
