"""Runs flows: as continuous queries, until they have caught up, or as batches."""

from typing import TYPE_CHECKING, Final

from ottla.pipelines.sink.micro_batches import MicroBatchWriter
from ottla.pipelines.streams.flow import FORMAT, Emit, Flow
from ottla.pipelines.streams.pace import Pace
from ottla.pipelines.streams.pipeline import Pipeline
from ottla.pipelines.streams.targets import TargetWriter

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

SINK_OPTIONS: Final = ("kafka.",)
"""The prefixes of the options that the sink shares with the source."""
MicroBatches = MicroBatchWriter | TargetWriter
_NOT_FOR_THE_SINK: Final = "kafka.isolation.level"


def start_flow(
    pipeline: Pipeline, flow: Flow, checkpoint: str, pace: Pace, micro_batches: MicroBatches
) -> "StreamingQuery":
    """Start the query of a flow; its position is kept in its checkpoint."""
    writer = flow.rows.writeStream.queryName(query_name(pipeline.name, flow.name))
    writer = writer.option("checkpointLocation", checkpoint).outputMode(flow.emit.value)
    if flow.emit is Emit.FINAL and flow.target is None:
        writer = writer.format(FORMAT).options(**sink_options(pipeline, flow))
    else:
        # Spark's Python sinks do not support updates, so `foreachBatch` gets each micro-batch.
        writer = writer.foreachBatch(micro_batches)
    return writer.trigger(**pace.trigger()).start()


def write_batch(pipeline: Pipeline, flow: Flow) -> None:
    """Write all existing rows of a flow."""
    if flow.target is not None:
        flow.target.write_once(flow.name, flow.rows)
        return
    options = sink_options(pipeline, flow)
    flow.rows.write.format(FORMAT).mode("append").options(**options).save()


def micro_batches_of(pipeline: Pipeline, flow: Flow) -> MicroBatches:
    """Return the writer of a flow's micro-batches, for `foreachBatch`."""
    if flow.target is not None:
        return TargetWriter(flow.name, flow.target)
    return MicroBatchWriter(sink_options(pipeline, flow))


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
        "kafka.bootstrap.servers": pipeline.brokers,
        "topic": flow.topic,
        "exactlyOnce": str(flow.is_exactly_once).lower(),
    }
