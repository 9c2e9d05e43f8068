"""The records that `df.write.format("ottla")` writes, and the rows that it refuses."""

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer as LibrdkafkaProducer
from pyspark.sql import functions as f

from ottla import Admin, Consumer
from tests.pipelines.sink.reading import all_committed, partitions_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def new_topic(servers: str, partition_count: int = 3) -> str:
    topic = f"topic-{uuid4()}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.topics.create(topic, partitions=partition_count)
    return topic


def write(frame: "DataFrame", servers: str, **options: str) -> None:
    named = {"kafka.bootstrap.servers": servers, **options}
    frame.write.format("ottla").mode("append").options(**named).save()


def records_of(servers: str, topic: str) -> list[Any]:
    """Return all records of a topic up to its current end."""
    with Admin(bootstrap_servers=servers) as admin:
        partitions = partitions_of(admin, topic)
    found: list[Any] = []
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(name) < end for name, end in ends.items()):
            found += consumer.poll()
    return found


def test_all_columns_arrive(spark: "SparkSession", broker_servers: str) -> None:
    topic = new_topic(broker_servers)
    frame = spark.sql("""
        SELECT 'k' AS key, 'v' AS value, 2 AS partition,
               array(named_struct('key', 'h', 'value', X'00FF')) AS headers, 'ignored' AS other
        UNION ALL SELECT NULL, NULL, 1, NULL, 'too'
    """)
    write(frame, broker_servers, topic=topic)
    found = sorted(records_of(broker_servers, topic), key=lambda each: each.partition)
    rows = [(each.partition, each.key, each.value, list(each.headers)) for each in found]
    assert rows == [(1, None, None, []), (2, b"k", b"v", [("h", b"\x00\xff")])]


def test_keys_go_where_other_clients_put_them(spark: "SparkSession", broker_servers: str) -> None:
    ours, theirs = new_topic(broker_servers, 7), new_topic(broker_servers, 7)
    keys = spark.range(500).select(f.expr("encode(string(id), 'utf-8')").alias("key"))
    write(keys.withColumn("value", f.col("key")), broker_servers, topic=ours)
    other = LibrdkafkaProducer(
        {"bootstrap.servers": broker_servers, "partitioner": "murmur2_random"}
    )
    for number in range(500):
        other.produce(theirs, key=str(number), value=b"")
    assert other.flush(60) == 0
    placed = [
        {each.key: each.partition for each in records_of(broker_servers, topic)}
        for topic in (ours, theirs)
    ]
    assert len(placed[0]) == 500
    assert placed[0] == placed[1]


def test_rows_are_sorted_by_topic_and_keep_their_order(
    spark: "SparkSession", broker_servers: str
) -> None:
    topics = [new_topic(broker_servers, 1) for _ in range(3)]
    names = f.array(*map(f.lit, topics))
    frame = spark.range(0, 30_000, 1, 1).select(
        names[(f.col("id") % 3).cast("int")].alias("topic"),
        f.col("id").cast("string").alias("value"),
    )
    write(frame, broker_servers)
    for number, topic in enumerate(topics):
        values = [int(each) for each in all_committed(broker_servers, topic)]
        assert values == list(range(number, 30_000, 3))


def test_the_option_wins_over_the_column(spark: "SparkSession", broker_servers: str) -> None:
    topic = new_topic(broker_servers, 1)
    write(spark.sql("SELECT 'nowhere' AS topic, 'v' AS value"), broker_servers, topic=topic)
    assert all_committed(broker_servers, topic) == ["v"]


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("SELECT 1 AS id", {"topic": "t"}, "column value is missing; the columns are: id"),
        ("SELECT 'v' AS value", {}, "no topic: give the option topic, or a column topic"),
        ("SELECT 1 AS value", {"topic": "t"}, "column value is int: expected binary or string"),
        ("SELECT 'v' AS value, 1L AS partition", {"topic": "t"}, "column partition is bigint"),
        ("SELECT 'v' AS value, 'h' AS headers", {"topic": "t"}, "column headers is string"),
        ("SELECT 'v' AS value", {"topic": "t", "exactlyOnce": "yes"}, "expected true or false"),
        ("SELECT 'v' AS value", {"topic": "t", "exactly_once": "true"}, "mean exactlyOnce"),
        ("SELECT 'v' AS value", {"topic": "t", "txnAppId": "a"}, "txnVersion go together"),
        ("SELECT 'v' AS value", {"topic": "t", "kafka.transactional.id": "x"}, "Prefix says how"),
        ("SELECT 'v' AS value", {"topic": "t", "kafka.bootstrap.servers": ""}, "is missing: give"),
    ],
)
def test_what_cannot_be_written_is_told(
    spark: "SparkSession", broker_servers: str, query: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        write(spark.sql(query), broker_servers, **options)


def test_a_broker_that_is_away_is_told_of_at_once(spark: "SparkSession") -> None:
    with pytest.raises(Exception, match="is the broker running"):
        write(spark.sql("SELECT 'v' AS value"), "127.0.0.1:1", topic="t")


def test_a_topic_is_not_overwritten(spark: "SparkSession", broker_servers: str) -> None:
    writing = spark.sql("SELECT 'v' AS value").write.format("ottla").mode("overwrite")
    with pytest.raises(Exception, match="only added to: say mode"):
        writing.options(**{"kafka.bootstrap.servers": broker_servers, "topic": "t"}).save()


def test_a_row_that_cannot_be_written_fails_the_job(
    spark: "SparkSession", broker_servers: str
) -> None:
    topic = new_topic(broker_servers)
    frame = spark.sql("SELECT 'v' AS value, 9 AS partition")
    with pytest.raises(Exception, match="there is no partition 9, the topic has 3"):
        write(frame, broker_servers, topic=topic)


def test_a_job_is_seen_as_a_whole_or_not_at_all(spark: "SparkSession", broker_servers: str) -> None:
    topic = new_topic(broker_servers)
    values = spark.range(0, 1_000, 1, 4).select(f.col("id").cast("string").alias("value"))
    bad = f.when(f.col("value") == "999", f.raise_error(f.lit("bad row"))).otherwise(f.col("value"))
    with pytest.raises(Exception, match="bad row"):
        write(values.select(bad.alias("value")), broker_servers, topic=topic, exactlyOnce="true")
    write(values, broker_servers, topic=topic, exactlyOnce="true")
    assert sorted(map(int, all_committed(broker_servers, topic))) == list(range(1_000))


def test_a_job_that_is_told_again_adds_nothing(spark: "SparkSession", broker_servers: str) -> None:
    topic = new_topic(broker_servers)
    for version in (0, 0, 1, 0, 1):
        frame = spark.sql(f"SELECT 'version {version}' AS value")
        options = {"topic": topic, "txnAppId": topic, "txnVersion": str(version)}
        write(frame, broker_servers, **options)
    assert sorted(all_committed(broker_servers, topic)) == ["version 0", "version 1"]
