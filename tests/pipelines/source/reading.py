"""A cluster without Spark: topics to read, and the source's own reading of them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

import pyarrow as pa

from ottla import Admin, Producer
from ottla.clients.tables.range_reader import read_range
from ottla.clients.tables.topic_cluster import TopicCluster
from ottla.pipelines.source.batch_reader import planned
from ottla.pipelines.source.options import SourceOptions, read_options
from ottla.pipelines.source.planning import TaskRange, Wanted
from ottla.wire.records import arrow

COLUMNS = arrow.schema(include_headers=True)
_numbers = count()


def options_of(servers: str, *, is_streaming: bool = False, **options: str) -> SourceOptions:
    """Read options, for a cluster."""
    return read_options({"kafka.bootstrap.servers": servers, **options}, is_streaming=is_streaming)


@contextmanager
def cluster_of(options: SourceOptions) -> Iterator[TopicCluster]:
    """Connect to a cluster; close all connections at the end."""
    with TopicCluster(options.client) as cluster:
        yield cluster


def read(servers: str, columns: pa.Schema = COLUMNS, **options: str) -> list[dict[str, Any]]:
    """Read a batch, each range after the other."""
    wanted = options_of(servers, **options)
    with cluster_of(wanted) as cluster:
        ranges = planned(cluster, wanted, Wanted())
        return read_ranges(cluster, wanted, ranges, columns)


def read_ranges(
    cluster: TopicCluster,
    options: SourceOptions,
    ranges: list[TaskRange],
    columns: pa.Schema = COLUMNS,
) -> list[dict[str, Any]]:
    """Read ranges as tasks do."""
    batches = [
        batch
        for one in ranges
        for batch in read_range(
            cluster, one, options.fetching, columns, fail_on_data_loss=options.fail_on_data_loss
        )
    ]
    assert all(batch.num_rows for batch in batches)
    return pa.Table.from_batches(batches, columns).to_pylist()


def values(rows: list[dict[str, Any]]) -> list[bytes | None]:
    """Return the values of rows."""
    return [row["value"] for row in rows]


def make_topic(servers: str, word: str, partitions: int = 1, **configs: str) -> str:
    """Create a topic with this name prefix; settings are given with underscores."""
    name = f"{word}-{next(_numbers)}"
    with Admin(bootstrap_servers=servers) as admin:
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        admin.topics.create(name, partitions=partitions, configs=dotted)
    return name


def send(servers: str, topic: str, sent: Mapping[int, list[str]], **settings: Any) -> None:
    """Send values to partitions."""
    with Producer(bootstrap_servers=servers, **settings) as producer:
        for partition, texts in sent.items():
            for text in texts:
                producer.send(topic, text, partition=partition)


def numbered(count: int, first: int = 0) -> list[str]:
    """Return consecutively numbered values."""
    return [f"v{number}" for number in range(first, first + count)]


def offsets(topic: str, *numbers: int) -> str:
    """Write offsets of partitions 0, 1, … as options have them."""
    return json.dumps({topic: {str(partition): number for partition, number in enumerate(numbers)}})
