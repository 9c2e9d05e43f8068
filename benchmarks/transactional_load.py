"""The load of producers on a broker, in transactions or without; librdkafka reads the records.

Settings are the producers' defaults, librdkafka's and ours, but for their queues: they hold a few
megabytes, so that no figure measures memory allocation. Consumers fetch again as in
`librdkafka_load.py`.
"""

import multiprocessing
from contextlib import closing
from enum import Enum
from threading import BrokenBarrierError
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition

import ottla
from benchmarks.librdkafka_load import (
    ANSWER_SECONDS_MAX,
    BACKOFF_MS,
    CONSUMED_AT_ONCE,
)
from ottla.clients.producer.state.settings import TRANSACTIONAL_LINGER_MS

RECORD_BYTES: Final = 1000
QUEUE_KILOBYTES: Final = 8_000
QUEUE_WAIT_SECONDS: Final = 0.001
"""A producer without delivery reports is not notified when its queue has room again."""


class Way(Enum):
    """How records are written: in transactions, or without."""

    TRANSACTIONS = "in transactions"
    WAITING = "without, but waited for after each 1,000"
    """As a producer has to at each end, though nothing ends here."""
    WITHOUT = "without transactions"


class Transactions(NamedTuple):
    """This many transactions of this many records, divided among producers."""

    transactions: int
    records: int
    producers: int = 1
    is_ours: bool = False
    """Whether the producers are Ottla's, not librdkafka's."""

    @property
    def who(self) -> str:
        """The name of the producer's library."""
        count = "one producer" if self.producers == 1 else f"{self.producers} producers"
        return f"{count} of {'ours' if self.is_ours else 'librdkafka'}"

    @property
    def size_bytes(self) -> int:
        """The total size of all values."""
        return self.transactions * self.records * RECORD_BYTES


def write(port: int, topic: str, load: Transactions, way: Way = Way.TRANSACTIONS) -> float:
    """Return the seconds until all is committed; without transactions, until it is acknowledged.

    Each producer has a process and a partition of its own, so that no producer waits for
    another.
    """
    processes = multiprocessing.get_context("spawn")
    gate = processes.Barrier(load.producers + 1, timeout=ANSWER_SECONDS_MAX)
    each = load._replace(transactions=load.transactions // load.producers)
    producers = [
        processes.Process(target=_produce, args=(gate, port, topic, each, way, number))
        for number in range(load.producers)
    ]
    for producer in producers:
        producer.start()
    try:
        gate.wait()
        began = perf_counter()
        gate.wait()
        return perf_counter() - began
    except BrokenBarrierError:
        raise RuntimeError("a producer has failed") from None
    finally:
        for producer in producers:
            producer.join()


def read(port: int, topic: str, load: Transactions, isolation_level: str) -> float:
    """Return the seconds it takes to read one producer's records."""
    settings = {
        **_address(port),
        "group.id": "benchmark",
        "isolation.level": isolation_level,
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": BACKOFF_MS,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.list_topics(topic, timeout=ANSWER_SECONDS_MAX)
        began = perf_counter()
        consumer.assign([TopicPartition(topic, 0, 0)])
        missing = load.transactions * load.records
        while missing > 0:
            records = consumer.consume(CONSUMED_AT_ONCE, timeout=ANSWER_SECONDS_MAX)
            assert records, f"{missing} records are missing"
            missing -= len(records)
        return perf_counter() - began


def _produce(gate: Any, port: int, topic: str, load: Transactions, way: Way, number: int) -> None:
    """Run as one producer: get ready, wait for the others, send, and print the duration."""
    try:
        make = _Ours if load.is_ours else _Librdkafka
        producer = make(port, f"{topic}-{number}", way)
        one = load._replace(transactions=1, records=1)  # warm-up: finds brokers and gets ids
        _send_all(producer, topic, number, one, way)
        gate.wait()
        _send_all(producer, topic, number, load, way)
        gate.wait()
    except BaseException:
        gate.abort()
        raise


class _Writer(Protocol):
    """A producer of any library."""

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, value: bytes) -> None: ...

    def commit(self) -> None: ...

    def flush(self) -> None: ...


def _send_all(producer: _Writer, topic: str, partition: int, load: Transactions, way: Way) -> None:
    value = bytes(RECORD_BYTES)
    for _ in range(load.transactions):
        if way is Way.TRANSACTIONS:
            producer.begin()
        for _ in range(load.records):
            producer.send(topic, partition, value)
        if way is Way.TRANSACTIONS:
            producer.commit()
        elif way is Way.WAITING:
            producer.flush()
    producer.flush()


class _Librdkafka:
    def __init__(self, port: int, name: str, way: Way) -> None:
        is_transactional = way is Way.TRANSACTIONS
        own = {"transactional.id": name} if is_transactional else {"enable.idempotence": True}
        queue = {"queue.buffering.max.kbytes": QUEUE_KILOBYTES}
        self._producer = Producer({**_address(port), **queue, **own})
        self._producer.list_topics(timeout=ANSWER_SECONDS_MAX)
        if is_transactional:
            self._producer.init_transactions(ANSWER_SECONDS_MAX)
        self.begin = self._producer.begin_transaction

    def send(self, topic: str, partition: int, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(topic, value, partition=partition)
            except BufferError:
                self._producer.poll(QUEUE_WAIT_SECONDS)
            else:
                return

    def commit(self) -> None:
        self._producer.commit_transaction(ANSWER_SECONDS_MAX)

    def flush(self) -> None:
        assert self._producer.flush(ANSWER_SECONDS_MAX) == 0, "the broker does not answer"


class _Ours:
    def __init__(self, port: int, name: str, way: Way) -> None:
        is_transactional = way is Way.TRANSACTIONS
        # Awaited records use the linger of transactions: no response is awaited before the last.
        linger = {"linger_ms": TRANSACTIONAL_LINGER_MS} if way is Way.WAITING else {}
        self._producer = ottla.Producer(
            bootstrap_servers=f"127.0.0.1:{port}",
            buffer_memory=QUEUE_KILOBYTES * 1000,
            transactional_id=name if is_transactional else None,
            **linger,
        )
        if is_transactional:
            self._producer.init_transactions()
        self.begin = self._producer.begin_transaction
        self.commit = self._producer.commit_transaction
        self.flush = self._producer.flush

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.send(topic, value, partition=partition)


def _address(port: int) -> dict[str, Any]:
    return {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
