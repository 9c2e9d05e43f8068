"""kafka-python and aiokafka, against a real broker over a real socket."""

import asyncio
import warnings
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition

from ottla.testing import Broker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic

VALUES = [f"letter {number}".encode() for number in range(200)]
CODECS = [None, "gzip", "lz4", "zstd"]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_what_it_wrote(servers: str, codec: str | None) -> None:
    topic = f"kafka-python-{codec}"
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([NewTopic(topic, 1, 1)])
    assert topic in admin.list_topics()
    admin.close()
    producer = KafkaProducer(bootstrap_servers=servers, compression_type=codec)
    sent = [producer.send(topic, value, key=b"key") for value in VALUES]
    producer.flush(timeout=20)
    assert [future.get(timeout=20).offset for future in sent] == list(range(len(VALUES)))
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    found = []
    while len(found) < len(VALUES):
        for records in consumer.poll(timeout_ms=20_000).values():
            found += [record.value for record in records]
    consumer.close()
    assert found == VALUES


def test_aiokafka_reads_what_it_wrote(servers: str) -> None:
    async def write_and_read() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
        await producer.start()
        for value in VALUES:
            await producer.send("aiokafka", value)
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([AioTopicPartition("aiokafka", 0)])
        found: list[bytes] = []
        async with asyncio.timeout(20):
            while len(found) < len(VALUES):
                found.append((await consumer.getone()).value)
        await consumer.stop()
        return found

    assert asyncio.run(write_and_read()) == VALUES
