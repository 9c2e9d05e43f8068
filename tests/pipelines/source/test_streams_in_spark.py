"""Streams in real Spark: restarts, new partitions, recreated topics, an unavailable broker."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from ottla import Admin, TopicPartition
from ottla.testing import Broker
from tests.pipelines.source.reading import make_topic, numbered, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SECONDS_MAX = 120


class Copy:
    """A query that copies a topic into Parquet files, and continues from its checkpoint."""

    def __init__(self, spark: "SparkSession", folder: Path, servers: str, **options: str) -> None:
        self._spark = spark
        self._folder = folder
        self._options = {"kafka.bootstrap.servers": servers, **options}

    def frame(self) -> "DataFrame":
        reader = self._spark.readStream.format("ottla").options(**self._options)
        return reader.schema("value binary, partition int, offset bigint").load()

    def start(self, name: str | None = None, **trigger: Any) -> "StreamingQuery":
        writer = self.frame().writeStream.format("parquet").outputMode("append")
        writer = writer.option("path", str(self._folder / "copied"))
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        if name is not None:
            writer = writer.queryName(name)
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self, name: str | None = None) -> list[int]:
        """Copy the existing records; return the number of rows of each micro-batch."""
        query = self.start(name, availableNow=True)
        assert query.awaitTermination(SECONDS_MAX)
        return [progress.numInputRows for progress in query.recentProgress if progress.sources]

    def copied(self) -> list[str]:
        """Return the values that were copied."""
        log = self._folder / "copied" / "_spark_metadata"
        assert log.is_dir()
        return sorted(
            value.decode()
            for path in (self._folder / "copied").glob("*.parquet")
            for value in pq.read_table(path)["value"].to_pylist()
        )


def wait_until(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_a_query_reads_each_record_once_and_is_shown_as_a_group(
    spark: "SparkSession", broker_servers: str, tmp_path: Path
) -> None:
    topic = make_topic(broker_servers, "orders", 2)
    send(broker_servers, topic, {0: numbered(50), 1: numbered(25, 50)})
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    copy = Copy(spark, tmp_path, broker_servers, **options)
    assert copy.run("copy-orders") == [30, 30, 15]

    with Admin(bootstrap_servers=broker_servers) as admin:
        ends = {TopicPartition(topic, 0): 50, TopicPartition(topic, 1): 25}

        def committed() -> dict[TopicPartition, int]:
            found = admin.groups.committed("ottla-query-copy-orders")
            return {name: row.offset for name, row in found.items()}

        wait_until(lambda: committed() == ends, "the last micro-batch is not committed")
        admin.topics.create_partitions({topic: 3})
    send(broker_servers, topic, {0: numbered(5, 75), 2: numbered(5, 80)})
    assert copy.run() == [10]
    assert copy.copied() == sorted(numbered(85))


def test_a_query_that_ends_in_its_first_micro_batch_loses_nothing(
    spark: "SparkSession", broker_servers: str, tmp_path: Path
) -> None:
    topic = make_topic(broker_servers, "orders")
    send(broker_servers, topic, {0: ["before"]})
    copy = Copy(spark, tmp_path, broker_servers, subscribe=topic)
    seen: list[str] = []

    def start(work: Callable[["DataFrame", int], None]) -> "StreamingQuery":
        writer = copy.frame().writeStream.foreachBatch(work)
        return writer.option("checkpointLocation", str(tmp_path / "first")).start()

    def fail(batch: "DataFrame", number: int) -> None:
        raise LookupError("the power is gone")

    def see(batch: "DataFrame", number: int) -> None:
        seen.extend(row.value.decode() for row in batch.collect())

    query = start(fail)
    wait_until(lambda: not query.status["message"].startswith("Init"), "the query does not start")
    deadline = time.monotonic() + SECONDS_MAX
    sent = 0
    while (
        query.isActive and time.monotonic() < deadline
    ):  # it begins at the end, whenever it begins
        send(broker_servers, topic, {0: [f"v{sent}"]})
        sent += 1
        time.sleep(0.2)
    assert "the power is gone" in str(query.exception())
    send(broker_servers, topic, {0: ["last"]})
    query = start(see)
    try:
        wait_until(lambda: "last" in seen, "the query does not go on")
    finally:
        query.stop()
    everything = ["before", *(f"v{number}" for number in range(sent)), "last"]
    assert seen == everything[first_offset(tmp_path / "first", topic) :]
    assert "before" not in seen


def first_offset(checkpoint: Path, topic: str) -> int:
    """Where the first micro-batch began, by the log that Spark keeps of it.

    A busy machine may look for the end only after some records were sent.
    """
    noted = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[-1])
    begin = noted if noted.get("#initial") else noted["#from"]
    return int(begin[topic]["0"])


def test_a_topic_made_again_ends_the_query_or_begins_anew(
    spark: "SparkSession", broker_servers: str, tmp_path: Path
) -> None:
    topic = make_topic(broker_servers, "orders")
    send(broker_servers, topic, {0: numbered(5)})
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    copy = Copy(spark, tmp_path, broker_servers, **options)
    copy.run()
    with Admin(bootstrap_servers=broker_servers) as admin:
        admin.topics.delete(topic)
        admin.topics.create(topic, partitions=1)
    send(broker_servers, topic, {0: numbered(9, 5)})
    with pytest.raises(Exception, match="deleted and made again"):
        copy.run()
    Copy(spark, tmp_path, broker_servers, **options, failOnDataLoss="false").run()
    assert copy.copied() == sorted(numbered(14))


def test_a_query_says_that_its_broker_is_away_and_goes_on_later(
    spark: "SparkSession", tmp_path: Path
) -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
        topic = make_topic(servers, "orders")
        send(servers, topic, {0: numbered(3)})
        limit = {"kafka.default.api.timeout.ms": "1000"}
        options = {"subscribe": topic, "startingOffsets": "earliest", **limit}
        copy = Copy(spark, tmp_path, servers, **options)
        query = copy.start()
        query.processAllAvailable()
        broker.stop()
        with pytest.raises(Exception, match=servers):
            query.awaitTermination(SECONDS_MAX)
        broker.start()
        send(servers, topic, {0: numbered(3, 3)})
        copy.run()
    assert copy.copied() == numbered(6)
