"""Consumers beside each other: a million records of 100 bytes, read from the start by each.

The broker is Ottla, in a process of its own. All consumers read the same topic alternately, from
one partition and without a group, and hand every record to Python as an object of its own.
librdkafka returns its records in lists of 500, as ours does. With its defaults, it fetches nothing
for a second whenever its queue is full; "tuned" it waits for ten milliseconds. The slow consumers
read a part.

Ours can read into Arrow. With confluent-kafka one makes an Arrow table of each five hundred
messages; larger tables took it longer. The time for its messages alone stands beside it.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, Final

import kafka
import pyarrow as pa
from aiokafka import AIOKafkaConsumer
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import TopicPartition as LibrdkafkaPartition

from benchmarks.broker_process import running_broker
from benchmarks.comparison import MILLION_RECORDS, Case, Peer
from benchmarks.librdkafka_load import BACKOFF_MS, Load, produce, topic_for
from ottla import Consumer
from ottla.wire.records import arrow

TITLE = "Consumers, from one partition"
LOAD: Final = Load(100, 1_000_000, 1)
SLOW_RECORDS: Final = 50_000
ROUNDS: Final = 5
WAIT_SECONDS: Final = 60
AT_ONCE: Final = 500
DEFAULT_BACKOFF_MS: Final = 1000
ARROW_SCHEMA: Final = arrow.schema()

OBJECTS_ASKED: Final[dict[str, float | None]] = {
    "confluent-kafka": 1.0,
    "confluent-kafka, tuned": 1.0,
    "kafka-python": 5.0,
    "aiokafka": 5.0,
}
ARROW_ASKED: Final[dict[str, float | None]] = {
    "confluent-kafka into Arrow": 5.0,
    "confluent-kafka into Arrow, tuned": 5.0,
    "confluent-kafka": None,
    "confluent-kafka, tuned": None,
}

Read = Callable[[int, str], float]
"""Reads a topic of the broker on a port; returns millions of records per second."""


def cases() -> Iterator[Case]:
    """Yield the rows of the comparison."""
    readers: dict[str, Read] = {
        "poll": _ours_by_poll,
        "arrow": _ours_into_arrow,
        "confluent-kafka": _librdkafka,
        "confluent-kafka, tuned": partial(_librdkafka, backoff_ms=BACKOFF_MS),
        "confluent-kafka into Arrow": partial(_librdkafka, taken=_rows_in_arrow),
        "confluent-kafka into Arrow, tuned": partial(
            _librdkafka, backoff_ms=BACKOFF_MS, taken=_rows_in_arrow
        ),
        "kafka-python": _kafka_python,
        "aiokafka": _aiokafka,
    }
    figures: dict[str, list[float]] = {name: [] for name in readers}
    with (
        TemporaryDirectory() as folder,
        running_broker(folder) as broker,
        topic_for(broker.port, "records", LOAD.partitions) as topic,
    ):
        produce(broker.port, topic, LOAD)
        for _ in range(ROUNDS):
            for name, read in readers.items():
                figures[name].append(read(broker.port, topic))
    yield _case("one object each", figures, "poll", OBJECTS_ASKED)
    yield _case("into Arrow", figures, "arrow", ARROW_ASKED)


def _case(
    work: str, figures: dict[str, list[float]], ours: str, asked: dict[str, float | None]
) -> Case:
    return Case(
        work=work,
        unit=MILLION_RECORDS,
        ours=_nothing,
        peers=tuple(
            Peer(name, _nothing, ratio, tuple(figures[name])) for name, ratio in asked.items()
        ),
        figures=tuple(figures[ours]),
    )


def _nothing() -> None:
    """Do nothing: the figures were measured beforehand."""


def _rate(take: Callable[[], int], wanted: int) -> float:
    began = time.perf_counter()
    found = 0
    while found < wanted:
        taken = take()
        assert taken, f"{wanted - found} records are missing"
        found += taken
    return found / (time.perf_counter() - began) / 1e6


def _ours(port: int, topic: str) -> Consumer:
    consumer = Consumer(bootstrap_servers=f"127.0.0.1:{port}", auto_offset_reset="earliest")
    consumer.assign([(topic, 0)])
    return consumer


def _ours_by_poll(port: int, topic: str) -> float:
    with _ours(port, topic) as consumer:
        return _rate(lambda: len(consumer.poll(AT_ONCE, timeout=WAIT_SECONDS)), LOAD.records)


def _ours_into_arrow(port: int, topic: str) -> float:
    with _ours(port, topic) as consumer:
        return _rate(lambda: consumer.poll_arrow(timeout=WAIT_SECONDS).num_rows, LOAD.records)


def _librdkafka(
    port: int,
    topic: str,
    backoff_ms: int = DEFAULT_BACKOFF_MS,
    taken: Callable[[list[Message]], int] = len,
) -> float:
    consumer = LibrdkafkaConsumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": backoff_ms,
            "log_level": 0,
        }
    )
    consumer.assign([LibrdkafkaPartition(topic, 0, 0)])
    rate = _rate(lambda: taken(consumer.consume(AT_ONCE, timeout=WAIT_SECONDS)), LOAD.records)
    consumer.close()
    return rate


def _rows_in_arrow(messages: list[Message]) -> int:
    """Make a table with the same columns as ours."""
    times = [message.timestamp() for message in messages]
    columns = {
        "key": [message.key() for message in messages],
        "value": [message.value() for message in messages],
        "topic": [message.topic() for message in messages],
        "partition": [message.partition() for message in messages],
        "offset": [message.offset() for message in messages],
        "timestamp": [time_ms * 1000 for _, time_ms in times],
        "timestampType": [int(kind == TIMESTAMP_LOG_APPEND_TIME) for kind, _ in times],
    }
    return int(pa.table(columns, schema=ARROW_SCHEMA).num_rows)


def _kafka_python(port: int, topic: str) -> float:
    consumer = kafka.KafkaConsumer(bootstrap_servers=f"127.0.0.1:{port}", group_id=None)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    rate = _rate(lambda: _count(consumer.poll(WAIT_SECONDS * 1000)), SLOW_RECORDS)
    consumer.close()
    return rate


def _aiokafka(port: int, topic: str) -> float:
    return asyncio.run(_read_with_aiokafka(port, topic))


async def _read_with_aiokafka(port: int, topic: str) -> float:
    consumer = AIOKafkaConsumer(bootstrap_servers=f"127.0.0.1:{port}", group_id=None)
    await consumer.start()
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    began = time.perf_counter()
    found = 0
    while found < SLOW_RECORDS:
        found += _count(await consumer.getmany(timeout_ms=WAIT_SECONDS * 1000))
    rate = found / (time.perf_counter() - began) / 1e6
    await consumer.stop()
    return rate


def _count(records_by_partition: dict[Any, list[Any]]) -> int:
    return sum(map(len, records_by_partition.values()))
