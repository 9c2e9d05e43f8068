"""The columns of the source: the same as in Spark's Kafka source.

A schema given to the reader may name fewer of them, in any order. Only those are built and cross
from Python to the JVM.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.model.settings.settings import nearest_to
from ottla.pipelines.source.errors import SourceOptionError
from ottla.pipelines.source.options import includes_headers

HEADERS: Final = "headers"
_TYPE_BY_COLUMN: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


def all_columns(options: Mapping[str, str]) -> StructType:
    """Return every column; headers only if includeHeaders is true."""
    has_headers = includes_headers(options)
    return StructType(
        [
            StructField(name, kind)
            for name, kind in _TYPE_BY_COLUMN.items()
            if name != HEADERS or has_headers
        ]
    )


def check_columns(schema: StructType) -> None:
    """Refuse a schema that names a column that records do not have, or another type for it."""
    if not schema.fields:
        raise SourceOptionError("the schema names no column: name at least one")
    for field in schema.fields:
        kind = _TYPE_BY_COLUMN.get(field.name)
        if kind is None:
            near = nearest_to(field.name, _TYPE_BY_COLUMN)
            listed = ", ".join(_TYPE_BY_COLUMN)
            raise SourceOptionError(
                f"the schema names a column {field.name!r}{near or f': records have {listed}'}"
            )
        if field.dataType != kind:
            raise SourceOptionError(
                f"the schema says that {field.name} is {field.dataType.simpleString()}: it is "
                f"{kind.simpleString()}, to be cast in the DataFrame"
            )
