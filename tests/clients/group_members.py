"""Group members: Ottla's, in this thread, and other libraries' with any assignor."""

import asyncio
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioSticky,
)
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import Producer

from ottla.clients.consumer.consumer import Consumer
from ottla.model.identifiers import TopicPartition
from ottla.wire.records.consumer_record import ConsumerRecord
from tests.clients.driver import HEARTBEAT_MS, SECONDS_MAX, SESSION_MS, Member, Received
from tests.clients.drivers.aio_kafka import _loop, _run
from tests.clients.drivers.kafka_python import KafkaPythonMember
from tests.clients.drivers.librdkafka import LibrdkafkaDriver, LibrdkafkaMember

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

POLL_SECONDS = 0.05
STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]
_KAFKA_PYTHON = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
_AIOKAFKA = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}


class OttlaMember:
    """An Ottla consumer, and all calls of its listeners."""

    def __init__(self, servers: str, group: str, topic: str | None = None, **settings: Any) -> None:
        self.heard: list[tuple[str, list[TopicPartition]]] = []
        self.values: list[bytes | None] = []
        self.polling = threading.Lock()
        self.consumer = Consumer(
            bootstrap_servers=servers,
            group_id=group,
            **{
                "auto_offset_reset": "earliest",
                "session_timeout_ms": SESSION_MS,
                "heartbeat_interval_ms": HEARTBEAT_MS,
                **settings,
            },
        )
        if topic is not None:
            self.subscribe([topic])

    def subscribe(self, topics: Sequence[str] = (), **more: Any) -> None:
        def hearing(what: str) -> Callable[[list[TopicPartition]], None]:
            return lambda names: self.heard.append((what, names))

        listeners = {f"on_{what}": hearing(what) for what in ("assigned", "revoked", "lost")}
        self.consumer.subscribe(topics, **(listeners | more))

    def poll(self) -> list[ConsumerRecord]:
        with self.polling:
            records = self.consumer.poll(timeout=POLL_SECONDS)
        self.values += [record.value for record in records]
        return records

    @property
    def share(self) -> list[TopicPartition]:
        return sorted(self.consumer.assignment())


def poll_until(members: Iterable[OttlaMember | Member], is_so: Callable[[], bool]) -> None:
    """Poll with all members, as a rebalance needs, until the condition holds."""
    everybody = list(members)
    deadline = time.monotonic() + 2 * SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, [
            one.share if isinstance(one, OttlaMember) else sorted(one.partitions())
            for one in everybody
        ]
        for one in everybody:
            if isinstance(one, OttlaMember):
                one.poll()
            else:
                one.read()


@contextmanager
def closing_members() -> Iterator[Callable[..., OttlaMember]]:
    """Make Ottla members, and close any that are still open at the end."""
    with ExitStack() as stack:

        def make(*arguments: Any, **settings: Any) -> OttlaMember:
            member = OttlaMember(*arguments, **settings)
            stack.callback(member.consumer.close)
            return member

        yield make


class Post:
    """Writes numbered letters to the partitions of a topic, round-robin."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self._driver = LibrdkafkaDriver(servers)
        self._topic = topic
        self._numbers = count()
        self.partitions = partitions
        self._driver.create_topic(topic, partitions)
        self._producer = self._new_producer()
        self.sent: list[bytes] = []

    def send(self, number: int) -> None:
        for _ in range(number):
            letter = next(self._numbers)
            self.sent.append(f"letter {letter}".encode())
            partition = letter % self.partitions
            self._producer.produce(self._topic, self.sent[-1], partition=partition)
        assert self._producer.flush(SECONDS_MAX) == 0

    def grow(self, partitions: int) -> None:
        self._driver.add_partitions(self._topic, partitions)
        self.partitions = partitions
        self._producer = self._new_producer()  # the old producer has stale metadata

    def _new_producer(self) -> Producer:
        return Producer({"bootstrap.servers": self._driver.servers, "linger.ms": 1})

    def all(self) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in range(self.partitions)]


def librdkafka_member(servers: str, group: str, topic: str, strategy: str) -> Member:
    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": strategy,
    }
    return LibrdkafkaMember(LibrdkafkaConsumer(settings), topic)


def kafka_python_member(servers: str, group: str, topic: str, strategy: str) -> Member:
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[_KAFKA_PYTHON[strategy]],
    )
    return KafkaPythonMember(consumer, topic)


class AioKafkaMember(Member):
    """It joins and polls in the background: aiokafka waits for others, and those have to poll."""

    def __init__(self, servers: str, group: str, topic: str, strategy: str) -> None:
        self._consumer = _run(self._make(servers, group, _AIOKAFKA[strategy]))
        self._consumer.subscribe([topic])
        self._working = asyncio.run_coroutine_threadsafe(self._consumer.start(), _loop())

    @staticmethod
    async def _make(servers: str, group: str, strategy: type) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[strategy],
        )

    def read(self) -> list[Received]:
        time.sleep(POLL_SECONDS)
        if self._working.done():
            self._working.result()
            polling = self._consumer.getmany(timeout_ms=1000 * POLL_SECONDS)
            self._working = asyncio.run_coroutine_threadsafe(polling, _loop())
        return []

    def partitions(self) -> set[int]:
        return {one.partition for one in self._consumer.assignment()}

    def close(self) -> list[Received]:
        _run(self._consumer.stop())
        self._working.exception(SECONDS_MAX)
        return []


MIXED = [
    *((librdkafka_member, strategy) for strategy in ("range", "roundrobin", "cooperative-sticky")),
    *((kafka_python_member, strategy) for strategy in STRATEGIES),
    *((AioKafkaMember, strategy) for strategy in _AIOKAFKA),
]
"""Every library with every assignor that it has in common with us."""
