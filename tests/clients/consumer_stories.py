"""Helpers of the consumer's stories: topics, records from librdkafka, and waiting."""

import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla import Consumer, ConsumerRecord, TopicPartition

SECONDS_MAX = 240
_numbers = count()


def new_topic(servers: str, partitions: int = 1, **config: str) -> str:
    """Create a topic that no other test uses."""
    name = f"letters-{next(_numbers)}"
    make_topic(servers, name, partitions, **config)
    return name


def make_topic(servers: str, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    named = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=named)])[name].result(SECONDS_MAX)


def delete_topic(servers: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.delete_topics([name])[name].result(SECONDS_MAX)


def librdkafka_producer(servers: str, **settings: Any) -> Producer:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer({"bootstrap.servers": servers, "log_level": 0, "linger.ms": 5} | named)


def send(servers: str, topic: str, values: Iterable[Any], **settings: Any) -> None:
    """Write these values to partition 0 with librdkafka."""
    producer = librdkafka_producer(servers, **settings)
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def consumer_of(servers: str, *topics: str, **settings: Any) -> Consumer:
    """Make a consumer that reads partition 0 of these topics from the start."""
    defaults = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100}
    consumer = Consumer(bootstrap_servers=servers, **(defaults | settings))
    consumer.assign([TopicPartition(topic, 0) for topic in topics])
    return consumer


def read(consumer: Consumer, wanted: int) -> list[ConsumerRecord]:
    """Poll until this many records have arrived."""
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < wanted:
        assert time.monotonic() < deadline, f"only {len(found)} of {wanted} records came"
        found += consumer.poll()
    return found


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def damage(folder: Path) -> bool:
    """Flip a bit in the value `damaged` of the topic letters, once that is on disk."""
    for log in folder.rglob("letters-0/*.log"):
        raw = bytearray(log.read_bytes())
        at = raw.find(b"damaged")
        if at >= 0:
            with log.open("r+b") as file:
                file.seek(at)
                file.write(bytes([raw[at] ^ 1]))
            return True
    return False
