"""Copies a topic exactly once: reads, changes, writes, and commits its offsets in the transaction.

python -m tests.cluster.copier LIBRARY SERVERS SOURCE TARGET ID

It continues where its predecessor with the same id stopped, and exits with 0 at the end of the
source, or with FENCED when another process uses its id. After each transaction it prints how many
records it has copied. Any other exception of a library ends it.
"""

import argparse
import asyncio
import sys
import warnings
from collections.abc import Callable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

import ottla
from tests.clients.drivers.kafka_python import KafkaConsumer, KafkaProducer
from tests.clients.drivers.kafka_python import TopicPartition as PythonPartition
from tests.cluster.load import WAIT_SECONDS_MAX, say
from tests.cluster.our_copier import FENCED, TRANSACTION_RECORDS_MAX, OurCopier, changed

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.errors import InvalidProducerEpochError, ProducerFencedError
    from kafka.errors import KafkaError as PythonKafkaError
    from kafka.structs import OffsetAndMetadata

POLL_SECONDS: Final = 0.2
IDLE_MS_MAX: Final = 3_000
"""librdkafka 2.16 waits past its timeout for a group coordinator that has left the cluster, until
any of its connections opens or closes (its issues 5456 and 5511). Closing idle connections ends
that wait."""
_QUICK: Final = {
    "retry.backoff.ms": 50,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}
_FENCED: Final = (ProducerFenced, ProducerFencedError, InvalidProducerEpochError)
_FENCING: Final = frozenset(
    {
        KafkaError._FATAL,
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)


class Librdkafka:
    """A group member with confluent-kafka; it continues after abortable errors."""

    def __init__(self, servers: str, source: str, target: str, name: str) -> None:
        self._source, self._target = source, target
        self._copied = 0
        self._ended: set[int] = set()
        common: dict[str, Any] = {"bootstrap.servers": servers, **_QUICK}
        self._producer = Producer(
            {
                **common,
                "transactional.id": name,
                "linger.ms": 1,
                "connections.max.idle.ms": IDLE_MS_MAX,
            }
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": name,
                "group.instance.id": name,
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 500,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )

    def run(self) -> None:
        """Copy to the end."""
        _tried(lambda: self._producer.init_transactions(WAIT_SECONDS_MAX))
        described = self._consumer.list_topics(self._source, timeout=WAIT_SECONDS_MAX)
        count = len(described.topics[self._source].partitions)
        self._consumer.subscribe([self._source], on_assign=self._assigned)
        while len(self._ended) < count:
            polled = self._consumer.consume(TRANSACTION_RECORDS_MAX, timeout=POLL_SECONDS)
            ended = [one.partition() for one in polled if is_end(one)]
            if self._copy([one for one in polled if one.error() is None]):
                self._ended.update(ended)
        self._consumer.close()

    def _assigned(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._ended.clear()

    def _copy(self, messages: list[Message]) -> bool:
        """Copy in one transaction; False if it was aborted."""
        if not messages:
            return True
        self._producer.begin_transaction()
        try:
            for message in messages:
                value = changed(message.value() or b"")
                self._producer.produce(self._target, value, partition=message.partition())
            self._commit(messages)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            say(f"aborts: {error}")
            _tried(lambda: self._producer.abort_transaction(WAIT_SECONDS_MAX))
            self._go_back()
            return False
        self._copied += len(messages)
        say(str(self._copied))
        return True

    def _commit(self, messages: list[Message]) -> None:
        ends = {message.partition(): message.offset() + 1 for message in messages}
        offsets = [TopicPartition(self._source, *row) for row in ends.items()]
        group = self._consumer.consumer_group_metadata()
        sending = self._producer.send_offsets_to_transaction
        _tried(lambda: sending(offsets, group, WAIT_SECONDS_MAX))
        _tried(lambda: self._producer.commit_transaction(WAIT_SECONDS_MAX))

    def _go_back(self) -> None:
        """Seek back to the first record that is not copied."""
        self._ended.clear()
        assigned = self._consumer.assignment()
        for place in self._consumer.committed(assigned, WAIT_SECONDS_MAX):
            self._consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))


def is_end(message: Message) -> bool:
    """Return whether a message is no record but the end of a partition."""
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._FATAL:  # another member has its place in the group
        raise KafkaException(error)
    return bool(error.code() == KafkaError._PARTITION_EOF)


def _tried(work: Callable[[], None]) -> None:
    """Repeat the call as long as its error is retriable."""
    while True:
        try:
            return work()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


class KafkaPython:
    """A copier with kafka-python and manual assignment of all partitions; any error ends it."""

    def __init__(self, servers: str, source: str, target: str, name: str) -> None:
        self._source, self._target, self._name = source, target, name
        self._producer = KafkaProducer(bootstrap_servers=servers, transactional_id=name)
        self._consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=name,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=TRANSACTION_RECORDS_MAX,
        )

    def run(self) -> None:
        """Copy to the end."""
        self._producer.init_transactions()
        consumer = self._consumer
        places = [
            PythonPartition(self._source, index)
            for index in consumer.partitions_for_topic(self._source)
        ]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        copied = 0
        while any(consumer.position(place) < ends[place] for place in places):
            polled = consumer.poll(timeout_ms=int(1000 * POLL_SECONDS))
            if polled:
                self._copy(polled)
                copied += sum(map(len, polled.values()))
                say(str(copied))

    def _copy(self, polled: dict[Any, list[Any]]) -> None:
        self._producer.begin_transaction()
        for place, records in polled.items():
            for record in records:
                self._producer.send(self._target, changed(record.value), partition=place.partition)
        offsets = {
            place: OffsetAndMetadata(records[-1].offset + 1, "", -1)
            for place, records in polled.items()
        }
        self._producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())
        self._producer.commit_transaction()


class AioKafka:
    """The same with aiokafka."""

    def __init__(self, servers: str, source: str, target: str, name: str) -> None:
        self._servers, self._source, self._target, self._name = servers, source, target, name

    def run(self) -> None:
        """Copy to the end."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            group_id=self._name,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=TRANSACTION_RECORDS_MAX,
        )
        producer = AIOKafkaProducer(bootstrap_servers=self._servers, transactional_id=self._name)
        async with producer, consumer:
            await self._copy_all(consumer, producer)

    async def _copy_all(self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
        indexes = await producer.partitions_for(self._source)
        places = [AioPartition(self._source, index) for index in indexes]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        copied = 0
        while any([await consumer.position(place) < ends[place] for place in places]):
            polled = await consumer.getmany(timeout_ms=int(1000 * POLL_SECONDS))
            if polled:
                await self._copy(producer, polled)
                copied += sum(map(len, polled.values()))
                say(str(copied))

    async def _copy(self, producer: AIOKafkaProducer, polled: dict[Any, list[Any]]) -> None:
        async with producer.transaction():
            for place, records in polled.items():
                for record in records:
                    value = changed(record.value)
                    await producer.send(self._target, value, partition=place.partition)
            offsets = {place: records[-1].offset + 1 for place, records in polled.items()}
            await producer.send_offsets_to_transaction(offsets, self._name)


class Ottla(OurCopier):
    """A copier with Ottla's clients; its transactions are of version 2."""

    def __init__(self, servers: str, source: str, target: str, name: str) -> None:
        super().__init__(servers, source, target, name, name)

    def run(self) -> None:
        """Copy to the end."""
        rows = self._consumer.partitions_for(self._source)
        ends = self._consumer.end_offsets([(self._source, row.partition) for row in rows])

        def is_at_end() -> bool:
            return self._consumer.assignment() == set(ends) and all(
                self._consumer.position(place) >= end for place, end in ends.items()
            )

        self.copy_until(is_at_end)


COPIERS: Final = {copier.__name__: copier for copier in (Librdkafka, KafkaPython, AioKafka, Ottla)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=COPIERS)
    for name in ("servers", "source", "target", "id"):
        parser.add_argument(name)
    options = parser.parse_args()
    copier = COPIERS[options.library]
    try:
        copier(options.servers, options.source, options.target, options.id).run()
    except KafkaException as error:
        say(f"ends: {error}")
        if error.args[0].code() not in _FENCING:
            raise
        return FENCED
    except ottla.ProducerFencedError as error:
        say(f"ends: {error}")
        return FENCED
    except (ProducerFenced, PythonKafkaError) as error:
        say(f"ends: {error!r}")
        if not _is_fenced(error):
            raise
        return FENCED
    return 0


def _is_fenced(error: Exception) -> bool:
    """Look at the cause, too: kafka-python's `send` wraps the error of an earlier request."""
    causes = (error, *error.args)
    return any(isinstance(cause, _FENCED) for cause in causes)


if __name__ == "__main__":
    sys.exit(main())
