"""A mirror from Apache Kafka and to it: both versions of its transactions, and compaction."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin, CommittedOffset, ConfigResource, Producer, TopicPartition
from ottla.testing import Broker
from tests.clients.test_transactions_of_ours import SAFE_DOWNGRADE, UPGRADE, set_level
from tests.interop.kafka_node import KafkaNode, kafka_node
from tests.pipelines.mirror.killing import check_all as check_killed
from tests.pipelines.mirror.killing import kill, started
from tests.pipelines.mirror.mirroring import (
    SETTINGS,
    Truth,
    contents,
    mirror,
    options_of,
    records_by_partition,
)
from tests.pipelines.mirror.test_notes import check_compaction

COMPACTION_SECONDS_MAX = 120


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    with kafka_node(tmp_path_factory.mktemp("kafka")) as running:
        yield running.start()


@pytest.fixture(params=[2, 1], ids=["version-2", "version-1"])
def kafka(request: pytest.FixtureRequest, node: KafkaNode) -> Iterator[str]:
    """A broker with each version of transactions."""
    if request.param == 1:
        set_level(node, 1, SAFE_DOWNGRADE)
    yield node.bootstrap_server
    if request.param == 1:
        set_level(node, 2, UPGRADE)


@pytest.fixture
def ottla_servers() -> Iterator[str]:
    with Broker(SETTINGS) as broker:
        yield broker.bootstrap_servers


def fill(servers: str, topic: str) -> None:
    """Write plain records in every codec, and transactions of which some are aborted."""
    with Admin(bootstrap_servers=servers) as admin:
        admin.topics.create(topic, partitions=2, configs={"retention.ms": "-1"})
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        settings = {"compression.type": codec, "linger.ms": 20}
        with Producer(settings, bootstrap_servers=servers) as producer:
            for number in range(200):
                producer.send(topic, b"%d" % number, key=b"k%d" % number, headers=[("h", b"x")])
    with Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(30):
            producer.begin_transaction()
            producer.send(topic, b"transaction %d" % number, partition=0)
            producer.flush()
            if number % 3 == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()


def check_copy(source: str, target: str, topic: str) -> None:
    """Mirror, and compare records, offsets, settings and a group."""
    group = TopicPartition(topic, 0)
    with Admin(bootstrap_servers=source) as admin:
        admin.groups.commit("readers", {group: CommittedOffset(101, metadata="mine")})
    following = mirror(options_of(source, target, topic, range_bytes=5_000))
    here, there = records_by_partition(source, topic), records_by_partition(target, topic)
    for number in range(2):
        truth = Truth(here[number], there[number])
        known = following._maps.of(following._copies[0].ident, number)
        for offset in range(max(here[number]) + 3):
            assert known.translate(offset) == truth.translate(offset), offset
    with Admin(bootstrap_servers=target) as admin:
        expected = CommittedOffset(Truth(here[0], there[0]).translate(101), metadata="mine")
        assert admin.groups.committed("readers")[group] == expected
        (entries,) = admin.configs.describe(ConfigResource.topic(topic)).values()
        assert entries["retention.ms"].value == "-1"


def test_from_kafka_to_ottla(
    kafka: str, ottla_servers: str, request: pytest.FixtureRequest
) -> None:
    topic = f"from-{request.node.callspec.id}"
    fill(kafka, topic)
    check_copy(kafka, ottla_servers, topic)


def test_from_ottla_to_kafka(
    kafka: str, ottla_servers: str, request: pytest.FixtureRequest
) -> None:
    topic = f"to-{request.node.callspec.id}"
    fill(ottla_servers, topic)
    check_copy(ottla_servers, kafka, topic)


def test_a_topic_that_kafka_has_compacted_is_copied_without_its_gaps(
    node: KafkaNode, ottla_servers: str
) -> None:
    servers = node.bootstrap_server
    settings = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": "1048576",
        "segment.ms": "500",
    }
    with Admin(bootstrap_servers=servers) as admin:
        admin.topics.create("compacted", partitions=1, configs=settings)
    deadline = time.monotonic() + COMPACTION_SECONDS_MAX
    while True:
        with Producer(bootstrap_servers=servers, linger_ms=50) as producer:
            for number in range(300):
                producer.send("compacted", b"%d" % number, key=b"%d" % random.randrange(40))
        offsets = sorted(records_by_partition(servers, "compacted")[0])
        if offsets[-1] - offsets[0] + 1 > len(offsets) and len(offsets) > 100:
            break
        assert time.monotonic() < deadline, "nothing was compacted"
        time.sleep(0.5)
    with Admin(bootstrap_servers=servers) as admin:  # so that it is the same for both readers
        topic = ConfigResource.topic("compacted")
        admin.configs.alter({topic: {"min.cleanable.dirty.ratio": "1", "segment.ms": None}})
    following = mirror(options_of(servers, ottla_servers, "compacted"))
    here = contents(servers, "compacted")[0]
    there = contents(ottla_servers, "compacted")[0]
    assert [row for row in there if row in set(here)] == here, "in order, and none is missing"
    assert following._copies


def test_a_mirror_to_kafka_is_killed_and_repeats_nothing(
    node: KafkaNode, ottla_servers: str, tmp_path: Path
) -> None:
    with Admin(bootstrap_servers=ottla_servers) as admin:
        admin.topics.create("orders", partitions=2)
    with Producer(bootstrap_servers=ottla_servers, linger_ms=1, batch_size=2_000) as producer:
        for number in range(50_000):
            producer.send("orders", b"%d" % number, partition=number % 2)
    for _ in range(5):
        process = started(ottla_servers, node.bootstrap_server, str(tmp_path), is_spark=False)
        time.sleep(random.random() / 2)
        kill(process)
    assert check_killed(ottla_servers, node.bootstrap_server) == 50_000


def test_notes_outlive_kafkas_compaction(node: KafkaNode, ottla_servers: str) -> None:
    check_compaction(ottla_servers, node.bootstrap_server, "noted")
