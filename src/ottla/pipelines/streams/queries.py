"""Flows are run: as queries that go on, until they have caught up, or as batches."""

from typing import TYPE_CHECKING, Final

from ottla.pipelines.streams.flow import FORMAT, Emit, Flow
from ottla.pipelines.streams.pace import Pace
from ottla.pipelines.streams.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

QUERY_ID: Final = "sql.streaming.queryId"
SINK_OPTIONS: Final = ("kafka.",)
"""How the options begin that the sink shares with the source."""
_NOT_FOR_THE_SINK: Final = "kafka.isolation.level"


def start_flow(pipeline: Pipeline, flow: Flow, checkpoint: str, pace: Pace) -> "StreamingQuery":
    """Start the query of a flow; what it has done is kept in its checkpoint."""
    writer = flow.rows.writeStream.queryName(query_name(pipeline.name, flow.name))
    writer = writer.option("checkpointLocation", checkpoint).outputMode(flow.emit.value)
    options = sink_options(pipeline, flow)
    if flow.emit is Emit.FINAL:
        writer = writer.format(FORMAT).options(**options)
    else:
        # Spark lets sinks in Python take no updates: each micro-batch is written as a batch.
        writer = writer.foreachBatch(lambda rows, number: _write(rows, number, options))
    return writer.trigger(**pace.trigger()).start()


def write_batch(pipeline: Pipeline, flow: Flow) -> None:
    """Write all rows of a flow that there are."""
    options = sink_options(pipeline, flow)
    flow.rows.write.format(FORMAT).mode("append").options(**options).save()


def query_name(pipeline: str, flow: str) -> str:
    """Return what Spark calls a flow's query."""
    return f"{pipeline}/{flow}"


def sink_options(pipeline: Pipeline, flow: Flow) -> dict[str, str]:
    """Return what the sink is told."""
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


def _write(rows: "DataFrame", number: int, options: dict[str, str]) -> None:
    if options["exactlyOnce"] == "true":
        query_id = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        assert query_id, "Spark names its queries"
        options = {**options, "txnAppId": query_id, "txnVersion": str(number)}
    rows.write.format(FORMAT).mode("append").options(**options).save()
