"""aiokafka: its clients live on an event loop, which runs in a thread as long as the tests do."""

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from functools import cache
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.structs import ConsumerRecord

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

T = TypeVar("T")
READ_SECONDS = 0.5
RECORD_BYTES_MAX = 100
"""Approximate size of a record in the stories; batch limits are in bytes."""


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="aiokafka", daemon=True).start()
    return loop


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result(SECONDS_MAX)


class _Listener(ConsumerRebalanceListener):
    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._member.rebalances += 1

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        pass


class AioKafkaMember(Member):
    def __init__(self, consumer: AIOKafkaConsumer, topic: str) -> None:
        self._consumer = consumer
        consumer.subscribe([topic], listener=_Listener(self))
        _run(consumer.start())

    def read(self) -> list[Received]:
        return _run(self._read())

    async def _read(self) -> list[Received]:
        # getmany waits past its timeout for the end of a rebalance, and that may have to wait for
        # another member, which the same thread polls next.
        try:
            async with asyncio.timeout(READ_SECONDS):
                polled = await self._consumer.getmany(timeout_ms=50)
        except TimeoutError:
            return []
        return [_received(record) for records in polled.values() for record in records]

    def partitions(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment()}

    def close(self) -> list[Received]:
        _run(self._consumer.stop())
        return []


class AioKafkaDriver(AdminDriver):
    name = "aiokafka"

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        topic = NewTopic(name, partitions, 1, topic_configs=dotted(settings))
        _run(self._administer("create_topics", [topic]))

    def add_partitions(self, name: str, count: int) -> None:
        _run(self._administer("create_partitions", {name: NewPartitions(count)}))

    def delete_topic(self, name: str) -> None:
        _run(self._administer("delete_topics", [name]))

    def topics(self) -> dict[str, int]:
        described = _run(self._administer("describe_topics"))
        return {topic["topic"]: len(topic["partitions"]) for topic in described}

    def groups(self) -> set[str]:
        return {group for group, *_ in _run(self._administer("list_consumer_groups"))}

    def produce(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        codec: str = "none",
        is_idempotent: bool = False,
        records_per_batch: int = 1_000,
    ) -> None:
        _run(self._produce(topic, list(records), codec, is_idempotent, records_per_batch))

    async def _produce(
        self, topic: str, records: list[Sent], codec: str, is_idempotent: bool, per_batch: int
    ) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=is_idempotent,
            max_batch_size=per_batch * RECORD_BYTES_MAX,
        )
        async with producer:
            sent = [
                await producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition=0,
                    timestamp_ms=record.timestamp_ms,
                    headers=list(record.headers),
                )
                for record in records
            ]
            await asyncio.gather(*sent)

    def consume(self, topic: str, count: int, *, offset: int = 0) -> list[Received]:
        return _run(self._consume(topic, count, offset))

    async def _consume(self, topic: str, count: int, offset: int) -> list[Received]:
        partition = TopicPartition(topic, 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=self.servers)
        async with consumer:
            consumer.assign([partition])
            consumer.seek(partition, offset)
            return [_received(await consumer.getone()) for _ in range(count)]

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        return _run(self._offset_at(TopicPartition(topic, 0), timestamp_ms))

    async def _offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        async with AIOKafkaConsumer(bootstrap_servers=self.servers) as consumer:
            found = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition]
        return None if found is None else found.offset

    def join(
        self,
        group: str,
        topic: str,
        *,
        instance: str | None = None,
        is_cooperative: bool = False,
    ) -> Member:
        assert not is_cooperative
        return AioKafkaMember(_run(self._consumer(group, instance)), topic)

    async def _consumer(self, group: str, instance: str | None) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self.servers,
            group_id=group,
            group_instance_id=instance,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[RangePartitionAssignor],
        )

    async def _administer(self, what: str, *arguments: Any) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.servers)
        await admin.start()
        try:
            return await getattr(admin, what)(*arguments)
        finally:
            await admin.close()


def _received(record: ConsumerRecord) -> Received:
    return Received(
        record.partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        tuple(record.headers),
    )
