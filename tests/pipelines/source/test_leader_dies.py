"""The leader of a partition is killed during a read: tasks find the next, and lose no record."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, TopicPartition
from ottla.clients.tables.range_reader import read_range
from ottla.pipelines.source.planning import TaskRange
from ottla.pipelines.source.stream_plan import StreamPlan
from ottla.testing import Cluster
from tests.pipelines.source.reading import (
    COLUMNS,
    cluster_of,
    make_topic,
    numbered,
    options_of,
    send,
)

SETTINGS = {"zookeeper.session.timeout.ms": "2000", "default.replication.factor": "3"}
COUNT = 2000
pytestmark = pytest.mark.usefixtures("needs_zookeeper")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(3, SETTINGS, data_dir=tmp_path, zookeeper=True) as running:
        yield running


def test_a_task_and_its_query_go_on_with_the_next_leader(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    topic = make_topic(servers, "orders", min_insync_replicas="2")
    send(servers, topic, {0: numbered(COUNT)}, acks="all", batch_size=1000)
    small = {"kafka.max.partition.fetch.bytes": "2000", "startingOffsets": "earliest"}
    options = options_of(servers, is_streaming=True, subscribe=topic, **small)
    with cluster_of(options) as source:
        plan = StreamPlan(source, options)
        start = plan.initial()
        end = plan.latest(start, None)
        (wanted,) = plan.ranges(start, end)
        assert wanted == TaskRange(topic, 0, 0, COUNT, wanted.topic_id)
        batches = read_range(source, wanted, options.fetching, COLUMNS, fail_on_data_loss=True)
        found = next(batches)["value"].to_pylist()
        with Admin(bootstrap_servers=servers) as admin:
            shape = admin.topics.describe(topic)[topic]
            cluster.brokers[shape.partitions[0].leader].kill()
        found += [value for batch in batches for value in batch["value"].to_pylist()]
        assert [value.decode() for value in found] == numbered(COUNT)
        send(servers, topic, {0: ["last"]}, acks="all")
        assert plan.latest(end, None).offset_by_partition == {TopicPartition(topic, 0): COUNT + 1}
