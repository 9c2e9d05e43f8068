"""Streams and tables on Spark: pipelines from topics to topics, in plain DataFrames.

A file with `stream("orders").json("customer string").group("customer").count().to("counts")` is a
pipeline: `ottla pipeline run FILE`. In a program, `run` and `run_batch` take a function with such
calls. See docs/streams.md.
"""

from dataclasses import replace
from pathlib import Path
from threading import Event

from ottla.pipelines.running.registry import PipelineError
from ottla.pipelines.spark.spark_version import check_spark_extra
from ottla.pipelines.streams.pace import Latency, Pace, RunPlan

try:
    from ottla.pipelines.running.runner import run as run_by_plan
    from ottla.pipelines.running.runner import run_batches
    from ottla.pipelines.streams.definition import Definition, stream, table
    from ottla.pipelines.streams.grouped import Grouped
    from ottla.pipelines.streams.pipeline import Pipeline
    from ottla.pipelines.streams.stream import Stream
    from ottla.pipelines.streams.table import Table
except ModuleNotFoundError:
    check_spark_extra()
    raise

__all__ = [
    "Definition",
    "Grouped",
    "Latency",
    "Pipeline",
    "PipelineError",
    "Stream",
    "Table",
    "run",
    "run_batch",
    "stream",
    "table",
]


def run(
    definition: Definition,
    pipeline: Pipeline,
    *,
    state_dir: Path | None = None,
    every: str | None = None,
    until_caught_up: bool = False,
    from_beginning: bool = False,
    latency: Latency | None = None,
    stopping: Event | None = None,
) -> None:
    """Run a pipeline's definition, until it fails, has caught up, or is stopped.

    The run continues from the position of the last run, kept under the pipeline's name in the state
    directory; `from_beginning` discards it. `every` is the interval of micro-batches, such as
    "10 seconds". `latency` has an effect if this call starts Spark. Its default is low, but
    throughput with `every` or `until_caught_up`. A PipelineError names the failed flow and the
    reason.
    """
    plan = RunPlan(state_dir, pace=Pace(every, until_caught_up), from_beginning=from_beginning)
    is_quick = pipeline.is_quick or (latency or plan.pace.latency) is Latency.LOW
    started = replace(pipeline, is_batch=False, flows=[], is_quick=is_quick)
    run_by_plan(definition, started, plan, stopping)


def run_batch(definition: Definition, pipeline: Pipeline) -> None:
    """Run a pipeline's definition once, over all existing records. Keeps no state."""
    run_batches(definition, replace(pipeline, is_batch=True, flows=[]))
