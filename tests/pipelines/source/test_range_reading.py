"""Range reads of tasks, with a broker and without Spark: every kind of record, unchanged."""

import json
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from ottla import Admin, Producer, TopicPartition
from ottla.clients.tables.errors import DataLossError, SourceReadError
from ottla.clients.tables.range_reader import read_range
from ottla.clients.tables.topic_cluster import TopicCluster
from ottla.pipelines.source.options import SourceOptions
from ottla.pipelines.source.planning import TaskRange
from ottla.testing import Broker
from tests.pipelines.source.reading import (
    COLUMNS,
    cluster_of,
    make_topic,
    numbered,
    offsets,
    options_of,
    read,
    read_ranges,
    send,
    values,
)

SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "transaction.state.log.num.partitions": "3",
}
COMMITTED = {"kafka.isolation.level": "read_committed"}
SECONDS_MAX = 240
AT_ONCE_SECONDS = 30


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(SETTINGS) as broker:
        yield broker.bootstrap_servers


def test_a_record_has_all_that_it_was_sent_with(servers: str) -> None:
    topic = make_topic(servers, "letters")
    with Producer(bootstrap_servers=servers) as producer:
        headers = [("from", b"Prague"), ("empty", None)]
        producer.send(topic, "Dear", key="O", headers=headers, timestamp=1_700_000_000_123)
        producer.send(topic, None, key="O", timestamp=0)
    first, tombstone = read(servers, subscribe=topic)
    assert first["timestamp"].timestamp() == 1_700_000_000.123
    assert [(row["key"], row["value"]) for row in (first, tombstone)] == [
        (b"O", b"Dear"),
        (b"O", None),
    ]
    assert first["headers"] == [
        {"key": "from", "value": b"Prague"},
        {"key": "empty", "value": None},
    ]
    assert tombstone["headers"] is None
    for offset, row in enumerate((first, tombstone)):
        found = row["topic"], row["partition"], row["offset"], row["timestampType"]
        assert found == (topic, 0, offset, 0)


def test_the_brokers_own_time_is_told_as_such(servers: str) -> None:
    topic = make_topic(servers, "stamped", message_timestamp_type="LogAppendTime")
    send(servers, topic, {0: ["a"]})
    (row,) = read(servers, subscribe=topic)
    assert row["timestampType"] == 1
    assert abs(row["timestamp"].timestamp() - time.time()) < SECONDS_MAX


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(servers: str, codec: str) -> None:
    topic = make_topic(servers, f"packed-{codec}")
    send(servers, topic, {0: numbered(500)}, compression_type=codec, linger_ms=50)
    found = read(servers, subscribe=topic)
    assert values(found) == [text.encode() for text in numbered(500)]


def test_only_the_columns_that_are_named_are_made_and_in_their_order(servers: str) -> None:
    topic = make_topic(servers, "narrow")
    send(servers, topic, {0: ["a"]})
    columns = pa.schema([("offset", pa.int64()), pa.field("value", pa.binary(), nullable=False)])
    assert read(servers, columns, subscribe=topic) == [{"offset": 0, "value": b"a"}]


def test_an_empty_partition_is_no_work(servers: str) -> None:
    topic = make_topic(servers, "sparse", 3)
    send(servers, topic, {1: numbered(3)})
    assert [(row["partition"], row["offset"]) for row in read(servers, subscribe=topic)] == [
        (1, 0),
        (1, 1),
        (1, 2),
    ]


def test_ranges_are_exact_though_batches_are_larger(servers: str) -> None:
    topic = make_topic(servers, "ranges")
    send(servers, topic, {0: numbered(100)}, linger_ms=100)
    begins, ends = offsets(topic, 33), offsets(topic, 35)
    found = read(servers, subscribe=topic, startingOffsets=begins, endingOffsets=ends)
    assert values(found) == [b"v33", b"v34"]
    pieces = read(servers, subscribe=topic, minPartitions="7")
    assert values(pieces) == [text.encode() for text in numbered(100)]


def test_times_find_their_offsets(servers: str) -> None:
    topic = make_topic(servers, "timed")
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(10):
            producer.send(topic, str(number), timestamp=1000 + number)
    whole = {"subscribe": topic}
    found = read(servers, **whole, startingTimestamp="1003", endingTimestamp="1005")
    assert values(found) == [b"3", b"4"]
    each = offsets(topic, 1008)
    assert values(read(servers, **whole, startingOffsetsByTimestamp=each)) == [b"8", b"9"]
    assert len(read(servers, **whole, endingTimestamp="9999")) == 10
    with pytest.raises(SourceReadError, match="no record at or after 9999"):
        read(servers, **whole, startingTimestamp="9999")
    late = {"startingTimestamp": "9999", "startingOffsetsByTimestampStrategy": "latest"}
    assert read(servers, **whole, **late) == []


def test_aborted_records_and_markers_are_not_among_the_committed(servers: str) -> None:
    topic = make_topic(servers, "accounts")
    with Producer(bootstrap_servers=servers, transactional_id="bank") as bank:
        bank.init_transactions()
        for number in range(6):
            bank.begin_transaction()
            bank.send(topic, f"t{number}", partition=0)
            bank.flush()
            bank.abort_transaction() if number % 2 else bank.commit_transaction()
        bank.begin_transaction()
        bank.send(topic, "open", partition=0)
        bank.flush()
        committed = read(servers, subscribe=topic, **COMMITTED)
        everything = read(servers, subscribe=topic)
        bank.abort_transaction()
    assert values(committed) == [b"t0", b"t2", b"t4"]
    assert values(everything) == [*(b"t%d" % number for number in range(6)), b"open"]


def test_what_compaction_took_is_a_gap_and_no_loss(servers: str) -> None:
    configs = {"cleanup_policy": "compact", "segment_ms": "50", "min_cleanable_dirty_ratio": "0.01"}
    topic = make_topic(servers, "latest", **configs)
    sent = []
    deadline = time.monotonic() + SECONDS_MAX
    with Producer(bootstrap_servers=servers) as producer:
        while not sent or len(read(servers, subscribe=topic)) > len(sent) / 2:
            assert time.monotonic() < deadline, "nothing was compacted"
            for key in ("a", "b", "c"):
                sent.append((key, f"v{len(sent)}"))
                producer.send(topic, sent[-1][1], key=key, partition=0).result()
            time.sleep(0.02)
    found = read(servers, subscribe=topic)
    places = [row["offset"] for row in found]
    assert places == sorted(set(places))
    assert len(places) < len(sent)
    newest = {row["key"].decode(): row["value"].decode() for row in found}
    assert newest == dict(sent[-3:])


def test_records_that_retention_took_are_a_loss_or_left_out(servers: str) -> None:
    topic = make_topic(servers, "gone")
    send(servers, topic, {0: numbered(10)})
    with Admin(bootstrap_servers=servers) as admin:
        admin.offsets.delete_before({TopicPartition(topic, 0): 6})
    begins = offsets(topic, 2)
    with pytest.raises(DataLossError, match=r"offsets 2 to 6 of .* are gone: .*begins at 6"):
        read(servers, subscribe=topic, startingOffsets=begins)
    found = read(servers, subscribe=topic, startingOffsets=begins, failOnDataLoss="false")
    assert values(found) == [b"v6", b"v7", b"v8", b"v9"]


def test_an_end_that_is_not_there_yet_is_a_loss_or_cut_off(servers: str) -> None:
    topic = make_topic(servers, "short")
    send(servers, topic, {0: numbered(3)})
    ends = offsets(topic, 9)
    with pytest.raises(DataLossError, match="which ends at 3"):
        read(servers, subscribe=topic, endingOffsets=ends)
    assert len(read(servers, subscribe=topic, endingOffsets=ends, failOnDataLoss="false")) == 3


def test_another_topic_under_the_same_name_is_not_read(servers: str) -> None:
    topic = make_topic(servers, "twice")
    send(servers, topic, {0: numbered(5)})
    options = options_of(servers, subscribe=topic)
    with cluster_of(options) as cluster, Admin(bootstrap_servers=servers) as admin:
        topic_id = cluster.topics([topic])[topic].topic_id
        wanted = TaskRange(topic, 0, 0, 5, topic_id)
        assert len(read_ranges(cluster, options, [wanted])) == 5
        admin.topics.delete(topic)
        admin.topics.create(topic, partitions=1)
        send(servers, topic, {0: ["other"] * 5})
        with pytest.raises(DataLossError, match="deleted and made again"):
            read_ranges(cluster, options, [wanted])
        allowed = options_of(servers, subscribe=topic, failOnDataLoss="false")
        assert read_ranges(cluster, allowed, [wanted]) == []


def test_a_topic_that_is_not_there_is_told_and_the_nearest(servers: str) -> None:
    topic = make_topic(servers, "payments")
    with pytest.raises(SourceReadError, match=rf"no topic '{topic}s'; did you mean {topic}\?"):
        read(servers, subscribe=f"{topic}s")
    with pytest.raises(SourceReadError, match="no partition 4"):
        read(servers, assign=json.dumps({topic: [4]}))


def test_a_broker_that_is_away_is_told_at_once() -> None:
    with Broker() as broker:
        servers = broker.bootstrap_servers
    began = time.monotonic()
    with pytest.raises(SourceReadError, match=servers):
        read(servers, subscribe="orders")
    assert time.monotonic() - began < AT_ONCE_SECONDS


def test_a_task_goes_on_when_its_broker_is_back() -> None:
    with Broker() as broker:
        own = broker.bootstrap_servers
        topic = make_topic(own, "orders")
        send(own, topic, {0: numbered(2000)}, linger_ms=0, batch_size=1000)
        options = options_of(own, subscribe=topic, **{"kafka.max.partition.fetch.bytes": "2000"})
        with cluster_of(options) as cluster:
            topic_id = cluster.topics([topic])[topic].topic_id
            rows = _rows(cluster, options, TaskRange(topic, 0, 0, 2000, topic_id))
            found = [next(rows)]
            broker.restart()
            found += list(rows)
    assert [row["value"].decode() for row in found] == numbered(2000)


def _rows(cluster: TopicCluster, options: SourceOptions, wanted: TaskRange) -> Iterator[Any]:
    for batch in read_range(cluster, wanted, options.fetching, COLUMNS, fail_on_data_loss=True):
        yield from batch.to_pylist()


def test_a_task_gives_up_in_time() -> None:
    with Broker() as broker:
        own = broker.bootstrap_servers
        topic = make_topic(own, "orders")
        send(own, topic, {0: numbered(2)})
        timed = {"kafkaConsumer.pollTimeoutMs": "300", "kafka.reconnect.backoff.max.ms": "50"}
        options = options_of(own, subscribe=topic, **timed)
        with cluster_of(options) as cluster:
            topic_id = cluster.topics([topic])[topic].topic_id
            broker.stop()
            with pytest.raises(SourceReadError, match=r"could not be read within 0\.3 s"):
                read_ranges(cluster, options, [TaskRange(topic, 0, 0, 2, topic_id)])


def test_what_is_read_is_what_a_plain_model_says(servers: str) -> None:
    """Random records by random producers, with transactions; any range of them is exact."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    topic = make_topic(servers, "model", 2)
    model: dict[int, list[bytes]] = {0: [], 1: []}
    for number in range(12):
        codec = dice.choice(["none", "gzip", "snappy", "lz4", "zstd"])
        settings: dict[str, Any] = {
            "compression_type": codec,
            "linger_ms": dice.choice([0, 20]),
            "transactional_id": f"{topic}-{number}",
        }
        is_aborted = dice.random() < 0.4
        sent = [(dice.randrange(2), dice.randbytes(dice.randrange(300))) for _ in range(40)]
        with (
            Producer(bootstrap_servers=servers, **settings) as one,
            suppress(LookupError),
            one.transaction(),
        ):
            for partition, value in sent:
                one.send(topic, value, partition=partition)
            one.flush()
            if is_aborted:
                raise LookupError
        if not is_aborted:
            for partition, value in sent:
                model[partition].append(value)
    size = {"kafka.max.partition.fetch.bytes": str(dice.choice([500, 5_000, 1 << 20]))}
    rows = read(servers, subscribe=topic, minPartitions="5", **COMMITTED, **size)
    found: dict[int, list[bytes]] = {0: [], 1: []}
    for row in rows:
        found[row["partition"]].append(row["value"])
    assert found == model, f"seed {seed}"
    places = {(row["partition"], row["offset"]): row["value"] for row in rows}
    begins = [dice.randrange(300) for _ in range(2)]
    ends = [begin + dice.randrange(100) for begin in begins]
    part = read(
        servers,
        subscribe=topic,
        startingOffsets=offsets(topic, *begins),
        endingOffsets=offsets(topic, *ends),
        failOnDataLoss="false",
        **COMMITTED,
    )
    assert {(row["partition"], row["offset"]): row["value"] for row in part} == {
        (partition, offset): value
        for (partition, offset), value in places.items()
        if begins[partition] <= offset < ends[partition]
    }
