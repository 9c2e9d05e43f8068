"""Spark's own connector reads from Ottla and writes to it, in batches and in streams."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.kafka_clients import (
    NewRecord,
    consume,
    create_topic,
    producer,
    send,
    set_topic_config,
)
from tests.interop.ottla_process import OttlaProcess
from tests.interop.seen import SeenRecord
from tests.interop.spark_session import spark_session

# PySpark leaves sockets to its JVM for the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

SCHEMA = "key string, value string, headers array<struct<key: string, value: binary>>"
STARTED_MS = 1_700_000_000_000
QUERY_SECONDS_MAX = 120


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


class Cluster:
    """The broker as Spark's jobs name it."""

    def __init__(self, spark: Any, server: str) -> None:
        self.spark = spark
        self.server = server

    def rows(self, **options: str) -> list[Any]:
        """Read a batch."""
        return self._options(self.spark.read, options).load().collect()

    def stream(self, **options: str) -> Any:
        """Begin to read a stream, from the first record on."""
        reader = self._options(self.spark.readStream, options)
        return reader.option("startingOffsets", "earliest").load()

    def write(self, frame: Any, **options: str) -> None:
        """Write a batch."""
        self._options(frame.write, options).save()

    def write_all_there_is(
        self, frame: Any, checkpoint: Path, mode: str = "append", **options: str
    ) -> Any:
        """Run a query over the existing records, and return its last progress report."""
        writer = self._options(frame.writeStream.outputMode(mode), options)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = writer.start()
        assert query.awaitTermination(QUERY_SECONDS_MAX), query.status
        return query.lastProgress

    def _options(self, where: Any, options: dict[str, str]) -> Any:
        where = where.format("kafka").option("kafka.bootstrap.servers", self.server)
        return where.option("includeHeaders", "true").options(**options)

    def everything(self, topic: str, partitions: int = 1) -> list[SeenRecord]:
        """Read a topic with another client."""
        return [r for n in range(partitions) for r in consume(self.server, topic, n)]


@pytest.fixture(scope="module")
def cluster(spark: Any, ottla: OttlaProcess) -> Cluster:
    return Cluster(spark, ottla.server)


def written(count: int, first: int = 0) -> list[NewRecord]:
    """Make records with headers, a millisecond apart."""
    return [
        NewRecord(STARTED_MS + n, f"key {n}", f"value {n}", (("number", str(n)),))
        for n in range(first, first + count)
    ]


def texts(rows: list[Any]) -> list[tuple[str, str]]:
    """Sort the keys and values of rows."""
    return sorted((row.key.decode(), row.value.decode()) for row in rows)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_written_by_spark_is_readable_by_every_client(cluster: Cluster, codec: str) -> None:
    topic = f"batch-{codec}"
    create_topic(cluster.server, topic, 3)
    rows = [(f"key {n}", f"value {n}", [("number", b"%d" % n)]) for n in range(100)]
    frame = cluster.spark.createDataFrame(rows, SCHEMA)
    cluster.write(frame, topic=topic, **{"kafka.compression.type": codec})

    expected = sorted((f"key {n}", f"value {n}", (("number", str(n)),)) for n in range(100))
    seen = cluster.everything(topic, 3)
    assert sorted((r.key, r.value, r.headers) for r in seen) == expected
    assert texts(cluster.rows(subscribe=topic)) == [(key, value) for key, value, _ in expected]


def test_a_batch_is_read_with_everything_that_a_record_has(cluster: Cluster) -> None:
    create_topic(cluster.server, "letters")
    send(producer(cluster.server), "letters", 0, written(5))
    rows = cluster.rows(subscribe="letters")
    assert [
        (row.topic, row.partition, row.offset, int(row.timestamp.timestamp() * 1000))
        for row in rows
    ] == [("letters", 0, n, STARTED_MS + n) for n in range(5)]
    assert [(row.headers[0].key, row.headers[0].value.decode()) for row in rows] == [
        ("number", str(n)) for n in range(5)
    ]
    assert texts(rows) == [(f"key {n}", f"value {n}") for n in range(5)]


def test_a_batch_is_any_range_of_offsets_or_times(cluster: Cluster) -> None:
    create_topic(cluster.server, "ranges")
    send(producer(cluster.server), "ranges", 0, written(100))

    def offsets(**options: str) -> list[int]:
        return [row.offset for row in cluster.rows(subscribe="ranges", **options)]

    begin, end = json.dumps({"ranges": {"0": 10}}), json.dumps({"ranges": {"0": 20}})
    assert offsets(startingOffsets=begin, endingOffsets=end) == [*range(10, 20)]
    begin, end = str(STARTED_MS + 30), str(STARTED_MS + 40)
    assert offsets(startingTimestamp=begin, endingTimestamp=end) == [*range(30, 40)]
    assert sorted(offsets(minPartitions="4")) == [*range(100)]


def test_topics_are_found_by_pattern_and_by_partition(cluster: Cluster) -> None:
    for topic in ("found-a", "found-b"):
        create_topic(cluster.server, topic, 2)
        for index in range(2):
            send(producer(cluster.server), topic, index, written(2))
    assert len(cluster.rows(subscribePattern="found-.*")) == 8
    (assigned,) = {(r.topic, r.partition) for r in cluster.rows(assign='{"found-b": [1]}')}
    assert assigned == ("found-b", 1)


def test_a_row_says_which_topic_and_partition_it_goes_to(cluster: Cluster) -> None:
    for topic in ("inbox", "outbox"):
        create_topic(cluster.server, topic, 2)
    rows = [("inbox", 1, "k", "in"), ("outbox", 0, None, "out"), ("outbox", 1, "k", None)]
    schema = "topic string, partition int, key string, value string"
    cluster.write(cluster.spark.createDataFrame(rows, schema))
    inbox, outbox = (cluster.everything(topic, 2) for topic in ("inbox", "outbox"))
    assert [(r.key, r.value) for r in inbox] == [("k", "in")]
    assert [(r.key, r.value) for r in outbox] == [(None, "out"), ("k", None)]


def test_a_stream_goes_on_where_its_checkpoint_ends(cluster: Cluster, tmp_path: Path) -> None:
    for topic in ("source", "there", "back"):
        create_topic(cluster.server, topic, 2)

    def copy(source: str, target: str) -> int:
        frame = cluster.stream(subscribe=source, maxOffsetsPerTrigger="50")
        frame = frame.select("key", "value", "headers")
        progress = cluster.write_all_there_is(frame, tmp_path / target, topic=target)
        return int(progress["batchId"])

    send(producer(cluster.server), "source", 0, written(100))
    first = copy("source", "there"), copy("there", "back")
    send(producer(cluster.server), "source", 1, written(20, first=100))
    second = copy("source", "there"), copy("there", "back")

    assert first[0] >= 1, "more than one micro-batch"
    assert all(later > earlier for earlier, later in zip(first, second, strict=True))
    expected = sorted((r.key, r.value, r.headers) for r in written(120))
    for topic in ("there", "back"):
        assert sorted((r.key, r.value, r.headers) for r in cluster.everything(topic, 2)) == expected


def test_a_stream_counts_by_key(cluster: Cluster, tmp_path: Path) -> None:
    for topic in ("words", "counts"):
        create_topic(cluster.server, topic)
    set_topic_config(cluster.server, "counts", {"cleanup.policy": "compact"})
    words = [NewRecord(STARTED_MS, word, "") for word in ("a", "b", "a", "c", "a")]
    send(producer(cluster.server), "words", 0, words)

    counted = cluster.stream(subscribe="words").groupBy("key").count()
    frame = counted.selectExpr("key", "cast(count as string) as value")
    cluster.write_all_there_is(frame, tmp_path, "update", topic="counts")
    counts = {record.key: record.value for record in cluster.everything("counts")}
    assert counts == {"a": "3", "b": "1", "c": "1"}
