"""Arrow columns of decoded records as Spark's columns.

| Arrow | Spark |
| --- | --- |
| bool, string, binary, date, float, double | the same |
| int8 to int64 | tinyint, smallint, int, bigint |
| uint8, uint16, uint32, uint64 | smallint, int, bigint, decimal(20, 0) |
| decimal of up to 38 digits, and of more | decimal, string |
| timestamp with a zone, without one | timestamp, timestamp_ntz; nanoseconds are cut off |
| time in milliseconds, in finer units | int of milliseconds, bigint of microseconds |
| list, map, struct | array, map, struct; all members may be null |
| null | string |
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from ottla.pipelines.source.errors import SourceOptionError

CORRUPT: Final = "_corrupt"
"""The bytes of a value, or key, that could not be decoded."""
_DECIMAL_DIGITS_MAX: Final = 38
_is = pa.types
_SCALARS: Final[tuple[tuple[Callable[[pa.DataType], bool], spark.DataType], ...]] = (
    (_is.is_boolean, spark.BooleanType()),
    (_is.is_int8, spark.ByteType()),
    (_is.is_int16, spark.ShortType()),
    (_is.is_int32, spark.IntegerType()),
    (_is.is_int64, spark.LongType()),
    (_is.is_uint8, spark.ShortType()),
    (_is.is_uint16, spark.IntegerType()),
    (_is.is_uint32, spark.LongType()),
    (_is.is_uint64, spark.DecimalType(20, 0)),
    (_is.is_float32, spark.FloatType()),
    (_is.is_float64, spark.DoubleType()),
    (_is.is_string, spark.StringType()),
    (_is.is_large_string, spark.StringType()),
    (_is.is_binary, spark.BinaryType()),
    (_is.is_large_binary, spark.BinaryType()),
    (_is.is_fixed_size_binary, spark.BinaryType()),
    (_is.is_date, spark.DateType()),
    (_is.is_time32, spark.IntegerType()),
    (_is.is_time64, spark.LongType()),
    (_is.is_null, spark.StringType()),
)


def spark_type(kind: pa.DataType, place: str) -> spark.DataType:
    """Return the type of Spark's column; SourceOptionError if there is none."""
    for test, found in _SCALARS:
        if test(kind):
            return found
    if _is.is_decimal(kind):
        if kind.precision <= _DECIMAL_DIGITS_MAX:
            return spark.DecimalType(kind.precision, kind.scale)
        return spark.StringType()
    if _is.is_timestamp(kind):
        return spark.TimestampNTZType() if kind.tz is None else spark.TimestampType()
    return _nested(kind, place)


def _nested(kind: pa.DataType, place: str) -> spark.DataType:
    if _is.is_struct(kind):
        members = [kind.field(number) for number in range(kind.num_fields)]
        return spark.StructType(
            [spark.StructField(one.name, spark_type(one.type, f"{place}.{one.name}"))
             for one in members]
        )  # fmt: skip
    if _is.is_list(kind) or _is.is_large_list(kind):
        return spark.ArrayType(spark_type(kind.value_type, f"{place}[]"))
    if _is.is_map(kind):
        key, item = f"{place} key", f"{place}{{}}"
        return spark.MapType(spark_type(kind.key_type, key), spark_type(kind.item_type, item))
    if _is.is_dictionary(kind):
        return spark_type(kind.value_type, place)
    raise SourceOptionError(
        f"field {place} is {kind} in Arrow, which Spark does not have: leave it out by .schema(…)"
    )


def cast(array: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Return an array of Spark's type, and the rows with values beyond the type; they are null."""
    if array.type.equals(kind):
        return array, []
    if _is.is_time64(array.type) and array.type.unit == "ns":
        array = pc.cast(array, options=_options(pa.time64("us")))
    options = _options(kind)
    try:
        return pc.cast(array, options=options), []
    except pa.ArrowInvalid:
        return _cast_by_row(array, options, kind)


def _options(kind: pa.DataType) -> pc.CastOptions:
    return pc.CastOptions(target_type=kind, allow_time_truncate=True)


def _cast_by_row(
    array: pa.Array, options: pc.CastOptions, kind: pa.DataType
) -> tuple[pa.Array, list[int]]:
    pieces, bad = [], []
    for row in range(len(array)):
        try:
            pieces.append(pc.cast(array.slice(row, 1), options=options))
        except pa.ArrowInvalid:
            pieces.append(pa.nulls(1, kind))
            bad.append(row)
    return pa.concat_arrays(pieces), bad
