"""Converts between the bytes of a topic and columns with fields.

Converters are json, string and bytes, and three with schemas in the registry: avro, protobuf and
json-schema. The source and the sink of Spark convert the latter, by their own options.
"""

import json
from typing import TYPE_CHECKING, Any, Final

from ottla.pipelines.connect.declaring.errors import ConnectorError
from ottla.runtime.small_files import write_atomically

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from ottla.pipelines.connect.declaring.declaration import Declaration

CORRUPT: Final = "_corrupt_record"
REGISTERED: Final = {"avro": "avro", "protobuf": "protobuf", "json-schema": "json"}
"""The converters with a schema in the registry, and the option `encode` of each."""
INFERRED: Final = "value-schema.json"
SAMPLE_RECORDS: Final = 1000
"""The number of records from which the fields of a topic are inferred."""


def decode_options(settings: Any) -> dict[str, str]:
    """Return the options of the source for values with a schema; none for other converters."""
    parts = [part for part in ("key", "value") if settings[f"{part}.converter"] in REGISTERED]
    if not parts:
        return {}
    if parts == ["key"]:
        raise ConnectorError("key.converter: has a schema, so value.converter needs one, too")
    is_strict = settings["errors.tolerance"] == "none"
    return {
        **_registry(settings),
        **({"decode.subject": settings["value.subject"]} if settings["value.subject"] else {}),
        "decode": ",".join(parts),
        "decode.mode": "failfast" if is_strict else "permissive",
        "decode.tombstones": "mark",
    }


def encode_options(settings: Any) -> dict[str, str]:
    """Return the options of the sink for values with a schema; none for other converters."""
    names = {
        option: REGISTERED[settings[f"{part}.converter"]]
        for part, option in (("value", "encode"), ("key", "encode.key"))
        if settings[f"{part}.converter"] in REGISTERED
    }
    if not names:
        return {}
    if "encode" not in names:
        raise ConnectorError("key.converter: has a schema, so value.converter needs one, too")
    if settings["errors.deadletterqueue.topic.name"] is not None:
        raise ConnectorError(
            "errors.deadletterqueue.topic.name: a source that writes values with a schema has no "
            "dead letters; remove it"
        )
    subject = settings["value.subject"]
    return {**_registry(settings), **names, **({"encode.subject": subject} if subject else {})}


def _registry(settings: Any) -> dict[str, str]:
    if settings["registry.url"] is None:
        raise ConnectorError("registry.url: is missing: where the schemas are")
    return {"schema.registry.url": settings["registry.url"]}


def from_typed(frame: "DataFrame", settings: Any) -> "DataFrame":
    """Return typed rows with the columns of other records: the fields are the struct `value`."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    fields = [f.col(f"`{name}`") for name in frame.columns if not name.startswith("_")]
    nothing = f.lit(None).cast("binary")
    raw = f.col("_corrupt") if "_corrupt" in frame.columns else nothing
    topic = f.col("_topic") if "_topic" in frame.columns else f.lit(settings["topics"][0])
    is_text = settings["key.converter"] in {"json", "string"}
    key = f.col("_key").cast("string") if is_text else f.col("_key")
    if settings["key.schema"] is not None and settings["key.converter"] == "json":
        key = f.from_json(key, settings["key.schema"])
    has_value = ~f.col("_tombstone") & raw.isNull()
    return frame.select(
        key.alias("key"),
        f.when(has_value, f.struct(*fields)).alias("value"),
        topic.alias("topic"),
        f.col("_partition").alias("partition"),
        f.col("_offset").alias("offset"),
        f.col("_timestamp").alias("timestamp"),
        raw.alias("raw"),
        topic.alias("origin"),
        f.when(raw.isNotNull(), f.lit(_NOT_OF_SCHEMA)).alias("error"),
    )


_NOT_OF_SCHEMA: Final = "the value is of no registered schema"


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


def encoded(frame: "DataFrame", settings: Any, *, is_value_encoded: bool = False) -> "DataFrame":
    """Encode keys and values with the configured converters.

    A source that encodes its values also encodes keys with a registered schema.
    """
    left_out = [
        name
        for name in ("key", "value")
        if is_value_encoded and settings[f"{name}.converter"] in REGISTERED
    ]
    columns: dict[str, Column] = {
        name: _encoded(frame, name, settings[f"{name}.converter"])
        for name in ("key", "value")
        if name in frame.columns and name not in left_out
    }
    return frame.withColumns(columns)


def _encoded(frame: "DataFrame", name: str, converter: str) -> "Column":
    from pyspark.sql import functions as f  # noqa: PLC0415
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType  # noqa: PLC0415

    kind = frame.schema[name].dataType
    if converter in REGISTERED:
        if name == "value" and not isinstance(kind, StructType):
            raise ConnectorError(
                f"value.converter: {converter} needs fields: value.schema says which the JSON has"
            )
        return f.col(name)
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
    is_json = settings["value.converter"] == "json"
    if not is_json and settings["value.converter"] not in REGISTERED:
        return None
    if settings["value.schema"] is not None:
        return parsed_schema(settings["value.schema"], "value.schema")
    if not needs_fields or not is_json:
        return None
    kept = declaration.folder / INFERRED
    if kept.exists():
        return StructType.fromJson(json.loads(kept.read_text(encoding="utf-8")))
    found = _inferred(spark, declaration)
    write_atomically(kept, found.json())
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
