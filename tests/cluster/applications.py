"""Applications with Python client libraries in ordinary use: they write and read continuously.

An exception from a library ends the application, and is reported at the end.
"""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.clients.driver import Driver
from tests.clients.drivers.aio_kafka import AioKafkaDriver
from tests.clients.drivers.kafka_python import KafkaProducer, KafkaPythonDriver
from tests.clients.drivers.librdkafka import LibrdkafkaDriver
from tests.cluster.load import WAIT_SECONDS_MAX

_PAUSE_SECONDS = 0.05


class Application(ABC):
    """Writes to a topic in one thread, and reads it in another as the only member of a group."""

    driver: type[Driver]

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self.servers = servers
        self.topic = topic
        self.partitions = partitions
        self.written: list[bytes] = []
        """The acknowledged values."""
        self.read: set[bytes] = set()
        self._failures: list[BaseException] = []
        self._is_written = threading.Event()
        self._is_read = threading.Event()
        self._writer = threading.Thread(target=self._run, args=(self._write,), daemon=True)
        self._reader = threading.Thread(target=self._run, args=(self._read,), daemon=True)

    @abstractmethod
    def _write(self) -> None:
        """Write until stopped, and record acknowledged values."""

    def __enter__(self) -> Self:
        self._reader.start()
        self._writer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_written.set()
        self._writer.join()
        if kind is None:
            self._wait_until(lambda: self.read.issuperset(self.written))
        self._is_read.set()
        self._reader.join()

    def goes_on(self) -> None:
        """Wait for a new acknowledged record in each partition, and for reading it."""
        count = len(self.written)
        self._wait_until(
            lambda: len({_partition(value) for value in self.written[count:]}) == self.partitions
        )
        self._wait_until(lambda: self.read.issuperset(self.written[: count + 1]))

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not condition():
            if self._failures:
                raise self._failures[0]
            assert time.monotonic() < deadline, f"{type(self).__name__} does not go on"
            time.sleep(0.02)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - reported to the waiting test
            self._failures.append(error)

    def _read(self) -> None:
        member = self.driver(self.servers).join(self.topic, self.topic)
        while not self._is_read.is_set():
            self.read.update(record.value or b"" for record in member.read())
        member.close()

    def _values(self) -> Iterator[tuple[int, bytes]]:
        number = 0
        while not self._is_written.wait(_PAUSE_SECONDS):
            for partition in range(self.partitions):
                yield partition, b"%d-%d" % (partition, number)
            number += 1


class Confluent(Application):
    """confluent-kafka."""

    driver = LibrdkafkaDriver

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})

        def answered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                raise KafkaException(error)
            self.written.append(message.value())

        for partition, value in self._values():
            producer.produce(self.topic, value, partition=partition, on_delivery=answered)
            producer.poll(0)
        assert producer.flush(WAIT_SECONDS_MAX) == 0


class KafkaPython(Application):
    """kafka-python."""

    driver = KafkaPythonDriver

    def _write(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self.servers, enable_idempotence=True)
        sent = []
        for partition, value in self._values():
            future = producer.send(self.topic, value, partition=partition)
            future.add_callback(lambda _metadata, value=value: self.written.append(value))
            sent.append(future)
        for future in sent:
            future.get(WAIT_SECONDS_MAX)
        producer.close()


class AioKafka(Application):
    """aiokafka."""

    driver = AioKafkaDriver

    def _write(self) -> None:
        asyncio.run(self._write_all())

    async def _write_all(self) -> None:
        values = self._values()
        async with AIOKafkaProducer(
            bootstrap_servers=self.servers, enable_idempotence=True
        ) as producer:
            writing: set[asyncio.Task[None]] = set()
            while (following := await asyncio.to_thread(next, values, None)) is not None:
                future = await producer.send(self.topic, following[1], partition=following[0])
                writing.add(asyncio.ensure_future(self._note(future, following[1])))
            await asyncio.gather(*writing)

    async def _note(self, future: "asyncio.Future[object]", value: bytes) -> None:
        await future
        self.written.append(value)


def _partition(value: bytes) -> bytes:
    return value.partition(b"-")[0]


APPLICATIONS = (Confluent, KafkaPython, AioKafka)
