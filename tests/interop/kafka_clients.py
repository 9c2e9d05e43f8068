"""Real clients, as short as the tests need them: librdkafka writes and reads for us."""

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.interop.seen import Headers, SeenRecord, text_of

ANSWER_SECONDS_MAX = 60
_QUIET = {"log_level": 0, "socket.timeout.ms": 20_000}


class NewRecord(NamedTuple):
    """A record to be produced."""

    timestamp_ms: int
    key: str | None
    value: str | None
    headers: Headers = ()


def create_topic(server: str, topic: str, partitions: int = 1, **config: str) -> None:
    """Create a topic; settings are given with underscores for dots."""
    client = AdminClient({"bootstrap.servers": server, **_QUIET})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    created = client.create_topics([NewTopic(topic, partitions, 1, config=settings)])
    created[topic].result(ANSWER_SECONDS_MAX)


def set_topic_config(server: str, topic: str, settings: dict[str, str]) -> None:
    """Change settings of a topic, by their dotted names."""
    client = AdminClient({"bootstrap.servers": server, **_QUIET})
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    client.incremental_alter_configs([resource])[resource].result(ANSWER_SECONDS_MAX)


def producer(server: str, **config: str | int | bool) -> Producer:
    """Make a producer that sends its records only when flushed, in one batch."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    defaults = {"linger.ms": 5_000, "compression.level": -1}
    return Producer({"bootstrap.servers": server, **_QUIET, **defaults, **settings})


def send(client: Producer, topic: str, partition: int, records: Iterable[NewRecord]) -> None:
    """Produce these records as one batch, and wait until they are acknowledged."""
    failures: list[KafkaError] = []
    for record in records:
        client.produce(
            topic,
            partition=partition,
            timestamp=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert client.flush(ANSWER_SECONDS_MAX) == 0, "not everything was acknowledged"
    assert not failures, failures


def consume(server: str, topic: str, partition: int, **config: str | bool) -> list[SeenRecord]:
    """Read a partition from its beginning to its end, as far as this consumer may see."""
    settings: dict[str, Any] = {
        "bootstrap.servers": server,
        "group.id": "interop",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "check.crcs": True,
        **_QUIET,
        **{name.replace("_", "."): value for name, value in config.items()},
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, 0)])
    seen: list[SeenRecord] = []
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                seen.append(_seen(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                return seen
            else:
                raise AssertionError(f"{topic}-{partition}: {error}")
    finally:
        consumer.close()
    raise AssertionError(f"{topic}-{partition}: no end after {len(seen)} records")


def commit_offset(server: str, group: str, topic: str, partition: int, offset: int) -> None:
    """Commit an offset for a group without members."""
    consumer = Consumer({"bootstrap.servers": server, "group.id": group, **_QUIET})
    try:
        consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
    finally:
        consumer.close()


def _seen(message: Any) -> SeenRecord:
    return SeenRecord(
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        key=text_of(message.key()),
        value=text_of(message.value()),
        headers=tuple((key, text_of(value)) for key, value in message.headers() or []),
    )
