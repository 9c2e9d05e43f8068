"""The transactional producers of three client libraries, with one interface."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import closing

from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Partition

from ottla.clients.producer.producer import Producer as OttlaProducer
from tests.clients.drivers.aio_kafka import _run
from tests.clients.drivers.kafka_python import KafkaProducer
from tests.clients.drivers.kafka_python import TopicPartition as KafkaPythonPartition

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.structs import OffsetAndMetadata

SECONDS_MAX = 240


class TransactionalProducer(ABC):
    """A producer that has been initialized; partition 0 of every topic is enough for it."""

    name: str

    def __init__(self, servers: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.servers = servers
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.start()

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, values: Iterable[bytes]) -> None:
        """Produce, and wait until the broker has everything."""

    @abstractmethod
    def send_offset(self, topic: str, offset: int, group: str) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Librdkafka(TransactionalProducer):
    name = "librdkafka"

    def start(self) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "transactional.id": self.transactional_id,
                "transaction.timeout.ms": self.timeout_ms,
                "message.timeout.ms": self.timeout_ms,
                "linger.ms": 0,
            }
        )
        self._producer.init_transactions(SECONDS_MAX)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Iterable[bytes]) -> None:
        failures: list[object] = []

        def on_delivery(error: object, _message: object) -> None:
            if error is not None:
                failures.append(error)

        for value in values:
            self._producer.produce(topic, value, partition=0, on_delivery=on_delivery)
        assert self._producer.flush(SECONDS_MAX) == 0
        if failures:
            raise KafkaException(failures[0])

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        with closing(consumer):
            self._producer.send_offsets_to_transaction(
                [Partition(topic, 0, offset)], consumer.consumer_group_metadata(), SECONDS_MAX
            )

    def send_offsets_of(self, consumer: Consumer) -> None:
        """Put how far a member of a group has read into the transaction."""
        position = consumer.position(consumer.assignment())
        metadata = consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(position, metadata, SECONDS_MAX)

    def commit(self) -> None:
        self._producer.commit_transaction(SECONDS_MAX)

    def abort(self) -> None:
        self._producer.abort_transaction(SECONDS_MAX)

    def close(self) -> None:
        del self._producer


class KafkaPython(TransactionalProducer):
    name = "kafka-python"

    def start(self) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=self.servers,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Iterable[bytes]) -> None:
        sent = [self._producer.send(topic, value, partition=0) for value in values]
        for each in sent:
            each.get(timeout=SECONDS_MAX)

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        offsets = {KafkaPythonPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(offsets, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=SECONDS_MAX)


class AioKafka(TransactionalProducer):
    name = "aiokafka"

    def start(self) -> None:
        _run(self._start())

    async def _start(self) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self.servers,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
        )
        await self._producer.start()

    def begin(self) -> None:
        _run(self._producer.begin_transaction())

    def send(self, topic: str, values: Iterable[bytes]) -> None:
        _run(self._send(topic, values))

    async def _send(self, topic: str, values: Iterable[bytes]) -> None:
        sent = [await self._producer.send(topic, value, partition=0) for value in values]
        for each in sent:
            await each

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        offsets = {AioPartition(topic, 0): offset}
        _run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        _run(self._producer.commit_transaction())

    def abort(self) -> None:
        _run(self._producer.abort_transaction())

    def close(self) -> None:
        _run(self._producer.stop())


class Ottla(TransactionalProducer):
    name = "ottla"

    def start(self) -> None:
        self._producer = OttlaProducer(
            bootstrap_servers=self.servers,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Iterable[bytes]) -> None:
        sent = [self._producer.send(topic, value, partition=0) for value in values]
        for each in sent:
            each.result(SECONDS_MAX)

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        self._producer.send_offsets_to_transaction({(topic, 0): offset}, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=SECONDS_MAX)


PRODUCERS: list[type[TransactionalProducer]] = [Librdkafka, KafkaPython, AioKafka, Ottla]
