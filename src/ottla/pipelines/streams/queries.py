"""Runs flows: as continuous queries, until they have caught up, or as batches."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ottla.pipelines.sink.micro_batches import MicroBatchWriter
from ottla.pipelines.streams.flow import FORMAT, Emit, Flow, TargetWriter
from ottla.pipelines.streams.pace import Pace
from ottla.pipelines.streams.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

SINK_OPTIONS: Final = ("kafka.",)
"""The prefixes of the options that the sink shares with the source."""
NO_DATA_BATCHES: Final = "spark.sql.streaming.noDataMicroBatches.enabled"
MicroBatches = MicroBatchWriter | TargetWriter
_TIMERS: Final = "WithState"
"""In the names of all operators of Spark's plans that call a user's function by time."""
_NOT_FOR_THE_SINK: Final = "kafka.isolation.level"


def start_flow(
    pipeline: Pipeline,
    flow: Flow,
    checkpoint: str,
    pace: Pace,
    micro_batches: MicroBatches | None,
) -> "StreamingQuery":
    """Start the query of a flow; its position is kept in its checkpoint."""
    rows = flow.rows
    if isinstance(micro_batches, MicroBatchWriter):
        rows = micro_batches.written_by_tasks
    writer = rows.writeStream.queryName(query_name(pipeline.name, flow.name))
    writer = writer.option("checkpointLocation", checkpoint).outputMode(flow.emit.value)
    if micro_batches is None:
        writer = writer.format(FORMAT).options(**sink_options(pipeline, flow))
    else:
        writer = writer.foreachBatch(micro_batches)
    writer = writer.trigger(**pace.trigger())
    if needs_no_data_batches(flow) or NO_DATA_BATCHES in pipeline.settings:
        return writer.start()
    with _setting(pipeline, NO_DATA_BATCHES, "false"):
        return writer.start()


def needs_no_data_batches(flow: Flow) -> bool:
    """Whether a micro-batch without records, after the watermark has moved, can write rows.

    Such a micro-batch writes windows that have ended, outer joins without a match, and the rows of
    timers. A flow of updates has written its windows before, and Spark refuses outer joins in it;
    timers are looked for. Without them the next micro-batch with records removes the old state,
    and no record waits for an empty one.
    """
    return flow.emit is Emit.FINAL or _TIMERS in _analyzed(flow.rows)


def write_batch(pipeline: Pipeline, flow: Flow) -> None:
    """Write all existing rows of a flow."""
    if flow.target is not None:
        flow.target.write_once(flow.name, flow.rows)
        return
    options = sink_options(pipeline, flow)
    flow.rows.write.format(FORMAT).mode("append").options(**options).save()


def micro_batches_of(pipeline: Pipeline, flow: Flow) -> MicroBatches | None:
    """Return the writer of a flow's micro-batches, for `foreachBatch`.

    None if Spark passes them to our sink: it passes no updates to a sink in Python.
    """
    if flow.target is not None:
        return TargetWriter(flow.name, flow.target)
    if flow.emit is Emit.FINAL:
        return None
    return MicroBatchWriter(sink_options(pipeline, flow), flow.rows)


def query_name(pipeline: str, flow: str) -> str:
    """Return the name of a flow's query in Spark."""
    return f"{pipeline}/{flow}"


def sink_options(pipeline: Pipeline, flow: Flow) -> dict[str, str]:
    """Return the options of a flow's sink."""
    shared = {
        name: value
        for name, value in pipeline.options.items()
        if name.startswith(SINK_OPTIONS) and name != _NOT_FOR_THE_SINK
    }
    return {
        **shared,
        **flow.options,
        "kafka.bootstrap.servers": pipeline.brokers,
        "topic": flow.topic,
        "exactlyOnce": str(flow.is_exactly_once).lower(),
    }


@contextmanager
def _setting(pipeline: Pipeline, name: str, value: str) -> Iterator[None]:
    """Change a setting of the session: a query keeps the settings with which it was started."""
    settings = pipeline.spark.conf
    before = settings.get(name)
    settings.set(name, value)
    try:
        yield
    finally:
        settings.set(name, before or "")


def _analyzed(rows: "DataFrame") -> str:
    return str(rows._jdf.queryExecution().analyzed().toString())  # noqa: SLF001 - not in Python
