"""Three clients as writers and readers of record bytes: librdkafka, kafka-python and aiokafka.

Each encodes records as its producer does, and decodes the records a broker would serve.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol
from unittest import mock

import cramjam
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    Message,
    Producer,
    TopicPartition,
)

from ottla.wire.records.compression.codecs import Compression
from ottla.wire.records.record import Record, RecordHeader
from tests.conformance.wire_capture import TOPIC, WAIT_SECONDS_MAX, LoopbackBroker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own, when it is imported
    from kafka import codec as kafka_python_codec
    from kafka.record import memory_records as kafka_python_memory

BATCH_BYTES_MAX = 1 << 20


class Served(NamedTuple):
    """Record bytes, and the fetch metadata that a consumer needs with them."""

    raw: bytes
    magic: int
    record_count: int
    end_offset: int


class RecordClient(Protocol):
    """The interface between the tests and a client."""

    def write(self, records: Sequence[Record], magic: int, codec: Compression) -> list[bytes]:
        """Return record sets that hold these records, numbered from 0 in each set."""

    def read(self, served: Served) -> list[Record]:
        """Return all records, their CRCs checked."""


class Librdkafka:
    """A real producer and a real consumer over loopback: librdkafka has no other way in."""

    def write(self, records: Sequence[Record], magic: int, codec: Compression) -> list[bytes]:
        sets: list[bytes] = []
        with LoopbackBroker(magic=magic) as broker:
            producer = Producer(
                {
                    "bootstrap.servers": broker.address,
                    "compression.codec": codec.config_name,
                    "linger.ms": 10_000,  # for one batch: it is flushed at once
                    "message.timeout.ms": int(WAIT_SECONDS_MAX * 1000),
                }
            )
            for record in records:
                producer.produce(
                    TOPIC,
                    value=record.value,
                    key=record.key,
                    partition=0,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                )
            assert producer.flush(WAIT_SECONDS_MAX) == 0
            del producer  # hangs up, before the broker does
            while not broker.produced.empty():
                sets.append(broker.produced.get())
        return sets

    def read(self, served: Served) -> list[Record]:
        with LoopbackBroker(
            magic=served.magic, log=served.raw, end_offset=served.end_offset
        ) as broker:
            consumer = Consumer(
                {
                    "bootstrap.servers": broker.address,
                    "group.id": "unused",
                    "enable.auto.commit": False,
                    "check.crcs": True,
                }
            )
            consumer.assign([TopicPartition(TOPIC, 0, 0)])
            try:
                messages = consumer.consume(served.record_count, timeout=WAIT_SECONDS_MAX)
            finally:
                consumer.close()
        return [self._record(message) for message in messages]

    @staticmethod
    def _record(message: Message) -> Record:
        assert message.error() is None, message.error()
        headers = tuple(RecordHeader(*header) for header in message.headers() or ())
        kind, timestamp_ms = message.timestamp()
        if kind == TIMESTAMP_NOT_AVAILABLE:
            timestamp_ms = -1
        offset = message.offset()
        assert offset is not None
        return Record(offset, timestamp_ms, message.key(), message.value(), headers)


class KafkaPython:
    """kafka-python's record classes. Its Snappy library may be missing, so it uses a substitute;
    the framing around the compressed bytes is its own.
    """

    def write(self, records: Sequence[Record], magic: int, codec: Compression) -> list[bytes]:
        builder = kafka_python_memory.MemoryRecordsBuilder(magic, codec, BATCH_BYTES_MAX)
        with self._snappy():
            for record in records:
                headers = [tuple(header) for header in record.headers]
                builder.append(record.timestamp_ms, record.key, record.value, headers)
            builder.close()
        return [bytes(builder.buffer())]

    def read(self, served: Served) -> list[Record]:
        with self._snappy():
            return list(_records(kafka_python_memory.MemoryRecords(served.raw)))

    @staticmethod
    @contextmanager
    def _snappy() -> Iterator[None]:
        library = SimpleNamespace(
            compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
            decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)),
        )
        with mock.patch.object(kafka_python_codec, "snappy", library):
            yield


class Aiokafka:
    """aiokafka's record classes, the compiled ones."""

    def write(self, records: Sequence[Record], magic: int, codec: Compression) -> list[bytes]:
        if magic < 2:
            builder = LegacyRecordBatchBuilder(magic, codec, BATCH_BYTES_MAX)
        else:
            builder = DefaultRecordBatchBuilder(magic, codec, 0, -1, -1, -1, BATCH_BYTES_MAX)
        for offset, record in enumerate(records):
            headers = {"headers": [tuple(header) for header in record.headers]} if magic > 1 else {}
            builder.append(offset, record.timestamp_ms, record.key, record.value, **headers)
        return [bytes(builder.build())]

    def read(self, served: Served) -> list[Record]:
        return list(_records(MemoryRecords(served.raw)))


def _records(memory: Any) -> Iterator[Record]:
    """Walk the record reader; kafka-python and aiokafka share its interface."""
    while memory.has_next():
        batch = memory.next_batch()
        assert batch.validate_crc()
        for record in batch:
            headers = tuple(RecordHeader(*header) for header in record.headers)
            timestamp_ms = -1 if record.timestamp is None else record.timestamp
            yield Record(record.offset, timestamp_ms, record.key, record.value, headers)
