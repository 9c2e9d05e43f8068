"""Clients that are older than record batches: their messages are converted on the way."""

import struct
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import ottla
from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.records.batch import batch_at
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.message_set import records_of_message_set
from ottla.wire.records.record import records_of
from tests.clients.plain_socket import PlainSocket, batch, fetch_request, produce_request
from tests.old_messages import gzipped, message

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

OLD_FETCHES = range(4)
VALUES = [b"one", b"two", None]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[PlainSocket]:
    with PlainSocket(broker) as connection:
        yield connection


def values(records: Any, *, is_cut_off_allowed: bool = False) -> list[bytes | None]:
    found = records_of_message_set(bytes(records), is_cut_off_allowed=is_cut_off_allowed)
    return [record.value for record in found]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_message_set_is_stored_as_one_batch(client: PlainSocket, version: int) -> None:
    magic = version // 2
    topic = f"set-{version}"
    client.create(topic)
    produced = b"".join(message(0, v, key=b"k", magic=magic) for v in VALUES)
    answer = client.produce(topic, produced, version=version)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    stored = batch_at(memoryview(client.fetch(topic).records))
    assert [record.value for record in records_of(stored)] == VALUES
    assert stored.max_timestamp_ms == (1000 if magic else -1)
    assert client.produce(topic, produced, version=version).base_offset == 3


@pytest.mark.parametrize("magic", [0, 1])
def test_our_consumer_reads_what_an_old_client_wrote(
    broker: Broker, client: PlainSocket, magic: int
) -> None:
    topic = f"ours-{magic}"
    client.create(topic)
    client.produce(topic, b"".join(message(0, v, magic=magic) for v in VALUES), version=2 * magic)
    servers = broker.bootstrap_servers
    with ottla.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        assert [record.value for record in consumer.poll(timeout=60)] == VALUES


@pytest.mark.parametrize("magic", [0, 1])
def test_a_compressed_set_stays_compressed(client: PlainSocket, magic: int) -> None:
    topic = f"gzipped-{magic}"
    client.create(topic)
    inner = b"".join(message(i, v, magic=magic) for i, v in enumerate(VALUES))
    answer = client.produce(topic, gzipped(2, inner, magic=magic), version=magic * 2)
    assert answer.error_code == 0
    stored = batch_at(memoryview(client.fetch(topic).records))
    assert stored.compression is Compression.GZIP
    assert [record.value for record in records_of(stored)] == VALUES


def test_a_damaged_message_is_refused_and_its_neighbour_is_not(client: PlainSocket) -> None:
    client.create("damaged", 2)
    broken = bytearray(message(0))
    broken[-1] ^= 1
    request = produce_request("damaged", bytes(broken))
    request.topic_data[0].partition_data += (
        produce_request("damaged", message(0), index=1).topic_data[0].partition_data
    )
    (answered,) = client.ask(ApiKey.PRODUCE, 2, request).responses
    codes = [partition.error_code for partition in answered.partition_responses]
    assert codes == [ErrorCode.CORRUPT_MESSAGE, 0]


def test_requests_of_one_connection_are_appended_in_their_order(client: PlainSocket) -> None:
    client.create("in-order")
    large = b"".join(message(0, b"large") for _ in range(2000))
    for records in (large, message(0, b"small")):
        client.send(ApiKey.PRODUCE, 2, produce_request("in-order", records))
    for base_offset in (0, 2000):
        (answered,) = client.receive(ApiKey.PRODUCE, 2).responses
        assert answered.partition_responses[0].base_offset == base_offset


@pytest.mark.parametrize("version", OLD_FETCHES)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_batches_are_fetched_as_messages(client: PlainSocket, version: int, codec: str) -> None:
    topic = f"fetched-{version}-{codec}"
    client.create(topic)
    how = {"compression": Compression[codec.upper()]}
    client.produce(topic, batch(*VALUES, key=b"k", **how))
    client.produce(topic, batch(b"three", **how))
    answer = client.fetch(topic, version=version)
    assert answer.high_watermark == 4
    found = records_of_message_set(bytes(answer.records))
    assert [record.offset for record in found] == [0, 1, 2, 3]
    assert [record.value for record in found] == [*VALUES, b"three"]
    assert found[0].key == b"k"
    assert found[0].timestamp_ms == (1_700_000_000_000 if version > 1 else -1)


def test_a_fetch_from_inside_a_batch_begins_there_if_it_can(client: PlainSocket) -> None:
    client.create("inside")
    client.produce("inside", batch(b"0", b"1", b"2"))
    assert values(client.fetch("inside", 1, version=3).records) == [b"1", b"2"]
    client.produce("inside", batch(b"3", b"4", compression=Compression.GZIP))
    assert values(client.fetch("inside", 4, version=3).records) == [b"3", b"4"]


def test_zstandard_is_nothing_for_old_clients(client: PlainSocket) -> None:
    client.create("zstandard")
    zstd = batch(b"new", compression=Compression.ZSTD)
    refused = client.produce("zstandard", zstd, version=6)
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    client.produce("zstandard", batch(b"old"))
    client.produce("zstandard", zstd)
    assert values(client.fetch("zstandard", version=3).records) == [b"old"]
    answer = client.fetch("zstandard", 1, version=3)
    assert (answer.error_code, len(answer.records)) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 0)


@pytest.mark.parametrize("version", OLD_FETCHES)
def test_a_limit_that_is_too_small_shows_that_there_is_more(
    client: PlainSocket, version: int
) -> None:
    topic = f"small-{version}"
    client.create(topic)
    client.produce(topic, batch(b"x" * 100, b"y" * 100))
    found = client.fetch(topic, version=version, partition_max_bytes=150).records
    if version < 3:
        assert len(found) == 150
        assert values(found, is_cut_off_allowed=True) == [b"x" * 100]
    else:
        assert values(found) == [b"x" * 100, b"y" * 100]


def test_a_new_request_has_batches_only_and_only_one(client: PlainSocket) -> None:
    client.create("formats")
    assert client.produce("formats", message(0), version=3).error_code == ErrorCode.INVALID_RECORD
    two = batch(b"a") + batch(b"b")
    assert client.produce("formats", two, version=3).error_code == ErrorCode.INVALID_RECORD
    assert client.produce("formats", batch(b"a"), version=2).base_offset == 0


def test_the_first_clients_find_offsets_by_segments(client: PlainSocket) -> None:
    client.create("offsets", segment_bytes="1048576")

    def offsets(timestamp: int, count: int = 10) -> list[int]:
        wanted = ListOffsetsPartition(timestamp=timestamp, max_num_offsets=count)
        topic = ListOffsetsTopic(name="offsets", partitions=[wanted])
        (answered,) = client.ask(ApiKey.LIST_OFFSETS, 0, ListOffsetsRequest(topics=[topic])).topics
        assert answered.partitions[0].error_code == 0
        return list(answered.partitions[0].old_style_offsets)

    assert offsets(-1) == offsets(-2) == [0]
    for _ in range(25):
        client.produce("offsets", batch(bytes(50_000)))
    assert offsets(-1) == [25, 20, 0]
    assert offsets(-1, 1) == [25]
    assert offsets(-2) == [0]
    assert offsets(1_700_000_000_000) == [20, 0]
    assert offsets(0) == []
    assert offsets(-1, -5) == []


def test_kafka_python_speaks_as_old_as_it_can(broker: Broker) -> None:
    old = {"bootstrap_servers": broker.bootstrap_servers, "api_version": (0, 10, 0)}
    producer = kafka.KafkaProducer(**old, compression_type="gzip")
    sent = [producer.send("python", value) for value in (b"a", b"b")]
    assert [future.get(timeout=20).offset for future in sent] == [0, 1]
    producer.close()
    consumer = kafka.KafkaConsumer(**old, group_id=None, auto_offset_reset="earliest")
    consumer.assign([kafka.TopicPartition("python", 0)])
    found: list[bytes] = []
    while len(found) < 2:
        for records in consumer.poll(timeout_ms=20_000).values():
            found += [record.value for record in records]
    consumer.close()
    assert found == [b"a", b"b"]


def test_librdkafka_speaks_as_old_as_it_can(broker: Broker) -> None:
    old = {
        "bootstrap.servers": broker.bootstrap_servers,
        "api.version.request": False,
        "broker.version.fallback": "0.9.0",
    }
    producer = Producer({**old, "compression.type": "snappy"})
    for value in (b"a", b"b"):
        producer.produce("rdkafka", value)
    assert producer.flush(20) == 0
    consumer = Consumer({**old, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition("rdkafka", 0, 0)])
    assert [found.value() for found in consumer.consume(2, 20)] == [b"a", b"b"]
    consumer.close()


def test_a_large_fetch_of_an_old_client_delays_no_client(
    broker: Broker, client: PlainSocket
) -> None:
    """A conversion of hundreds of thousands of records does not block other clients' requests."""
    client.create("huge")
    many = batch(*[b"tiny"] * 60_000)
    for _ in range(4):
        client.produce("huge", many)
    with PlainSocket(broker) as old:
        request = fetch_request("huge", partition_max_bytes=1 << 30, max_bytes=1 << 30)
        old.send(ApiKey.FETCH, 3, request)
        assert client.fetch("huge", 240_000).high_watermark == 240_000
        (answered,) = old.receive(ApiKey.FETCH, 3).responses
    records = memoryview(answered.partitions[0].records)
    assert struct.unpack_from(">q", records)[0] == 0
    assert 4 << 20 <= len(records) < 8 << 20
