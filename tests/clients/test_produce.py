"""Accepted and refused batches of Produce, tested over a socket."""

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ottla import Admin, ConfigResource
from ottla.broker.data import batch_validation
from ottla.model.error_code import ErrorCode
from ottla.storage.log import admission
from ottla.storage.log.admission import Validated
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.produce import PartitionProduceResponse
from ottla.wire.records.batch import batches
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.compression.codecs import Compression
from tests.clients.plain_socket import SECONDS_MAX, PlainSocket, batch, produce_request

NEW = 12
BY_ID = 13
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"offsets.topic.num.partitions": "1"}) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[PlainSocket]:
    with PlainSocket(broker) as connection:
        yield connection


def rejected(answer: PartitionProduceResponse) -> list[int]:
    return [record.batch_index for record in answer.record_errors]


def test_records_without_a_key_are_named_one_by_one(client: PlainSocket) -> None:
    client.create("compacted", cleanup_policy="compact")
    builder = BatchBuilder()
    for key in (b"key", None, b"key", None):
        builder.append(1_700_000_000_000, key, b"value")
    answer = client.produce("compacted", bytes(builder.build()), version=NEW)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert rejected(answer) == [1, 3]
    assert "no key" in answer.record_errors[0].batch_index_error_message
    assert "compacted" in answer.error_message
    assert answer.base_offset == -1
    assert client.produce("compacted", batch(b"v", key=b"k")).base_offset == 0


def test_a_record_that_is_too_old_is_named(client: PlainSocket) -> None:
    client.create("recent", message_timestamp_before_max_ms=str(DAY_MS))
    answer = client.produce("recent", batch(b"a", b"b"), version=NEW)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert rejected(answer) == [0, 1]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_a_record_from_the_future_is_refused(client: PlainSocket, codec: Compression) -> None:
    topic = f"punctual-{codec}"
    client.create(topic, message_timestamp_after_max_ms="1000")
    builder = BatchBuilder(compression=codec)
    for timestamp_ms in (1_700_000_000_000, 1 << 45):
        builder.append(timestamp_ms, None, b"value")
    answer = client.produce(topic, bytes(builder.build()), version=NEW)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert rejected(answer) == [1]


def test_a_batch_larger_than_the_topic_allows_is_refused(client: PlainSocket) -> None:
    client.create("narrow", max_message_bytes="100")
    assert client.produce("narrow", batch(bytes(200))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.produce("narrow", batch(b"x")).error_code == 0


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_mean_nothing_are_refused(client: PlainSocket, acks: int) -> None:
    topic = f"acks-{acks}"
    client.create(topic)
    answer = client.produce(topic, batch(b"x"), acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert client.fetch(topic).high_watermark == 0


def test_each_partition_has_its_own_outcome(client: PlainSocket) -> None:
    client.create("mixed")
    request = produce_request("mixed", batch(b"x"))
    for wrong in (
        produce_request("mixed", batch(b"x"), index=5),
        produce_request("no such topic", batch(b"x")),
        produce_request("mixed", None),
        produce_request("mixed", b""),
        produce_request("mixed", batch(b"x")[:-1]),
    ):
        request.topic_data += wrong.topic_data
    responses = client.ask(ApiKey.PRODUCE, NEW, request).responses
    assert [topic.partition_responses[0].error_code for topic in responses] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_RECORD,
    ]


def test_an_error_without_a_response_closes_the_connection(
    broker: Broker, client: PlainSocket
) -> None:
    client.create("silent")
    for topic, is_closed in (("silent", False), ("no such topic", True)):
        with PlainSocket(broker) as other:
            other.send(ApiKey.PRODUCE, NEW, produce_request(topic, batch(b"x"), acks=0))
            if is_closed:
                assert other.is_closed()
            else:
                assert other.fetch("silent").high_watermark == 1


def test_topics_are_named_by_id(client: PlainSocket) -> None:
    topic_id = client.create("by-id")
    request = produce_request("", batch(b"x"), topic_id=topic_id)
    (answered,) = client.ask(ApiKey.PRODUCE, BY_ID, request).responses
    assert answered.topic_id == topic_id
    assert answered.partition_responses[0].base_offset == 0
    request = produce_request("", batch(b"x"), topic_id=b"nobody's id, 16b")
    (answered,) = client.ask(ApiKey.PRODUCE, BY_ID, request).responses
    assert answered.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_internal_topics_are_written_by_the_broker_alone(client: PlainSocket) -> None:
    client.ask(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key="group"))
    answer = client.produce("__consumer_offsets", batch(b"x", key=b"k"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_batch_of_a_transaction_without_a_transactional_id_is_refused(
    client: PlainSocket,
) -> None:
    client.create("transactions")
    records = batch(b"x", producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    answer = client.produce("transactions", records, version=NEW)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "transaction" in answer.error_message


def test_a_repeated_batch_is_answered_with_the_place_of_the_first(client: PlainSocket) -> None:
    client.create("idempotent")
    first = batch(b"x", producer_id=9, producer_epoch=0, base_sequence=0)
    assert client.produce("idempotent", first).base_offset == 0
    client.produce("idempotent", batch(b"y", producer_id=9, producer_epoch=0, base_sequence=1))
    assert client.produce("idempotent", first).base_offset == 0
    assert client.fetch("idempotent").high_watermark == 2
    gap = batch(b"z", producer_id=9, producer_epoch=0, base_sequence=7)
    assert client.produce("idempotent", gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_time_of_the_log_is_told_where_it_is_the_logs(client: PlainSocket) -> None:
    client.create("log-time", message_timestamp_type="LogAppendTime")
    client.create("their-time")
    assert client.produce("log-time", batch(b"x")).log_append_time_ms > 1_700_000_000_000
    assert client.produce("their-time", batch(b"x")).log_append_time_ms == -1


def test_what_a_topic_wants_compressed_otherwise_is_compressed_on_a_thread(
    client: PlainSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create("dense", compression_type="zstd", compression_zstd_level="19")
    threads: list[str] = []
    compress = admission.compress

    def noted_compress(*args: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return compress(*args)

    monkeypatch.setattr(admission, "compress", noted_compress)
    for version in (3, 9):
        assert client.produce("dense", batch(b"x" * 1000), version=version).error_code == 0
    as_wanted = batch(b"x" * 1000, compression=Compression.ZSTD)
    assert client.produce("dense", as_wanted).base_offset == 2
    assert len(threads) == 2
    assert all(name.startswith("ottla_") for name in threads)
    found = list(batches(memoryview(client.fetch("dense").records)))
    assert [one.compression for one in found] == [Compression.ZSTD] * 3
    assert all(one.has_valid_crc() for one in found)


def test_batches_of_one_connection_keep_their_order_with_any_codecs(
    client: PlainSocket,
) -> None:
    client.create("codecs", compression_type="gzip")
    codecs = [Compression.NONE, Compression.GZIP, Compression.ZSTD, Compression.GZIP] * 3
    for codec in codecs:
        request = produce_request("codecs", batch(bytes(100_000), compression=codec), acks=1)
        client.send(ApiKey.PRODUCE, NEW, request)
    answers = [client.receive(ApiKey.PRODUCE, NEW) for _ in codecs]
    rows = [answer.responses[0].partition_responses[0] for answer in answers]
    assert [(row.error_code, row.base_offset) for row in rows] == [
        (0, number) for number in range(len(codecs))
    ]


class Slow:
    """Blocks validation on threads until the test releases it; never blocks the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        self._validate = batch_validation.validate
        monkeypatch.setattr(batch_validation, "validate", self)

    def __call__(self, *args: Any, **how: Any) -> Validated:
        if threading.current_thread().name.startswith("ottla_"):
            self.has_begun.set()
            assert self.may_end.wait(SECONDS_MAX)
        return self._validate(*args, **how)


LARGE = {
    "uncompressed": (Compression.NONE, random.Random(1).randbytes(3 << 20)),
    "compressed": (Compression.LZ4, random.Random(2).randbytes(100_000)),
    "small, but decompresses to much": (Compression.ZSTD, bytes(2 << 20)),
}


@pytest.mark.parametrize(("codec", "value"), LARGE.values(), ids=LARGE)
def test_a_large_batch_is_validated_on_a_thread_and_not_overtaken(
    broker: Broker,
    client: PlainSocket,
    codec: Compression,
    value: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = f"large-{codec.config_name}"
    client.create(topic, partitions=2, max_message_bytes=str(8 << 20))
    slow = Slow(monkeypatch)
    large = batch(value, compression=codec)
    client.send(ApiKey.PRODUCE, NEW, produce_request(topic, large, acks=1))
    assert slow.has_begun.wait(SECONDS_MAX)
    for small in (batch(b"x"), batch(b"x", compression=Compression.GZIP)):
        client.send(ApiKey.PRODUCE, NEW, produce_request(topic, small, acks=1))
    with PlainSocket(broker) as other:
        assert other.produce(topic, batch(b"x"), index=1).base_offset == 0
        assert other.fetch(topic).high_watermark == 0
    slow.may_end.set()
    answers = [client.receive(ApiKey.PRODUCE, NEW) for _ in range(3)]
    rows = [answer.responses[0].partition_responses[0] for answer in answers]
    assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_small_batch_is_validated_without_a_thread(
    client: PlainSocket, codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"small-{codec.config_name}"
    client.create(topic)
    slow = Slow(monkeypatch)
    assert client.produce(topic, batch(b"x" * 1000, compression=codec)).base_offset == 0
    assert not slow.has_begun.is_set()


def test_a_batch_does_not_overtake_when_its_topic_wants_no_codec_any_more(
    broker: Broker, client: PlainSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create("undecided", compression_type="gzip")
    slow = Slow(monkeypatch)
    client.send(ApiKey.PRODUCE, NEW, produce_request("undecided", batch(b"first"), acks=1))
    assert slow.has_begun.wait(SECONDS_MAX)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.configs.alter({ConfigResource.topic("undecided"): {"compression.type": "producer"}})
    client.send(ApiKey.PRODUCE, NEW, produce_request("undecided", batch(b"second"), acks=1))
    with PlainSocket(broker) as other:
        other.create("meanwhile")
        assert other.produce("meanwhile", batch(b"x")).base_offset == 0
    slow.may_end.set()
    answers = [client.receive(ApiKey.PRODUCE, NEW) for _ in range(2)]
    rows = [answer.responses[0].partition_responses[0] for answer in answers]
    assert [row.base_offset for row in rows] == [0, 1]


def test_what_is_compressed_anew_holds_up_its_own_partition_only(
    broker: Broker, client: PlainSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create("gradual", partitions=2, compression_type="gzip")
    slow = Slow(monkeypatch)
    client.send(ApiKey.PRODUCE, NEW, produce_request("gradual", batch(b"x"), acks=1))
    assert slow.has_begun.wait(SECONDS_MAX)
    with PlainSocket(broker) as other:
        other.create("quick", compression_type="gzip")
        as_wanted = batch(b"x" * 1000, compression=Compression.GZIP)
        assert other.produce("quick", as_wanted).base_offset == 0
    slow.may_end.set()
    assert client.receive(ApiKey.PRODUCE, NEW).responses[0].partition_responses[0].error_code == 0


def test_what_cannot_be_compressed_anew_is_refused(client: PlainSocket) -> None:
    client.create("picky", compression_type="gzip", cleanup_policy="compact")
    answer = client.produce("picky", batch(b"a", b"b"), version=NEW)
    assert (answer.error_code, rejected(answer)) == (ErrorCode.INVALID_RECORD, [0, 1])
    damaged = bytearray(batch(b"a", key=b"k"))
    damaged[-1] ^= 1
    assert client.produce("picky", bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    old = batch(b"a", key=b"k", compression=Compression.ZSTD)
    code = client.produce("picky", old, version=6).error_code
    assert code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert client.produce("picky", old).error_code == 0
