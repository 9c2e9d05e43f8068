"""Declarations as Spark queries: a source is read and written to topics, a sink the other way."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from ottla.pipelines.connect.declaring.connector import (
    Home,
    SinkConnector,
    SourceConnector,
    local_url,
)
from ottla.pipelines.connect.declaring.converters import (
    decode_options,
    decoded,
    encode_options,
    encoded,
    from_typed,
    subscription,
    value_schema,
)
from ottla.pipelines.connect.declaring.errors import ConnectorError
from ottla.pipelines.connect.declaring.preflight import admin_of
from ottla.pipelines.connect.declaring.transforms import TRANSFORMS
from ottla.runtime.small_files import write_atomically

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.pipelines.connect.declaring.declaration import Declaration

RAW_CHARACTERS_SHOWN: Final = 200


def home_of(declaration: "Declaration") -> Home:
    """Return the connector's directory and id, which are created in its first run.

    The id is new if Spark's checkpoint was removed: batches are counted from 0 again.
    """
    folder = declaration.folder
    kept = folder / "id"
    if not kept.exists() or not _checkpoint_of(declaration).exists():
        write_atomically(kept, str(uuid4()))
    routes = tuple(
        (step.settings["regex"], step.settings["replacement"])
        for step in declaration.transforms
        if step.type == "route"
    )
    return Home(declaration.name, folder, kept.read_text(encoding="utf-8"), routes)


def start(spark: "SparkSession", declaration: "Declaration", *, is_once: bool) -> "StreamingQuery":
    """Start the query of a connector: over the present data, or until it is stopped."""
    connector = declaration.connector(home_of(declaration), declaration.settings)
    if isinstance(connector, SourceConnector):
        writer = _source_writer(spark, declaration, connector)
    else:
        assert isinstance(connector, SinkConnector)
        writer = _sink_writer(spark, declaration, connector)
    interval = f"{declaration.settings['poll.interval.ms']} milliseconds"
    trigger: dict[str, Any] = {"availableNow": True} if is_once else {"processingTime": interval}
    return (
        writer.queryName(declaration.name)
        .option("checkpointLocation", local_url(_checkpoint_of(declaration)))
        .trigger(**trigger)
        .start()
    )


def _checkpoint_of(declaration: "Declaration") -> Path:
    return declaration.folder / "spark"


def _source_writer(
    spark: "SparkSession", declaration: "Declaration", connector: SourceConnector
) -> "DataStreamWriter":
    from pyspark.sql import functions as f  # noqa: PLC0415

    connector.prepare()
    _create_topics(declaration, connector)
    records = _complete(connector.records(spark), declaration)
    schema = value_schema(spark, declaration, needs_fields=False)
    if schema is not None and records.schema["value"].dataType.simpleString() == "string":
        records = records.withColumn("value", f.from_json("value", schema))
    settings = declaration.settings
    changed = encoded(
        _transformed(records, declaration), settings, is_value_encoded=connector.is_encoding()
    )
    typing = {} if connector.is_encoding() else encode_options(settings)
    is_exact = settings["exactly.once.support"] == "required"
    return (
        _with_error_handling(changed, declaration)
        .select("topic", "key", "value")
        .writeStream.format("ottla")
        .options(**_client(settings), **typing, exactlyOnce=str(is_exact).lower())
    )


def _complete(records: "DataFrame", declaration: "Declaration") -> "DataFrame":
    """Add the columns that a source may leave out."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    topic = declaration.settings["topic"]
    if "topic" not in records.columns and topic is None:
        raise ConnectorError(f"{declaration.place}, topic: is missing: where records go")
    nothing = f.lit(None).cast("string")
    defaults: dict[str, Column] = {
        "topic": f.lit(topic), "key": nothing, "error": nothing, "raw": nothing,
    }  # fmt: skip
    missing = {name: made for name, made in defaults.items() if name not in records.columns}
    return records.withColumns(missing)


def _with_error_handling(frame: "DataFrame", declaration: "Declaration") -> "DataFrame":
    """Fail at a bad record, drop it, or send its original to the dead letters."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    settings = declaration.settings
    if settings["errors.tolerance"] == "none":
        return _failing(frame, declaration)
    dead = settings["errors.deadletterqueue.topic.name"]
    if dead is None:
        return frame.where("error IS NULL")
    is_good = f.col("error").isNull()
    return frame.withColumns(
        {
            "topic": f.when(is_good, f.col("topic")).otherwise(f.lit(dead)),
            "value": f.when(is_good, f.col("value")).otherwise(f.col("raw").cast("binary")),
        }
    )


def _failing(frame: "DataFrame", declaration: "Declaration") -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415

    where: list[Column] = []
    if "offset" in frame.columns:
        where = [f.lit(" in "), f.col("origin"), f.lit("-"), f.col("partition").cast("string"),
                 f.lit(" at offset "), f.col("offset").cast("string")]  # fmt: skip
    shown = f.substring(f.col("raw").cast("string"), 1, RAW_CHARACTERS_SHOWN)
    sentence = f.concat(
        f.lit(f"{declaration.name}: "),
        f.col("error"),
        *where,
        f.lit(": "),
        f.coalesce(shown, f.lit("")),
        f.lit(" (errors.tolerance = all passes over such records)"),
    )
    return frame.where(
        f.when(f.col("error").isNotNull(), f.raise_error(sentence)).otherwise(f.lit(True))
    )


def _transformed(frame: "DataFrame", declaration: "Declaration") -> "DataFrame":
    for step in declaration.transforms:
        try:
            frame = TRANSFORMS[step.type].apply(frame, step.settings)
        except ConnectorError as error:
            raise ConnectorError(f"{declaration.place}, {step.name}: {error}") from None
    return frame


def _sink_writer(
    spark: "SparkSession", declaration: "Declaration", connector: SinkConnector
) -> "DataStreamWriter":
    settings = declaration.settings
    typing = decode_options(settings)
    records = (
        spark.readStream.format("ottla")
        .options(**subscription(settings), **typing)
        .option("startingOffsets", settings["starting.offsets"])
        .option("maxOffsetsPerTrigger", str(settings["max.batch.records"]))
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
    if typing:
        rows = from_typed(records, settings)
    else:
        schema = value_schema(spark, declaration, needs_fields=connector.NEEDS_FIELDS)
        rows = decoded(records, settings, schema)
    changed = _transformed(rows, declaration)
    return changed.writeStream.foreachBatch(_batch_function(declaration, connector))


def _batch_function(
    declaration: "Declaration", connector: SinkConnector
) -> "Callable[[DataFrame, int], None]":
    settings = declaration.settings
    dead = settings["errors.deadletterqueue.topic.name"]

    def write_strictly(batch: "DataFrame", batch_id: int) -> None:
        connector.write(_failing(batch, declaration).drop("error", "raw"), batch_id)

    def write_what_is_good(batch: "DataFrame", batch_id: int) -> None:
        kept = batch.persist()  # it is read twice, and parsed once
        try:
            if dead is not None:
                _write_dead_letters(kept.where("error IS NOT NULL"), settings, dead)
            connector.write(kept.where("error IS NULL").drop("error", "raw"), batch_id)
        finally:
            kept.unpersist()

    return write_strictly if settings["errors.tolerance"] == "none" else write_what_is_good


def _write_dead_letters(bad: "DataFrame", settings: Mapping[str, Any], topic: str) -> None:
    """Send unreadable records to a topic, with headers for their origin and the fault."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    said = {
        "topic": "origin",
        "partition": "partition",
        "offset": "offset",
        "exception.message": "error",
    }
    headers = f.array(
        *(
            f.struct(
                f.lit(f"__connect.errors.{name}").alias("key"),
                f.col(column).cast("string").cast("binary").alias("value"),
            )
            for name, column in said.items()
        )
    )
    letters = bad.select(
        f.lit(topic).alias("topic"),
        f.col("raw").cast("binary").alias("value"),
        headers.alias("headers"),
    )
    letters.write.format("ottla").options(**_client(settings)).mode("append").save()


def _client(settings: Mapping[str, Any]) -> dict[str, str]:
    options = {f"kafka.{key}": value for key, value in settings["kafka."].items()}
    return {"kafka.bootstrap.servers": settings["bootstrap.servers"], **options}


def _create_topics(declaration: "Declaration", connector: SourceConnector) -> None:
    """Create the topics that are known in advance, if the declaration allows it."""
    settings = declaration.settings
    partitions = settings["topic.creation.default.partitions"]
    if partitions is None:
        return
    names = {connector.home.routed(topic) for topic in connector.topics()}
    replicas = settings["topic.creation.default.replication.factor"]
    with admin_of(settings) as admin:
        missing = sorted(names.difference(topic.name for topic in admin.topics.list()))
        if missing and replicas is None:
            admin.topics.create(missing, partitions=partitions)
        elif missing:
            admin.topics.create(missing, partitions=partitions, replication_factor=replicas)
