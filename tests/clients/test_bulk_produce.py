"""Bulk calls: librdkafka reads back the same records in order, and memory is bounded."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as Librdkafka
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ottla.clients.producer.async_producer import AsyncProducer
from ottla.clients.producer.bulk.bulk_delivery import BulkDeliveryError
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.state.errors import BufferFullError, RecordTooLargeError
from ottla.clients.records.partitioner import partition_for_key
from ottla.testing import Broker

SECONDS_MAX = 240
PARTITIONS = 3
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def producer(broker: Broker) -> Iterator[Producer]:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as running:
        yield running


def make_topic(broker: Broker, partitions: int = PARTITIONS, **config: str) -> str:
    name = f"topic-{next(numbers)}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(SECONDS_MAX)
    return name


def read(broker: Broker, topic: str, partitions: int = PARTITIONS) -> dict[int, list[Any]]:
    """Read all records: key, value, headers, timestamp."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: dict[int, list[Any]] = {number: [] for number in range(partitions)}
    with closing(consumer):
        consumer.assign([TopicPartition(topic, number, 0) for number in found])
        open_ones = set(found)
        while open_ones:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, "the broker says nothing"
            if message.error() is not None:
                open_ones.discard(message.partition())
                continue
            cells = message.key(), message.value(), message.headers() or [], message.timestamp()[1]
            found[message.partition()].append(cells)
    return found


RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "value": st.none() | st.binary(max_size=30),
            "key": st.none() | st.binary(min_size=1, max_size=12),
            "headers": st.lists(
                st.tuples(
                    st.text("abc", min_size=1, max_size=3), st.none() | st.binary(max_size=4)
                ),
                max_size=3,
            ),
            "timestamp": st.integers(0, 2**40),
            "partition": st.none() | st.integers(0, PARTITIONS - 1),
        }
    ),
    max_size=200,
)


@given(RECORDS, st.booleans())
@settings(
    max_examples=10,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # each example makes a topic
    suppress_health_check=list(HealthCheck),
)
def test_librdkafka_reads_back_what_was_given(
    broker: Broker, producer: Producer, records: list[dict[str, Any]], is_arrow: bool
) -> None:
    topic = make_topic(broker)
    for row, record in enumerate(records):
        record["headers"] = [*record["headers"], ("row", b"%d" % row)]
    if is_arrow:
        done = producer.send_arrow(topic, as_table(records)).result(SECONDS_MAX)
    else:
        done = producer.send_many(topic, records).result(SECONDS_MAX)
    assert done.record_count == len(records)
    missing = set(range(len(records)))
    for number, there in read(broker, topic).items():
        rows = [int(headers[-1][1]) for _, _, headers, _ in there]
        fixed = [row for row in rows if partition_of(records[row], -1) >= 0]
        assert fixed == sorted(fixed)  # records without a partition follow, in their own order
        assert done.offsets.get(number, (0, -1, 0)) == (0, len(rows) - 1, len(rows))
        for row, cells in zip(rows, there, strict=True):
            record = records[row]
            assert cells == tuple(record[name] for name in ("key", "value", "headers", "timestamp"))
            assert partition_of(record, number) == number
        missing -= set(rows)
    assert not missing


def partition_of(record: dict[str, Any], default: int) -> int:
    if record["partition"] is not None:
        return int(record["partition"])
    key = record["key"]
    return default if key is None else partition_for_key(key, PARTITIONS)


def as_table(records: list[dict[str, Any]]) -> pa.Table:
    headers = [
        [{"key": key, "value": value} for key, value in record["headers"]] for record in records
    ]
    return pa.table(
        {
            "key": pa.array([record["key"] for record in records], pa.binary()),
            "value": pa.array([record["value"] for record in records], pa.binary()),
            "headers": pa.array(headers, HEADERS),
            "timestamp": pa.array([record["timestamp"] for record in records], pa.timestamp("ms")),
            "partition": pa.array([record["partition"] for record in records], pa.int32()),
        }
    )


def test_keys_go_where_librdkafka_sends_them_and_keep_their_order(
    broker: Broker, producer: Producer
) -> None:
    pairs = [(b"key-%d" % (number % 37), b"%d" % number) for number in range(5_000)]
    theirs, ours, arrows = make_topic(broker), make_topic(broker), make_topic(broker)
    other = Librdkafka(
        {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    for key, value in pairs:
        other.produce(theirs, value, key)
    assert other.flush(SECONDS_MAX) == 0
    producer.send_many(ours, pairs).result(SECONDS_MAX)
    keys, values = zip(*pairs, strict=True)
    table = pa.table({"key": pa.array(keys), "value": pa.array(values)})
    producer.send_arrow(arrows, table).result(SECONDS_MAX)

    def pairs_of(topic: str) -> dict[int, list[Any]]:
        return {number: [row[:2] for row in rows] for number, rows in read(broker, topic).items()}

    assert pairs_of(ours) == pairs_of(arrows) == pairs_of(theirs)


def test_rows_without_keys_are_shared_out_batch_by_batch(broker: Broker) -> None:
    topic = make_topic(broker)
    with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=10_000) as producer:
        done = producer.send_many(topic, (bytes(100) for _ in range(3_000))).result(SECONDS_MAX)
    assert sorted(done.offsets) == [0, 1, 2]
    assert sum(rows.record_count for rows in done.offsets.values()) == 3_000


def test_nothing_at_all_is_delivered_at_once(broker: Broker, producer: Producer) -> None:
    topic = make_topic(broker)
    done = producer.send_many(topic, [])
    assert done.done()
    assert done.result() == (topic, 0, {})
    empty = pa.table({"value": pa.array([], pa.binary())})
    assert producer.send_arrow(topic, empty).result() == (topic, 0, {})


class Stream:
    """A table of another library; it has only Arrow's C stream interface."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "form",
    [
        lambda table: table,
        lambda table: table.to_batches()[0],
        lambda table: table.to_reader(max_chunksize=7),
        Stream,
    ],
    ids=["table", "batch", "reader", "foreign"],
)
def test_every_arrow_object_is_sent(broker: Broker, producer: Producer, form: Any) -> None:
    topic = make_topic(broker, 1)
    table = pa.table({"value": pa.array([f"row {number}" for number in range(100)])})
    producer.send_arrow(topic, form(table)).result(SECONDS_MAX)
    assert [row[1] for row in read(broker, topic, 1)[0]] == table["value"].cast(
        "binary"
    ).to_pylist()


def test_more_than_the_memory_goes_through_it(broker: Broker) -> None:
    topic = make_topic(broker, 1)
    records = [bytes(10_000)] * 1_000
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, buffer_memory=300_000, batch_size=100_000
    ) as producer:
        least = producer.metrics()["buffer-available-bytes"]

        def watched() -> Iterator[bytes]:
            nonlocal least
            for record in records:
                least = min(least, producer.metrics()["buffer-available-bytes"])
                yield record

        done = producer.send_many(topic, watched()).result(SECONDS_MAX)
        assert least >= 0
        table = pa.table({"value": pa.array(records)})
        again = producer.send_arrow(topic, table).result(SECONDS_MAX)
    assert done.offsets == {0: (0, 999, 1_000)}
    assert again.offsets == {0: (1_000, 1_999, 1_000)}


def test_a_broker_that_is_away_makes_it_wait_and_then_raise(broker: Broker) -> None:
    with Broker() as own:
        topic = make_topic(own, 1)
        with Producer(
            bootstrap_servers=own.bootstrap_servers,
            buffer_memory=200_000,
            batch_size=100_000,
            max_block_ms=3_000,
        ) as producer:
            producer.send_many(topic, [b"first"]).result(SECONDS_MAX)
            own.stop()
            with pytest.raises((BufferFullError, BulkDeliveryError)):
                fill(producer, topic)
            own.start()
            producer.flush(SECONDS_MAX)


def fill(producer: Producer, topic: str) -> None:
    bulk = producer.send_many
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        bulk(topic, [bytes(50_000)] * 20)


def test_a_batch_that_is_refused_is_named_with_its_rows(broker: Broker, producer: Producer) -> None:
    topic = make_topic(broker, 2, **{"max.message.bytes": "5000"})
    small = [{"value": b"x", "partition": 0}] * 10
    large = {"value": bytes(6_000), "partition": 1}
    with pytest.raises(BulkDeliveryError, match=rf"partition {topic}-1") as failed:
        producer.send_many(topic, [*small, large]).result(SECONDS_MAX)
    assert (failed.value.partition, failed.value.rows) == (1, range(10, 11))
    assert len(read(broker, topic, 2)[0]) == 10


def test_a_row_that_no_request_has_room_for_is_refused(broker: Broker, producer: Producer) -> None:
    topic = make_topic(broker, 1)
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
        producer.send_many(topic, [b"fine", bytes(2 << 20)])
    with pytest.raises(ValueError, match=r"row 1: there is no partition 9"):
        producer.send_many(topic, [b"fine", {"value": b"", "partition": 9}])


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed(broker: Broker, codec: str) -> None:
    topic = make_topic(broker, 1)
    values = [b"again and again %d" % number for number in range(1_000)]
    with Producer(bootstrap_servers=broker.bootstrap_servers, compression_type=codec) as producer:
        producer.send_many(topic, values).result(SECONDS_MAX)
        producer.send_arrow(topic, pa.table({"value": pa.array(values)})).result(SECONDS_MAX)
    assert [row[1] for row in read(broker, topic, 1)[0]] == values * 2


def test_serializers_are_asked_by_lists_and_not_by_tables(broker: Broker) -> None:
    topic = make_topic(broker, 1)
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, value_serializer="json", key_serializer="string"
    ) as producer:
        producer.send_many(topic, [("k", [1, 2]), {"value": {"a": None}}]).result(SECONDS_MAX)
        producer.send_arrow(topic, pa.table({"value": ["plain"]})).result(SECONDS_MAX)
    rows = [row[:2] for row in read(broker, topic, 1)[0]]
    assert rows == [(b"k", b"[1,2]"), (None, b'{"a":null}'), (None, b"plain")]


def test_single_records_and_bulk_keep_their_order(broker: Broker, producer: Producer) -> None:
    topic = make_topic(broker, 1)
    for number in range(20):
        producer.send(topic, b"single %d" % number)
        producer.send_many(topic, [b"bulk %d" % number])
    producer.flush(SECONDS_MAX)
    wanted = [word % number for number in range(20) for word in (b"single %d", b"bulk %d")]
    assert [row[1] for row in read(broker, topic, 1)[0]] == wanted


def test_every_way_of_waiting_reports_the_delivery(broker: Broker, producer: Producer) -> None:
    topic = make_topic(broker, 1)
    told = threading.Event()
    delivery = producer.send_many(topic, [b"1", b"2"])
    delivery.add_done_callback(lambda _: told.set())
    assert delivery.exception(SECONDS_MAX) is None
    assert told.wait(SECONDS_MAX)
    assert delivery.result().record_count == 2


def test_asyncio_has_the_same_calls(broker: Broker) -> None:
    topic = make_topic(broker, 1)

    async def run() -> None:
        async with AsyncProducer(
            bootstrap_servers=broker.bootstrap_servers, buffer_memory=200_000, batch_size=50_000
        ) as producer:
            done = await (await producer.send_many(topic, [bytes(1_000)] * 2_000))
            assert done.offsets == {0: (0, 1_999, 2_000)}
            table = pa.table({"value": pa.array([b"last"])})
            done = await (await producer.send_arrow(topic, table))
            assert done.offsets == {0: (2_000, 2_000, 1)}
            with pytest.raises(TypeError, match="row 0"):
                await producer.send_many(topic, [object()])

    asyncio.run(run())
