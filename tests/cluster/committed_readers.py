"""The committed records of a topic as consumers of three client libraries read them."""

from collections.abc import Callable
from contextlib import closing
from typing import Any, Final, TypeAlias

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, TopicPartition

from tests.clients.drivers.aio_kafka import _run
from tests.clients.drivers.kafka_python import KafkaConsumer
from tests.clients.drivers.kafka_python import TopicPartition as PythonPartition
from tests.cluster.copier import is_end

Found: TypeAlias = list[list[bytes]]
"""The values of each partition, in their order."""
Reader: TypeAlias = Callable[[str, str, int], Found]
_POLL_MS: Final = 500


def by_librdkafka(servers: str, topic: str, partitions: int) -> Found:
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "nobody",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "log_level": 0,
    }
    found: Found = [[] for _ in range(partitions)]
    ended: set[int] = set()
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        while len(ended) < partitions:
            polled = consumer.consume(10_000, timeout=_POLL_MS / 1000)
            ended.update(one.partition() for one in polled if is_end(one))
            for one in [record for record in polled if record.error() is None]:
                found[one.partition()].append(one.value() or b"")
    return found


def by_kafka_python(servers: str, topic: str, partitions: int) -> Found:
    found: Found = [[] for _ in range(partitions)]
    places = [PythonPartition(topic, index) for index in range(partitions)]
    with closing(
        KafkaConsumer(
            bootstrap_servers=servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
    ) as consumer:
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < ends[place] for place in places):
            for place, records in consumer.poll(timeout_ms=_POLL_MS).items():
                found[place.partition].extend(record.value for record in records)
    return found


def by_aiokafka(servers: str, topic: str, partitions: int) -> Found:
    return _run(_read(servers, topic, partitions))


async def _read(servers: str, topic: str, partitions: int) -> Found:
    found: Found = [[] for _ in range(partitions)]
    places = [AioPartition(topic, index) for index in range(partitions)]
    async with AIOKafkaConsumer(
        bootstrap_servers=servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(place) < ends[place] for place in places]):
            for place, records in (await consumer.getmany(timeout_ms=_POLL_MS)).items():
                found[place.partition].extend(record.value for record in records)
    return found


READERS: Final[tuple[Reader, ...]] = (by_librdkafka, by_kafka_python, by_aiokafka)
