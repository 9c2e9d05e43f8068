"""kafka-python."""

import logging
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import (
        ConsumerRebalanceListener,
        KafkaAdminClient,
        KafkaConsumer,
        KafkaProducer,
        TopicPartition,
    )
    from kafka.admin import NewPartitions, NewTopic
    from kafka.consumer.fetcher import ConsumerRecord
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaConnectionError
    from kafka.net.inet import KafkaNetSocket

from tests.clients.driver import (
    HEARTBEAT_MS,
    SECONDS_MAX,
    SESSION_MS,
    AdminDriver,
    Member,
    Received,
    Sent,
    dotted,
)

# Its log records of lost connections would keep the sockets alive as long as a test's log.
logging.getLogger("kafka").setLevel(logging.CRITICAL)
POLL_MS = 500
RECORD_BYTES_MAX = 100
"""Approximate size of a record in the stories; batch limits are in bytes."""

_connect = KafkaNetSocket.sock_connect


async def _connect_or_close(
    self: KafkaNetSocket, net: Any, sock: Any, *rest: Any, **more: Any
) -> Any:
    """Connect as kafka-python does, but leave no socket open that was refused."""
    try:
        return await _connect(self, net, sock, *rest, **more)
    except KafkaConnectionError:
        sock.close()
        raise


KafkaNetSocket.sock_connect = _connect_or_close


class KafkaPythonMember(Member):
    """A thread that polls all the time: a join that ends between two polls starts again."""

    def __init__(self, consumer: KafkaConsumer, topic: str) -> None:
        self._consumer = consumer
        self._records: deque[Received] = deque()
        self._partitions: set[int] = set()
        self._is_closing = False
        member = self

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
                member.rebalances += 1

            def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
                pass

        consumer.subscribe([topic], listener=Listener())
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._is_closing:
            with suppress(
                KafkaConnectionError
            ):  # of a broker that is away: it is to be asked again
                for records in self._consumer.poll(timeout_ms=POLL_MS).values():
                    self._records.extend(map(_received, records))
            self._partitions = {one.partition for one in self._consumer.assignment()}
        self._consumer.close()

    def read(self) -> list[Received]:
        time.sleep(0.05)
        return [self._records.popleft() for _ in range(len(self._records))]

    def partitions(self) -> set[int]:
        return self._partitions

    def close(self) -> list[Received]:
        self._is_closing = True
        self._thread.join(SECONDS_MAX)
        return self.read()


class KafkaPythonDriver(AdminDriver):
    name = "kafka-python"

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        with closing(KafkaAdminClient(bootstrap_servers=self.servers)) as admin:
            admin.create_topics([NewTopic(name, partitions, 1, topic_configs=dotted(settings))])

    def add_partitions(self, name: str, count: int) -> None:
        with closing(KafkaAdminClient(bootstrap_servers=self.servers)) as admin:
            admin.create_partitions({name: NewPartitions(count)})

    def delete_topic(self, name: str) -> None:
        with closing(KafkaAdminClient(bootstrap_servers=self.servers)) as admin:
            admin.delete_topics([name])

    def topics(self) -> dict[str, int]:
        with closing(KafkaAdminClient(bootstrap_servers=self.servers)) as admin:
            return {topic["name"]: len(topic["partitions"]) for topic in admin.describe_topics()}

    def groups(self) -> set[str]:
        with closing(KafkaAdminClient(bootstrap_servers=self.servers)) as admin:
            return {group["group_id"] for group in admin.list_groups()}

    def produce(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        codec: str = "none",
        is_idempotent: bool = False,
        records_per_batch: int = 1_000,
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=is_idempotent,
            batch_size=records_per_batch * RECORD_BYTES_MAX,
        )
        sent = [
            producer.send(
                topic,
                record.value,
                record.key,
                headers=list(record.headers),
                partition=0,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        producer.flush(timeout=SECONDS_MAX)
        for future in sent:
            future.get(timeout=SECONDS_MAX)
        producer.close()

    def consume(self, topic: str, count: int, *, offset: int = 0) -> list[Received]:
        consumer = KafkaConsumer(bootstrap_servers=self.servers, group_id=None)
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        found: list[Received] = []
        deadline = time.monotonic() + SECONDS_MAX
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {len(found)} of {count} came"
            for records in consumer.poll(timeout_ms=500, max_records=count - len(found)).values():
                found += map(_received, records)
        consumer.close()
        return found

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        consumer = KafkaConsumer(bootstrap_servers=self.servers, group_id=None)
        partition = TopicPartition(topic, 0)
        found = consumer.offsets_for_times({partition: timestamp_ms})[partition]
        consumer.close()
        return None if found is None else found.offset

    def join(
        self,
        group: str,
        topic: str,
        *,
        instance: str | None = None,
        is_cooperative: bool = False,
    ) -> Member:
        assignor = CooperativeStickyAssignor if is_cooperative else RangePartitionAssignor
        consumer = KafkaConsumer(
            bootstrap_servers=self.servers,
            group_id=group,
            group_instance_id=instance,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[assignor],
        )
        return KafkaPythonMember(consumer, topic)


def _received(record: ConsumerRecord) -> Received:
    return Received(
        record.partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        tuple(record.headers),
    )
