"""Arrow columns in exactly Spark's types, and the options of typed topics; without a session."""

from collections.abc import Mapping
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from ottla.pipelines.source.decode_options import (
    BadRecords,
    Tombstones,
    read_decode_options,
)
from ottla.pipelines.source.errors import SourceOptionError
from ottla.pipelines.source.typed_columns import cast, spark_type

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LOCAL = datetime(2026, 3, 1, 12)  # noqa: DTZ001 - a local timestamp
CASES: tuple[tuple[pa.DataType, Any, str, Any], ...] = (
    (pa.bool_(), True, "boolean", True),
    (pa.int8(), 1, "tinyint", 1),
    (pa.uint8(), 255, "smallint", 255),
    (pa.uint16(), 65535, "int", 65535),
    (pa.uint32(), 2**32 - 1, "bigint", 2**32 - 1),
    (pa.uint64(), 2**64 - 1, "decimal(20,0)", Decimal(2**64 - 1)),
    (pa.float32(), 0.5, "float", 0.5),
    (pa.large_string(), "a", "string", "a"),
    (pa.large_binary(), b"a", "binary", b"a"),
    (pa.binary(3), b"abc", "binary", b"abc"),
    (pa.decimal128(10, 2), Decimal("1.25"), "decimal(10,2)", Decimal("1.25")),
    (pa.decimal256(50, 2), Decimal("1.25"), "string", "1.25"),
    (pa.timestamp("ms", "UTC"), NOON, "timestamp", NOON),
    (pa.timestamp("ns", "UTC"), NOON, "timestamp", NOON),
    (pa.timestamp("us"), LOCAL, "timestamp_ntz", LOCAL),
    (pa.time32("ms"), time(0, 0, 1), "int", 1000),
    (pa.time64("us"), time(0, 0, 1), "bigint", 1_000_000),
    (pa.time64("ns"), time(0, 0, 1), "bigint", 1_000_000),
    (pa.null(), None, "string", None),
    (pa.dictionary(pa.int8(), pa.string()), "a", "string", "a"),
    (pa.list_(pa.field("item", pa.int32(), nullable=False)), [1, 2], "array<int>", [1, 2]),
    (
        pa.map_(pa.string(), pa.field("value", pa.time32("ms"), nullable=False)),
        [("a", time(0, 0, 1))],
        "map<string,int>",
        [("a", 1000)],
    ),
    (
        pa.struct([pa.field("at", pa.timestamp("ns", "UTC"), nullable=False)]),
        {"at": NOON},
        "struct<at:timestamp>",
        {"at": NOON},
    ),
)


@pytest.mark.parametrize(("kind", "value", "name", "expected"), CASES)
def test_a_column_has_exactly_the_arrow_type_that_spark_expects(
    kind: pa.DataType, value: Any, name: str, expected: Any
) -> None:
    found = spark_type(kind, "field")
    assert found.simpleString() == name
    wanted = to_arrow_schema(StructType([StructField("field", found)]), timezone="UTC")
    array, bad = cast(pa.array([value, None], kind), wanted.field("field").type)
    assert array.type.equals(wanted.field("field").type)
    array.validate(full=True)
    assert (array.to_pylist(), bad) == ([expected, None], [])


def test_nanoseconds_are_cut_off_and_values_beyond_microseconds_are_named() -> None:
    micros = pa.timestamp("us", "UTC")
    array, bad = cast(pa.array([1999], pa.timestamp("ns", "UTC")), micros)
    assert (array.cast(pa.int64()).to_pylist(), bad) == ([1], [])
    array, bad = cast(pa.array([2**62, 5], pa.timestamp("ms", "UTC")), micros)
    assert (array.is_null().to_pylist(), bad) == ([True, False], [0])


def test_a_type_that_spark_does_not_have_is_named_by_its_path() -> None:
    kind = pa.struct([pa.field("span", pa.month_day_nano_interval())])
    with pytest.raises(SourceOptionError, match=r"field order\.span is .*interval"):
        spark_type(kind, "order")


BASE = {"decode": "value", "schema.registry.url": "http://127.0.0.1:1"}


def test_options_have_defaults_and_any_case() -> None:
    assert read_decode_options({"subscribe": "a"}) is None
    read = read_decode_options({**BASE, "decode": "key, value", "DECODE.Mode": "Permissive"})
    assert read is not None
    assert (read.parts, read.version) == (("value", "key"), None)
    assert (read.bad_records, read.tombstones) == (BadRecords.PERMISSIVE, Tombstones.KEEP)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"decode": "body"}, "it must be value, key or key,value"),
        ({"decode": "value,value"}, "it must be value, key or key,value"),
        ({"decode.mode": "ignore"}, "it must be failfast, permissive, dlq"),
        ({"decode.mode": "dlq"}, "needs decode.dlq.topic"),
        ({"decode.dlq.topic": "a"}, "is for decode.mode=dlq"),
        ({"decode.version": "0"}, "it must be latest, or a number from 1 on"),
        ({"decode.follow": "yes"}, "it must be false, true"),
        ({"decode.follow": "true", "decode.version": "2"}, "exclude each other"),
        ({"decode.framing": "confluent"}, "it must be registry, none"),
        ({"decode.framing": "none"}, "needs decode.schema, a file"),
        ({"decode.schema": "no/such.avsc"}, "No such file"),
        ({"decode.schema": "order.txt"}, "its suffix must be"),
        ({"schema.registry.url": "ftp://a"}, "is not a URL"),
        ({"schema.registry.url": None}, "decode needs schema.registry.url"),
        ({"decode": None}, "is for typed topics: add the option decode"),
    ],
)
def test_a_wrong_option_is_named(given: Mapping[str, str | None], message: str) -> None:
    options = {name: text for name, text in {**BASE, **given}.items() if text is not None}
    with pytest.raises(SourceOptionError, match=message):
        read_decode_options(options)


def test_a_file_that_is_no_schema_is_named(tmp_path: Path) -> None:
    for name, text in {"a.avsc": '{"type": "recrd"}', "a.json": "{", "a.proto": "message"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(SourceOptionError, match=f"{name} is no schema"):
            read_decode_options({**BASE, "decode.schema": str(tmp_path / name)})
