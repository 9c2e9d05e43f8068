"""Malformed batches with a correct CRC are refused, and the partition stays readable."""

import time
from collections.abc import Iterator
from typing import Final

import pytest

from ottla import Consumer
from ottla.model.error_code import ErrorCode
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.produce import PartitionProduceData
from ottla.wire.records.batch import batches
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.message_set import to_message_set
from ottla.wire.records.record import Record
from tests.clients.drivers.aio_kafka import AioKafkaDriver
from tests.clients.drivers.kafka_python import KafkaPythonDriver
from tests.clients.drivers.librdkafka import LibrdkafkaDriver
from tests.clients.malformed_batches import MALFORMED, Malformed, bombs
from tests.clients.plain_socket import PlainSocket, batch, produce_request
from tests.old_messages import message

TOPIC: Final = "judged"
NEW: Final = 12
OLD: Final = 2
VALUES: Final = [b"before the malformed batch", b"after it"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        with PlainSocket(running) as client:
            client.create(TOPIC)
            client.create("others", partitions=2)
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[PlainSocket]:
    with PlainSocket(broker) as connection:
        yield connection


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case.name)
def test_a_malformed_batch_is_refused_whole(client: PlainSocket, case: Malformed) -> None:
    end = client.produce(TOPIC, batch(VALUES[0])).base_offset + 1
    refused = client.produce(TOPIC, case.batch, version=NEW)
    assert (refused.error_code, refused.base_offset) == (case.code, -1)
    assert refused.error_message
    assert client.produce(TOPIC, batch(VALUES[1])).base_offset == end


def test_bombs_are_refused(client: PlainSocket) -> None:
    for case in bombs():
        refused = client.produce(TOPIC, case.batch, version=NEW)
        assert (case.name, refused.error_code) == (case.name, case.code)
        assert "decompress to more than" in refused.error_message


@pytest.mark.parametrize("driver", [LibrdkafkaDriver, KafkaPythonDriver, AioKafkaDriver])
def test_other_clients_read_what_was_appended_between_them(broker: Broker, driver: type) -> None:
    with PlainSocket(broker) as client:
        client.produce(TOPIC, batch(*VALUES))
        end = client.fetch(TOPIC).high_watermark
    received = driver(broker.bootstrap_servers).consume(TOPIC, end)
    assert [one.offset for one in received] == list(range(end))
    assert {one.value for one in received} == set(VALUES)


def test_our_consumer_reads_what_was_appended_between_them(broker: Broker) -> None:
    with PlainSocket(broker) as client:
        client.produce(TOPIC, batch(*VALUES))
        end = client.fetch(TOPIC).high_watermark
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign([(TOPIC, 0)])
        consumer.seek_to_beginning()
        values: list[bytes | None] = []
        deadline = time.monotonic() + 30
        while len(values) < end and time.monotonic() < deadline:
            values += [one.value for one in consumer.poll(timeout=1)]
    assert len(values) == end
    assert set(values) == set(VALUES)


def test_the_malformed_record_is_named(client: PlainSocket) -> None:
    case = next(one for one in MALFORMED if one.name == "zstd: a value length of -2")
    refused = client.produce(TOPIC, case.batch, version=NEW)
    (named,) = refused.record_errors
    assert named.batch_index == 2
    assert "a length of -2 does not fit" in named.batch_index_error_message


def test_other_partitions_of_the_request_go_on(client: PlainSocket) -> None:
    for codec in ("none", "lz4"):
        case = next(one for one in MALFORMED if one.name == f"{codec}: no records")
        request = produce_request("others", case.batch)
        sound = batch(b"x", compression=Compression.GZIP)
        rows = request.topic_data[0].partition_data
        rows.append(PartitionProduceData(index=1, records=sound))
        (answered,) = client.ask(ApiKey.PRODUCE, NEW, request).responses
        codes = [row.error_code for row in answered.partition_responses]
        assert codes == [ErrorCode.INVALID_RECORD, ErrorCode.NONE]
    assert client.fetch("others").high_watermark == 0


def test_a_max_timestamp_that_no_record_has_is_corrected(client: PlainSocket) -> None:
    client.create("timely")
    raw = bytearray(batch(b"x", compression=Compression.LZ4))
    raw[35:43] = (1 << 60).to_bytes(8, "big")
    one = next(iter(batches(raw)))
    one.stamp_max_timestamp(1 << 60)
    assert client.produce("timely", bytes(raw)).error_code == 0
    (stored,) = batches(memoryview(client.fetch("timely").records))
    assert stored.max_timestamp_ms == 1_700_000_000_000
    assert stored.has_valid_crc()


def old_sets() -> Iterator[tuple[str, bytes]]:
    """Name message sets that are malformed, in spite of the right checksums."""
    sound = to_message_set([Record(0, 5, b"k", b"v")], magic=1)
    packed = to_message_set([Record(0, 5, b"k", b"v")], magic=1, compression=Compression.GZIP)
    value = packed[34:]
    yield "a byte after the last message", sound + b"\0"
    yield "cut off", sound[:-1]
    yield "compressed, and no value", message(0, None, attributes=Compression.GZIP)
    yield "compressed, and empty", message(0, b"", attributes=Compression.GZIP)
    yield (
        "compressed, and cut in half",
        message(0, value[: len(value) // 2], attributes=Compression.GZIP),
    )
    yield "not compressed at all", message(0, sound, attributes=Compression.SNAPPY)
    yield "compressed twice", message(0, value, attributes=Compression.LZ4)
    yield "Zstandard", message(0, sound, attributes=Compression.ZSTD)
    yield "codec 7", message(0, sound, attributes=7)
    yield "a timestamp of -2", message(0, b"v", timestamp_ms=-2)


@pytest.mark.parametrize(("name", "data"), [*old_sets()], ids=[name for name, _ in old_sets()])
def test_malformed_message_sets_are_refused(client: PlainSocket, name: str, data: bytes) -> None:
    end = client.produce(TOPIC, batch(VALUES[0])).base_offset + 1
    refused = client.produce(TOPIC, data, version=OLD)
    codes = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
    assert refused.error_code in codes, name
    assert client.produce(TOPIC, batch(VALUES[1])).base_offset == end


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_batches_of_all_sizes_keep_their_order_in_a_connection(
    client: PlainSocket, codec: Compression
) -> None:
    topic = f"ordered-{codec.config_name}"
    client.create(topic, max_message_bytes=str(16 << 20))
    sizes = [10, 4 << 20, 20, 3 << 20, 30, 100_000, 40] * 2
    for number, size_bytes in enumerate(sizes):
        how = {"producer_id": 77, "producer_epoch": 0, "base_sequence": number}
        builder = BatchBuilder(compression=codec, **how)
        builder.append(1_700_000_000_000, None, number.to_bytes(2, "big") * size_bytes)
        request = produce_request(topic, bytes(builder.build()), acks=1)
        client.send(ApiKey.PRODUCE, NEW, request)
    answers = [client.receive(ApiKey.PRODUCE, NEW) for _ in sizes]
    rows = [answer.responses[0].partition_responses[0] for answer in answers]
    assert [(row.error_code, row.base_offset) for row in rows] == [
        (0, number) for number in range(len(sizes))
    ]
