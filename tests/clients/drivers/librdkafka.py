"""librdkafka, through confluent-kafka."""

import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.clients.driver import (
    HEARTBEAT_MS,
    IMPATIENCE,
    SECONDS_MAX,
    SESSION_MS,
    AdminDriver,
    Member,
    Received,
    Sent,
    dotted,
)


class LibrdkafkaMember(Member):
    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        consumer.subscribe([topic], on_assign=self._on_assign)

    def _on_assign(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.rebalances += 1

    def read(self) -> list[Received]:
        return [_received(m) for m in self._consumer.consume(100, 0.05) if not m.error()]

    def partitions(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment()}

    def close(self) -> list[Received]:
        self._consumer.close()
        return []


class LibrdkafkaDriver(AdminDriver):
    name = "librdkafka"

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        topic = NewTopic(name, partitions, 1, config=dotted(settings))
        admin = self._admin()
        admin.create_topics([topic])[name].result(SECONDS_MAX)

    def add_partitions(self, name: str, count: int) -> None:
        admin = self._admin()
        admin.create_partitions([NewPartitions(name, count)])[name].result(SECONDS_MAX)

    def delete_topic(self, name: str) -> None:
        admin = self._admin()
        admin.delete_topics([name])[name].result(SECONDS_MAX)

    def topics(self) -> dict[str, int]:
        found = self._admin().list_topics(timeout=SECONDS_MAX).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def groups(self) -> set[str]:
        admin = self._admin()
        listed = admin.list_consumer_groups().result(SECONDS_MAX)
        return {group.group_id for group in listed.valid}

    def produce(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        codec: str = "none",
        is_idempotent: bool = False,
        records_per_batch: int = 1_000,
    ) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "compression.type": codec,
                "enable.idempotence": is_idempotent,
                "batch.num.messages": records_per_batch,
                "linger.ms": 2,
                **IMPATIENCE,
            }
        )
        failures: list[KafkaError] = []
        for record in records:
            producer.produce(
                topic,
                record.value,
                key=record.key,
                partition=0,
                headers=list(record.headers),
                timestamp=record.timestamp_ms or 0,
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        assert producer.flush(SECONDS_MAX) == 0
        assert failures == []

    def consume(self, topic: str, count: int, *, offset: int = 0) -> list[Received]:
        consumer = self._consumer("unused")
        consumer.assign([TopicPartition(topic, 0, offset)])
        found: list[Received] = []
        deadline = time.monotonic() + SECONDS_MAX
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {len(found)} of {count} came"
            messages = consumer.consume(count - len(found), 0.5)
            found += [_received(message) for message in messages if not message.error()]
        consumer.close()
        return found

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        consumer = self._consumer("unused")
        wanted = TopicPartition(topic, 0, timestamp_ms)
        (found,) = consumer.offsets_for_times([wanted], SECONDS_MAX)
        consumer.close()
        return None if found.offset < 0 else found.offset

    def join(
        self,
        group: str,
        topic: str,
        *,
        instance: str | None = None,
        is_cooperative: bool = False,
    ) -> Member:
        more: dict[str, object] = {} if instance is None else {"group.instance.id": instance}
        if is_cooperative:
            more["partition.assignment.strategy"] = "cooperative-sticky"
        return LibrdkafkaMember(self._consumer(group, **more), topic)

    def _admin(self) -> AdminClient:
        """Make a client; the caller has to keep it while responses are pending."""
        return AdminClient({"bootstrap.servers": self.servers})

    def _consumer(self, group: str, **more: object) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                **more,
            }
        )


def _received(message: Message) -> Received:
    return Received(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
