"""The load of librdkafka on a broker: fill a topic, catch up on it, send and receive at a pace.

Settings are librdkafka's defaults, but for one: with a hundred thousand records in its own queue, a
consumer stops fetching for a whole second, with any broker. Here it waits for ten milliseconds.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ANSWER_SECONDS_MAX: Final = 60
QUEUE_WAIT_SECONDS: Final = 0.1
CONSUMED_AT_ONCE: Final = 10_000
BACKOFF_MS: Final = 10
_SENT_AT = Struct("d")


class Load(NamedTuple):
    """Records to send and to receive."""

    record_bytes: int
    records: int
    partitions: int

    @property
    def size_bytes(self) -> int:
        """The total size of all values."""
        return self.record_bytes * self.records


class Pace(NamedTuple):
    """A rate of records per second, its duration, and librdkafka's linger."""

    rate: int
    seconds: float
    linger_ms: float

    @property
    def records(self) -> int:
        """The total number of records."""
        return int(self.rate * self.seconds)


@contextmanager
def topic_for(port: int, name: str, partitions: int, replicas: int = 1) -> Iterator[str]:
    """Yield a topic that exists during the block."""
    admin = AdminClient(_broker(port))
    for created in admin.create_topics([NewTopic(name, partitions, replicas)]).values():
        created.result(ANSWER_SECONDS_MAX)
    yield name
    for deleted in admin.delete_topics([name]).values():
        deleted.result(ANSWER_SECONDS_MAX)


def produce(port: int, topic: str, load: Load) -> float:
    """Return the seconds it took until every record was acknowledged."""
    producer = Producer(_broker(port))
    producer.list_topics(topic, timeout=ANSWER_SECONDS_MAX)
    value = bytes(load.record_bytes)
    began = time.perf_counter()
    for _ in range(load.records):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(QUEUE_WAIT_SECONDS)
    assert producer.flush(ANSWER_SECONDS_MAX) == 0, "the broker does not answer"
    return time.perf_counter() - began


def catch_up(port: int, topic: str, load: Load) -> float:
    """Return the seconds it took to read all records of `produce` from the beginning."""
    consumer = _consumer(port)
    consumer.list_topics(topic, timeout=ANSWER_SECONDS_MAX)
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, number, 0) for number in range(load.partitions)])
    missing = load.records
    while missing > 0:
        records = consumer.consume(CONSUMED_AT_ONCE, timeout=ANSWER_SECONDS_MAX)
        assert records, f"{missing} records are missing"
        missing -= len(records)
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def latencies_ms(port: int, topic: str, pace: Pace) -> list[float]:
    """Return how long records took from `produce` to the consumer, the shortest first.

    As many records again are sent before, as a warm-up.
    """
    consumer = _consumer(port)
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = Producer({**_broker(port), "linger.ms": pace.linger_ms})
    producer.list_topics(topic, timeout=ANSWER_SECONDS_MAX)
    sending = threading.Thread(target=_send_at_pace, args=(producer, topic, pace), daemon=True)
    sending.start()
    taken_ms = []
    for _ in range(2 * pace.records):
        record = consumer.poll(ANSWER_SECONDS_MAX)
        assert record is not None, "a record is missing"
        (sent_at,) = _SENT_AT.unpack(record.value() or b"")
        taken_ms.append((time.perf_counter() - sent_at) * 1000)
    sending.join()
    consumer.close()
    return sorted(taken_ms[pace.records :])


def _send_at_pace(producer: Producer, topic: str, pace: Pace) -> None:
    began = time.perf_counter()
    for number in range(2 * pace.records):
        time.sleep(max(0.0, began + number / pace.rate - time.perf_counter()))
        producer.produce(topic, _SENT_AT.pack(time.perf_counter()))
        producer.poll(0)
    producer.flush(ANSWER_SECONDS_MAX)


def _consumer(port: int) -> Consumer:
    return Consumer(
        {
            **_broker(port),
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": BACKOFF_MS,
        }
    )


def _broker(port: int) -> dict[str, str | float | bool]:
    return {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
