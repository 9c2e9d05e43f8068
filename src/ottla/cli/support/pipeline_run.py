"""Runs a pipeline's file in this process, until it ends or a signal arrives."""

import runpy
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from ottla.cli.support.exit_codes import CommandError, say
from ottla.cli.support.output import Row
from ottla.cli.support.pipeline_status import flow_rows, is_on_a_terminal, shown_live
from ottla.pipelines.running.failures import sentence_of, where_in
from ottla.pipelines.running.progress import FlowProgress
from ottla.pipelines.running.registry import Outcome, PipelineError
from ottla.pipelines.running.runner import run, run_batches
from ottla.pipelines.sessions import end_session, mute_spark
from ottla.pipelines.spark.java import JavaNotFoundError
from ottla.pipelines.spark.jvm import SparkStartError
from ottla.pipelines.streams.pace import RunPlan
from ottla.pipelines.streams.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITH_UI: Final = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
"""Spark's UI, at a free port: with fixed ones, Spark tries seventeen and then does not start."""
MODULE_NAME: Final = "ottla_pipeline"
"""The `__name__` of a pipeline's file."""


@dataclass(frozen=True, slots=True)
class Told:
    """The pipeline's options on the command line."""

    name: str
    brokers: str
    master: str | None
    is_batch: bool
    is_quick: bool
    spark_settings: Mapping[str, str]
    client_settings: Mapping[str, str]

    def pipeline(self) -> Pipeline:
        """Return the pipeline, without flows. ValueError for an invalid name."""
        options = {f"kafka.{name}": value for name, value in self.client_settings.items()}
        return Pipeline(
            self.name,
            self.brokers,
            self.is_batch,
            self.master,
            self.spark_settings if self.is_batch else {**WITH_UI, **self.spark_settings},
            options,
            self.is_quick,
        )


def run_told(file: Path, told: Told, plan: RunPlan) -> None:
    """Run a file. A CommandError has the reason of a failure."""
    try:
        pipeline = told.pipeline()
    except ValueError as error:
        raise CommandError(str(error)) from None
    with _Stopping() as stopping:
        try:
            if told.is_batch:
                run_batches(lambda: _define(file, pipeline, stopping), pipeline)
            else:
                _run(file, pipeline, plan, stopping)
        except (PipelineError, JavaNotFoundError, SparkStartError) as error:
            raise CommandError(f"pipeline {told.name}: {error}") from None


def _run(file: Path, pipeline: Pipeline, plan: RunPlan, stopping: "_Stopping") -> None:
    with shown_live() if is_on_a_terminal() else nullcontext() as update:
        watch = None if update is None else _watcher(pipeline.name, update)
        define = partial(_define, file, pipeline, stopping)
        outcome = run(define, pipeline, plan, stopping.event, watch)
    say(f"pipeline {pipeline.name} {'has stopped' if outcome is Outcome.STOPPED else 'is done'}")


def _define(file: Path, pipeline: Pipeline, stopping: "_Stopping") -> None:
    say(f"pipeline {pipeline.name}: starting Spark")  # which takes 10 to 25 s
    stopping.end_with(pipeline.spark)
    _execute(file)
    flows = ", ".join(flow.name for flow in pipeline.flows)
    say(f"pipeline {pipeline.name} runs: {flows or 'no flow'}")
    url = pipeline.spark.sparkContext.uiWebUrl
    say(f"Spark's UI is {url or 'off'}; errors of Spark are logged here, to stderr")


def _watcher(
    name: str, update: Callable[[list[Row]], None]
) -> Callable[[list[FlowProgress]], None]:
    return lambda flows: update(flow_rows(name, Outcome.RUNNING, flows))


def _execute(file: Path) -> None:
    """Run a file as the definition of a pipeline; it may import modules in its directory."""
    beside = str(file.resolve().parent)
    sys.path.insert(0, beside)
    try:
        runpy.run_path(str(file), run_name=MODULE_NAME)
    except Exception as error:
        place = where_in(str(file), error)
        raise PipelineError(f"{place}: {type(error).__name__}: {sentence_of(error)}") from error
    finally:
        sys.path.remove(beside)


class _Stopping:
    """Turns the first Ctrl-C or SIGTERM into a stop request; ends all processes at the end."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._sessions: list[SparkSession] = []
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._take(signal.SIGTERM)
        return self

    def end_with(self, spark: "SparkSession") -> None:
        """End a session at exit, and restore the handler of Ctrl-C, which PySpark has replaced."""
        self._sessions.append(spark)
        self._take(signal.SIGINT)

    def __exit__(self, *_: object) -> None:
        for spark in self._sessions:
            end_session(spark)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: signal.Signals) -> None:
        self._before[number] = signal.signal(number, self._stop)

    def _stop(self, _number: int, _frame: object) -> None:
        if self.event.is_set():
            raise KeyboardInterrupt
        mute_spark()
        self.event.set()
