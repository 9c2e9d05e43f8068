"""Named transforms change records as documented, and leave tombstones alone."""

import json
from typing import TYPE_CHECKING, Any

import pytest

from ottla.pipelines.connect import ConnectorError
from ottla.pipelines.connect.declaring.settings import read_settings
from ottla.pipelines.connect.declaring.transforms import TRANSFORMS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id INT, card STRING, at STRUCT<city: STRING, zip: INT>"
VALUES = ['{"id":1,"card":"4711","at":{"city":"Prague","zip":110}}', None]


@pytest.fixture(scope="module")
def frame(spark: "SparkSession") -> "DataFrame":
    rows = ", ".join("(CAST(NULL AS STRING))" if v is None else f"('{v}')" for v in VALUES)
    return spark.sql(
        "SELECT 'k' AS key, from_json(v, 'id INT, card STRING, at STRUCT<city: STRING, zip: INT>')"
        " AS value, 'shop.letters' AS topic, 0 AS partition, 7L AS offset,"
        f" CAST(NULL AS STRING) AS error FROM VALUES {rows} AS t(v)"
    )


def applied(frame: "DataFrame", name: str, **settings: Any) -> "DataFrame":
    given = {key.replace("_", "."): value for key, value in settings.items()}
    values = read_settings(given, TRANSFORMS[name].settings)
    return TRANSFORMS[name].apply(frame, values)


def values(frame: "DataFrame") -> list[Any]:
    shown = frame.selectExpr("to_json(value, map('ignoreNullFields', 'false')) AS v").collect()
    return [row.v and json.loads(row.v) for row in shown]


AT = {"city": "Prague", "zip": 110}


@pytest.mark.parametrize(
    ("name", "settings", "after"),
    [
        ("rename", {"renames": "id:number"}, {"number": 1, "card": "4711", "at": AT}),
        ("drop", {"fields": ["at", "id"]}, {"card": "4711"}),
        ("keep", {"fields": "id"}, {"id": 1}),
        ("mask", {"fields": "card,id"}, {"id": 0, "card": "", "at": AT}),
        ("mask", {"fields": "card", "replacement": "*"}, {"id": 1, "card": "*", "at": AT}),
        ("cast", {"spec": {"id": "string"}}, {"id": "1", "card": "4711", "at": AT}),
        (
            "flatten",
            {"delimiter": "_"},
            {"id": 1, "card": "4711", "at_city": "Prague", "at_zip": 110},
        ),
        (
            "insert",
            {"offset_field": "o", "static_field": "s", "static_value": "x"},
            {"id": 1, "card": "4711", "at": AT, "o": 7, "s": "x"},
        ),
    ],
)
def test_fields_are_changed_and_tombstones_are_not(
    frame: "DataFrame", name: str, settings: dict[str, Any], after: dict[str, Any]
) -> None:
    assert values(applied(frame, name, **settings)) == [after, None]


def test_topics_keys_and_whole_records_are_changed(frame: "DataFrame") -> None:
    routed = applied(frame, "route", regex=r"shop\.(.*)", replacement="copy-$1")
    assert {row.topic for row in routed.collect()} == {"copy-letters"}
    elsewhere = applied(frame, "route", regex=r"hop\.(.*)", replacement="copy-$1")
    assert {row.topic for row in elsewhere.collect()} == {"shop.letters"}
    keyed = applied(frame, "value-to-key", fields=["id"])
    assert [row.key and row.key.id for row in keyed.collect()] == [1, None]
    assert values(applied(frame, "filter", condition="value.id = 2")) == []
    hashed = values(applied(frame, "mask", fields="card", method="sha256"))[0]["card"]
    assert len(hashed) == 64


def test_events_are_unwrapped_with_and_without_fields(spark: "SparkSession") -> None:
    events = spark.sql(
        "SELECT 'k' AS key, v AS value, 't' AS topic, CAST(NULL AS STRING) AS error FROM VALUES"
        """ ('{"op":"c","before":null,"after":{"id":1,"n":"1.10"}}'),"""
        """ ('{"op":"d","before":{"id":1},"after":null}'), (NULL),"""
        """ ('{"op":"t","before":null,"after":null}') AS t(v)"""
    )
    raw = applied(events, "unwrap").collect()
    assert [row.value for row in raw] == ['{"id":1,"n":"1.10"}', None, None]
    row = "STRUCT<id: INT, n: STRING>"
    parsed = events.selectExpr(
        "key",
        "topic",
        "error",
        f"from_json(value, 'op STRING, before {row}, after {row}') AS value",
    )
    assert values(applied(parsed, "unwrap")) == [{"id": 1, "n": "1.10"}, None, None]
    mode = "delete.tombstone.handling.mode"
    dropped = TRANSFORMS["unwrap"].apply(parsed, {mode: "drop"})
    assert values(dropped) == [{"id": 1, "n": "1.10"}]
    rewritten = TRANSFORMS["unwrap"].apply(parsed, {mode: "rewrite"})
    assert values(rewritten) == [
        {"id": 1, "n": "1.10", "__deleted": False},
        {"id": 1, "n": None, "__deleted": True},
    ]


def test_a_field_that_is_not_there_is_named_with_the_nearest(frame: "DataFrame") -> None:
    with pytest.raises(ConnectorError, match=r"no field 'crad'; did you mean card\?"):
        applied(frame, "mask", fields="crad")
    with pytest.raises(ConnectorError, match=r"needs fields, but the value is string"):
        applied(frame.withColumn("value", frame.topic), "drop", fields="id")
