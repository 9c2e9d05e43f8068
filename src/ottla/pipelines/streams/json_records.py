"""Parses JSON values into columns by a schema, and gives the reason for each bad record.

All of it is Spark's own expressions: no record passes through Python.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType, StringType, StructField, StructType

from ottla.pipelines.streams.columns import (
    DELETED,
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TOPIC,
    is_of_the_record,
    quoted,
)

Schema = StructType | str
"""The fields of a value: Spark's type, or its text form ("id long, name string")."""
SHOWN_CHARACTERS_MAX: Final = 100
"""The length to which a bad value is truncated in messages."""
_PARSED: Final = "_parsed"
_CORRUPT: Final = "_corrupt"
_HEADER_TYPE: Final = "array<struct<key: string, value: binary>>"
_ERRORS: Final = "__connect.errors."


@dataclass(frozen=True, slots=True)
class JsonRecords:
    """Raw records, read as JSON objects."""

    schema: StructType
    judged: DataFrame
    """Raw records with their parsed values."""
    is_bad: Column
    """Whether a record is bad."""
    reason: Column
    """The reason why a record is bad."""

    def rows(self, *, must_be_good: bool) -> DataFrame:
        """Return the good records as columns; bad ones end the query, or are skipped."""
        if must_be_good:
            said = sql.concat(_place(), sql.lit(": "), self.reason)
            refused = _interpreted(sql.raise_error(said).cast("boolean"))
            frame = self.judged.where(sql.when(self.is_bad, refused).otherwise(True))
        else:
            frame = self.judged.where(~self.is_bad)
        fields = [sql.col(f"{_PARSED}.{quoted(name)}").alias(name) for name in self.schema.names]
        return frame.select(*_of_the_record(frame), *fields)

    def dead_letters(self, application: str) -> DataFrame:
        """Return the bad records unchanged, with the reason in their headers."""
        told = {
            "topic": sql.col("topic"),
            "partition": sql.col("partition").cast("string"),
            "offset": sql.col("offset").cast("string"),
            "stage": sql.lit("VALUE_CONVERTER"),
            "connector.name": sql.lit(application),
            "exception.class.name": sql.lit("ottla.streams.BadRecord"),
            "exception.message": self.reason,
        }
        headers = sql.array(*(_header(_ERRORS + name, value) for name, value in told.items()))
        if "headers" in self.judged.columns:
            before = sql.coalesce(sql.col("headers"), sql.array().cast(_HEADER_TYPE))
            headers = sql.concat(before, headers)
        bad = self.judged.where(self.is_bad)
        return bad.select("key", "value", headers.alias("headers"))


def read_json(records: DataFrame, schema: Schema) -> JsonRecords:
    """Parse the values of raw records by a schema; a record without a value is all nulls.

    A value is bad if it is not a JSON object, if a field has another type than in the schema, or if
    a NOT NULL field is missing. Fields outside the schema are ignored.
    """
    fields = fields_of(schema)
    text = sql.col("value").cast("string")
    with_corrupt = StructType([*_all_nullable(fields), StructField(_CORRUPT, StringType())])
    parsed = sql.from_json(text, with_corrupt, {"columnNameOfCorruptRecord": _CORRUPT})
    read = records.withColumn(_PARSED, parsed)
    return JsonRecords(fields, read, _is_bad(fields), _reason(fields, text))


def fields_of(schema: Schema) -> StructType:
    """Return a schema as Spark's type. ValueError for names that are reserved for the record."""
    if isinstance(schema, str):
        schema = _parsed_schema(schema)
    reserved = [name for name in schema.names if is_of_the_record(name)]
    if reserved:
        raise ValueError(
            f"fields that begin with an underscore are reserved for record metadata: {reserved}"
        )
    return schema


def _parsed_schema(words: str) -> StructType:
    parsed = DataType.fromDDL(words)
    if not isinstance(parsed, StructType):
        raise TypeError(f"a schema names fields and their types, as in 'id long', not {words!r}")
    return parsed


def _all_nullable(schema: StructType) -> list[StructField]:
    # A missing field must be detected, not parsed as zero.
    return [StructField(field.name, field.dataType, nullable=True) for field in schema.fields]


def _is_bad(schema: StructType) -> Column:
    """Whether a record is bad: the only expression that Spark computes for a good one."""
    required = [field.name for field in schema.fields if not field.nullable]
    missing = [sql.col(f"{_PARSED}.{quoted(name)}").isNull() for name in required]
    return sql.col("value").isNotNull() & reduce(Column.__or__, missing, _is_corrupt())


def _is_corrupt() -> Column:
    return sql.col(_PARSED).isNull() | sql.col(f"{_PARSED}.{_CORRUPT}").isNotNull()


def _reason(schema: StructType, text: Column) -> Column:
    """Return the reason why a record is bad."""
    shown = sql.substring(text, 1, SHOWN_CHARACTERS_MAX)
    fields = [reason for field in schema.fields for reason in _field_reasons(field, text)]
    what = (
        sql.when(~sql.is_valid_utf8(text), sql.lit("the value is not UTF-8"))
        .when(sql.try_parse_json(text).isNull(), _message("the value is not JSON: ", shown))
        .when(~sql.ltrim(text).startswith("{"), _message("the value is no JSON object: ", shown))
        .otherwise(sql.coalesce(*fields, sql.lit("the value does not fit the schema")))
    )
    missing = sql.coalesce(*_missing(schema), sql.lit(None).cast("string"))
    return sql.when(_is_corrupt(), what).otherwise(missing)


def _interpreted(value: Column) -> Column:
    """Return an equal expression that Spark interprets instead of generating code.

    Spark generates the code of a filter anew in each task. Without this, half the time of a task
    with one record would go into the code of a message that is rarely needed. Expressions with a
    lambda are interpreted.
    """
    return sql.exists(sql.array(sql.lit(True)), lambda _: value)


def _field_reasons(field: StructField, text: Column) -> list[Column]:
    path = "$['" + field.name.replace("'", "\\'") + "']"
    found = sql.get_json_object(text, path)
    is_wrong = found.isNotNull() & sql.col(f"{_PARSED}.{quoted(field.name)}").isNull()
    shown = sql.substring(found, 1, SHOWN_CHARACTERS_MAX)
    sentence = f"field {field.name} is no {field.dataType.simpleString()}: "
    return [sql.when(is_wrong, _message(sentence, shown))]


def _missing(schema: StructType) -> list[Column]:
    return [
        sql.when(
            sql.col(f"{_PARSED}.{quoted(field.name)}").isNull(),
            sql.lit(f"field {field.name} is missing"),
        )
        for field in schema.fields
        if not field.nullable
    ]


def _message(sentence: str, value: Column) -> Column:
    return sql.concat(sql.lit(sentence), value)


def _place() -> Column:
    partition, offset = (sql.col(name).cast("string") for name in ("partition", "offset"))
    return sql.concat(sql.col("topic"), sql.lit("-"), partition, sql.lit(" offset "), offset)


def _header(name: str, value: Column) -> Column:
    return sql.struct(sql.lit(name).alias("key"), value.cast("binary").alias("value"))


def _of_the_record(frame: DataFrame) -> list[Column]:
    columns = [
        sql.col("key").cast("string").alias(KEY),
        sql.col("topic").alias(TOPIC),
        sql.col("partition").alias(PARTITION),
        sql.col("offset").alias(OFFSET),
        sql.col("timestamp").alias(TIMESTAMP),
    ]
    if "headers" in frame.columns:
        columns.append(sql.col("headers").alias(HEADERS))
    if DELETED in frame.columns:
        columns.append(sql.col(DELETED))
    return columns
