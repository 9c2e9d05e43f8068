"""Batch reads in real Spark: `spark.read.format("ottla")`."""

from typing import TYPE_CHECKING, Any

import pytest

from ottla import Producer
from tests.pipelines.source.reading import make_topic, numbered, offsets, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def frame(spark: "SparkSession", servers: str, schema: str = "", **options: str) -> "DataFrame":
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", servers)
    return (reader.schema(schema) if schema else reader).options(**options).load()


def test_a_row_has_all_that_the_record_has(spark: "SparkSession", broker_servers: str) -> None:
    topic = make_topic(broker_servers, "letters", 2)
    with Producer(bootstrap_servers=broker_servers) as producer:
        headers = [("from", b"Prague"), ("empty", None)]
        sent = {"headers": headers, "timestamp": 1_700_000_000_123, "partition": 1}
        producer.send(topic, "Dear", key="O", **sent)
        producer.send(topic, None, key="O", partition=0)
    found = frame(spark, broker_servers, subscribe=topic, includeHeaders="true")
    kinds = "binary binary string int bigint timestamp int array<struct<key:string,value:binary>>"
    names = "key value topic partition offset timestamp timestampType headers"
    assert found.dtypes == list(zip(names.split(), kinds.split(), strict=True))
    tombstone, letter = sorted(found.collect(), key=lambda row: row.partition)
    assert (tombstone.key, tombstone.value, tombstone.headers) == (b"O", None, None)
    assert (letter.value, letter.topic, letter.offset) == (b"Dear", topic, 0)
    assert letter.timestamp.timestamp() == 1_700_000_000.123
    assert [(one.key, one.value) for one in letter.headers] == [
        ("from", b"Prague"),
        ("empty", None),
    ]


@pytest.mark.parametrize("is_on", [True, False])
def test_filters_are_right_whether_spark_hands_them_over_or_not(
    spark: "SparkSession", broker_servers: str, is_on: bool
) -> None:
    topics = [make_topic(broker_servers, "filtered", 2) for _ in range(2)]
    for topic in topics:
        send(broker_servers, topic, {0: numbered(20), 1: numbered(20, 20)})
    spark.conf.set(PUSHDOWN, str(is_on).lower())
    try:
        both = frame(spark, broker_servers, subscribe=",".join(topics), minPartitions="3")
        wanted = both.where(f"topic = '{topics[1]}' and partition = 1 and offset between 3 and 5")
        assert is_filtered_by_spark(wanted) is not is_on
        assert sorted(row.value for row in wanted.collect()) == [b"v23", b"v24", b"v25"]
        assert both.where("offset < 0").count() == 0
    finally:
        spark.conf.set(PUSHDOWN, "true")


def is_filtered_by_spark(wanted: "DataFrame") -> bool:
    plan: Any = wanted._jdf.queryExecution().executedPlan()  # type: ignore[operator]
    return "Filter" in plan.toString().replace("RuntimeFilters", "")


def test_a_schema_names_the_columns_that_are_made(
    spark: "SparkSession", broker_servers: str
) -> None:
    topic = make_topic(broker_servers, "narrow")
    send(broker_servers, topic, {0: numbered(3)})
    found = frame(spark, broker_servers, "offset bigint, value binary", subscribe=topic)
    assert [tuple(row) for row in found.collect()] == [(0, b"v0"), (1, b"v1"), (2, b"v2")]


def test_a_view_is_read_in_sql(spark: "SparkSession", broker_servers: str) -> None:
    topic = make_topic(broker_servers, "viewed")
    send(broker_servers, topic, {0: numbered(10)})
    ends = offsets(topic, 7)
    spark.sql(
        "create or replace temporary view letters using ottla options "
        f"(`kafka.bootstrap.servers` '{broker_servers}', subscribe '{topic}', "
        f"endingOffsets '{ends}')"
    )
    (row,) = spark.sql("select count(*) as n, max(offset) as last from letters").collect()
    assert (row.n, row.last) == (7, 6)


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        ("", {"subscribe": "no-such-topic"}, "there is no topic 'no-such-topic'"),
        ("", {"subscrib": "letters"}, "did you mean subscribe?"),
        ("", {"subscribe": "a", "startingOffsets": "{"}, "startingOffsets is not JSON"),
        ("valu binary", {"subscribe": "a"}, "names a column 'valu'; did you mean value?"),
        ("value string", {"subscribe": "a"}, "says that value is string: it is binary"),
    ],
)
def test_what_is_wrong_is_said(
    spark: "SparkSession", broker_servers: str, schema: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=r"Source\w+Error") as refused:
        frame(spark, broker_servers, schema, **options).collect()
    assert said in str(refused.value)
