"""Converts between the bytes of a topic and columns with fields: JSON, strings, bytes."""

import json
from typing import TYPE_CHECKING, Any, Final

from ottla.pipelines.connect.declaring.errors import ConnectorError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from ottla.pipelines.connect.declaring.declaration import Declaration

CORRUPT: Final = "_corrupt_record"
INFERRED: Final = "value-schema.json"
SAMPLE_RECORDS: Final = 1000
"""The number of records from which the fields of a topic are inferred."""


def decoded(frame: "DataFrame", settings: Any, schema: "StructType | None") -> "DataFrame":
    """Decode keys and values; `error` is the fault of a record, or null."""
    from pyspark.sql import functions as f  # noqa: PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    key_schema = settings["key.schema"]
    key = f.col("key") if settings["key.converter"] == "bytes" else f.col("key").cast("string")
    if key_schema is not None and settings["key.converter"] == "json":
        key = f.from_json(key, key_schema)
    value = (
        f.col("value") if settings["value.converter"] == "bytes" else f.col("value").cast("string")
    )
    frame = frame.withColumns(
        {"key": key, "value": value, "raw": f.col("value"), "origin": f.col("topic")}
    )
    if settings["value.converter"] != "json":
        return frame.withColumn("error", f.lit(None).cast("string"))
    if schema is None:
        bad = f.when(f.try_parse_json("value").isNull() & f.col("value").isNotNull(), _NOT_JSON)
        return frame.withColumn("error", bad)
    whole = StructType([*schema.fields]).add(CORRUPT, "string")
    parsed = f.from_json("value", whole, {"columnNameOfCorruptRecord": CORRUPT})
    frame = frame.withColumn("_parsed", parsed)
    bad = f.when(
        f.col(f"_parsed.{CORRUPT}").isNotNull(), f.lit("the value is no JSON of value.schema")
    )
    return frame.withColumns({"error": bad, "value": _without_corrupt(schema)}).drop("_parsed")


_NOT_JSON: Final = "the value is not JSON"


def _without_corrupt(schema: "StructType") -> "Column":
    from pyspark.sql import functions as f  # noqa: PLC0415

    fields = [f.col("_parsed").getField(name).alias(name) for name in schema.fieldNames()]
    return f.when(f.col("raw").isNotNull(), f.struct(*fields))


def encoded(frame: "DataFrame", settings: Any) -> "DataFrame":
    """Encode keys and values with the configured converters."""
    columns: dict[str, Column] = {
        name: _encoded(frame, name, settings[f"{name}.converter"])
        for name in ("key", "value")
        if name in frame.columns
    }
    return frame.withColumns(columns)


def _encoded(frame: "DataFrame", name: str, converter: str) -> "Column":
    from pyspark.sql import functions as f  # noqa: PLC0415
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType  # noqa: PLC0415

    kind = frame.schema[name].dataType
    if isinstance(kind, StringType | BinaryType):
        return f.col(name).cast("binary")
    if isinstance(kind, StructType | MapType | ArrayType):
        if converter != "json":
            raise ConnectorError(
                f"{name}.converter: a {name} with fields can only be written as json"
            )
        return f.to_json(name, {"ignoreNullFields": "false"}).cast("binary")
    return f.col(name).cast("string").cast("binary")


def value_schema(
    spark: "SparkSession", declaration: "Declaration", *, needs_fields: bool
) -> "StructType | None":
    """Return the fields of JSON values: as declared, or inferred once from the topics."""
    from pyspark.sql.types import StructType  # noqa: PLC0415

    settings = declaration.settings
    if settings["value.converter"] != "json":
        return None
    if settings["value.schema"] is not None:
        return parsed_schema(settings["value.schema"], "value.schema")
    if not needs_fields:
        return None
    kept = declaration.folder / INFERRED
    if kept.exists():
        return StructType.fromJson(json.loads(kept.read_text(encoding="utf-8")))
    found = _inferred(spark, declaration)
    kept.parent.mkdir(parents=True, exist_ok=True)
    new = kept.with_suffix(".new")
    new.write_text(found.json(), encoding="utf-8")
    new.replace(kept)
    return found


def parsed_schema(ddl: str, key: str) -> "StructType":
    """Parse a list of fields and types; ConnectorError if it is invalid."""
    from pyspark.errors import ParseException  # noqa: PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    try:
        found = StructType.fromDDL(ddl)
    except ParseException as error:
        first = str(error).strip().splitlines()[0]
        raise ConnectorError(f"{key}: {ddl!r} is no list of fields: {first}") from None
    if not isinstance(found, StructType):
        raise ConnectorError(f"{key}: {ddl!r} is no list of fields")
    return found


def _inferred(spark: "SparkSession", declaration: "Declaration") -> "StructType":
    from pyspark.sql.types import StructType  # noqa: PLC0415

    topics = subscription(declaration.settings)
    sample = (
        spark.read.format("ottla").options(**topics).load().where("value IS NOT NULL")
        .selectExpr("CAST(value AS STRING) AS value").limit(SAMPLE_RECORDS)
    )  # fmt: skip
    inferred = spark.read.json(sample).schema
    found = StructType([field for field in inferred.fields if field.name != CORRUPT])
    if not found.fields:
        raise ConnectorError(
            "value.schema: is missing, and the topics hold no JSON from which it could be inferred"
        )
    return found


def subscription(settings: Any) -> dict[str, str]:
    """Return the source's options for the topics and the brokers."""
    options = {"kafka.bootstrap.servers": settings["bootstrap.servers"]}
    options |= {f"kafka.{key}": value for key, value in settings["kafka."].items()}
    if settings["topics"]:
        return {**options, "subscribe": ",".join(settings["topics"])}
    return {**options, "subscribePattern": settings["topics.regex"]}
