"""The methods that Spark calls on a stream's reader, called without Spark."""

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from ottla import Admin, TopicPartition
from ottla.pipelines.datasource import OttlaDataSource
from ottla.pipelines.source.columns import all_columns
from ottla.pipelines.source.stream_reader import StreamReader
from ottla.testing import Broker
from pyspark_ottla import DefaultSource
from tests.pipelines.source.reading import make_topic, numbered, send


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({"offsets.topic.num.partitions": "1"}) as broker:
        yield broker.bootstrap_servers


def reader_of(servers: str, **options: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": servers, "startingOffsets": "earliest", **options}
    return StreamReader(given, all_columns(given))


def passed_on(offset: dict[str, Any]) -> dict[str, Any]:
    """Convert an offset to text and back, as Spark does."""
    kept: dict[str, Any] = json.loads(json.dumps(offset))
    return kept


def test_spark_finds_the_format_by_the_name_of_a_module() -> None:
    assert DefaultSource is OttlaDataSource
    assert DefaultSource.name() == "ottla"


def test_micro_batches_are_planned_and_read_elsewhere(servers: str) -> None:
    topic = make_topic(servers, "orders", 2)
    send(servers, topic, {0: numbered(6), 1: numbered(4, 6)})
    reader = reader_of(servers, subscribe=topic, maxOffsetsPerTrigger="5")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(5)
    start, found = passed_on(reader.initialOffset()), []
    while (end := passed_on(reader.latestOffset(start, limit))) != start:
        elsewhere = pickle.loads(pickle.dumps(reader_of(servers, subscribe=topic)))
        for one in reader.partitions(start, end):
            for batch in elsewhere.read(pickle.loads(pickle.dumps(one))):
                found += batch["value"].to_pylist()
        start = end
    assert sorted(value.decode() for value in found) == sorted(numbered(10))
    assert reader.reportLatestOffset() == {topic: {"0": 6, "1": 4}}
    assert reader.partitions(start, start) == []


def test_spark_may_ask_for_all_records_despite_the_options(servers: str) -> None:
    topic = make_topic(servers, "orders")
    send(servers, topic, {0: numbered(6)})
    reader = reader_of(servers, subscribe=topic, minOffsetsPerTrigger="50")
    assert reader.getDefaultReadLimit() == ReadMinRows(50)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMinRows(50)) is start
    assert reader.latestOffset(start, ReadAllAvailable())[topic] == {"0": 6}


def test_a_group_that_is_named_shows_how_far_a_query_is(servers: str) -> None:
    topic = make_topic(servers, "orders")
    send(servers, topic, {0: numbered(6)})
    reader = reader_of(servers, subscribe=topic, **{"kafka.group.id": "shown"})
    reader.commit(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))
    with Admin(bootstrap_servers=servers) as admin:
        assert admin.groups.committed("shown")[TopicPartition(topic, 0)].offset == 6
